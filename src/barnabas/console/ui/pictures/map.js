// The replica map: a column for each broker, racks framed, a cell for each replica in the order of topics or of groups.
import { STEPS, looks, stamps } from './stamps.js';
import { plural } from '../core/format.js';
import { arranged, lastNotAbove } from '../core/map_groups.js';
import { colour } from '../core/theme.js';
import { NO_LEADER } from '../core/map_table.js';
import { texts } from '../core/texts.js';
/** @import { Groups } from '../core/map_groups.js' */
/** @import { MapTable } from '../core/map_table.js' */
/** @import { Fill } from './stamps.js' */

const CELL_MIN = 3;
/** The least side of a cell if there are so many groups that the map is a list to scroll. */
const CELL_MIN_IN_LIST = 12;
const CELL_MAX = 30;
const COLUMN_MIN = 120;
const COLUMN_MAX = 420;
const GAP = 14;
const RACK_GAP = 26;
export const HEAD = 46;
const FOOT = 18;
/** The line with the name of a group, and the space after its cells. */
export const GROUP_HEAD = 18;
const GROUP_GAP = 4;

/** @typedef {{broker: number, rack: string|null, problem: string|null, positions: Uint32Array, places: Uint8Array,
 *   starts: Uint32Array, x: number, y: number, width: number, height: number, perRow: number, isRackStart: boolean}} BrokerColumn
 *   `starts`: the index of each group's first replica, and the number of all */
/** @typedef {{columns: BrokerColumn[], cell: number, width: number, height: number, groups: Groups|null,
 *   tops: Float64Array}} Layout `tops`: where the cells of each group begin below the head of a column */

/**
 * Returns where each broker's column stands, with the largest cells that fit.
 * @param {MapTable} table
 * @param {Groups|null} groups
 * @param {number} width
 * @param {number} height
 * @param {number} zoom
 * @returns {Layout}
 */
export function layOut(table, groups, width, height, zoom) {
  const held = arranged(table, groups);
  const brokers = [...table.header.brokers].sort(
    (one, other) => (one.rack ?? '').localeCompare(other.rack ?? '', 'en', { numeric: true }) || one.broker - other.broker,
  );
  const perBand = Math.max(1, Math.min(brokers.length || 1, Math.floor((width + GAP) / (COLUMN_MIN + GAP))));
  const racks = new Set(brokers.map((each) => each.rack ?? '')).size;
  const spare = perBand === brokers.length ? (racks - 1) * (RACK_GAP - GAP) : 0;
  const most = mostByGroup([...held.values()].map((each) => each.starts), groups?.all.length ?? 1);
  const columnWidth = Math.min(COLUMN_MAX, Math.floor((width - spare - GAP * (perBand - 1) - 16) / perBand));
  const bands = Math.ceil((brokers.length || 1) / perBand);
  const perRowAt = (/** @type {number} */ cell) => Math.max(1, Math.floor(columnWidth / cell));
  const topsAt = (/** @type {number} */ cell) => topsOf(most, perRowAt(cell), cell, groups !== null);
  const least = groups && bands * groups.all.length * GROUP_HEAD > height / 2 ? CELL_MIN_IN_LIST : CELL_MIN;
  let cell = CELL_MAX;
  while (cell > least && bands * (topsAt(cell).bottom + HEAD + FOOT) > height) cell -= 1;
  cell = Math.min(columnWidth, Math.round(cell * zoom));
  const perRow = perRowAt(cell);
  const { tops, bottom } = topsAt(cell);
  const bandHeight = HEAD + FOOT + bottom;
  let x = 8;
  let [band, inBand] = [0, 0];
  let rack = brokers[0]?.rack ?? null;
  const columns = brokers.map((each, index) => {
    const isRackStart = index === 0 || each.rack !== rack;
    if (inBand === perBand) [x, inBand, band] = [8, 0, band + 1];
    else if (index > 0) x += isRackStart ? RACK_GAP - GAP : 0;
    rack = each.rack;
    const of = held.get(each.broker) ?? { positions: new Uint32Array(0), places: new Uint8Array(0), starts: new Uint32Array(most.length + 1) };
    const column = { ...each, ...of, x, y: band * bandHeight, width: columnWidth, height: bandHeight - FOOT, perRow, isRackStart };
    x += columnWidth + GAP;
    inBand += 1;
    return column;
  });
  return { columns, cell, width, height: bands * bandHeight, groups, tops };
}

/**
 * Returns how many replicas of each group the broker has that has most of them.
 * @param {Uint32Array[]} columns the `starts` of each broker
 * @param {number} groups
 */
function mostByGroup(columns, groups) {
  const most = new Uint32Array(groups);
  for (const starts of columns) {
    for (let group = 0; group < groups; group += 1) {
      most[group] = Math.max(most[group] ?? 0, (starts[group + 1] ?? 0) - (starts[group] ?? 0));
    }
  }
  return most;
}

/** @param {Uint32Array} most @param {number} perRow @param {number} cell @param {boolean} isGrouped */
function topsOf(most, perRow, cell, isGrouped) {
  const tops = new Float64Array(most.length);
  let bottom = 0;
  most.forEach((count, group) => {
    tops[group] = bottom + (isGrouped ? GROUP_HEAD : 0);
    bottom = (tops[group] ?? 0) + Math.ceil(count / perRow) * cell + (isGrouped ? GROUP_GAP : 0);
  });
  return { tops, bottom };
}

/**
 * Returns the group of a cell, and where the cell is below the head of its column.
 * @param {Layout} layout
 * @param {BrokerColumn} column
 * @param {number} index
 * @param {number} [side] of a cell as it is drawn
 */
export function placeOf(layout, column, index, side = layout.cell) {
  const group = Math.min(layout.tops.length - 1, lastNotAbove(column.starts, index));
  const inGroup = index - (column.starts[group] ?? 0);
  const row = Math.floor(inGroup / column.perRow);
  return { group, row, x: (inGroup % column.perRow) * side, y: (layout.tops[group] ?? 0) + row * side };
}

/**
 * Returns the number of the look of each replica, by what the cells show.
 * @param {MapTable} table
 * @param {Fill} fill
 * @returns {(position: number, place: number, broker: number) => number}
 */
export function lookOf(table, fill) {
  if (fill === 'severity') return (position) => table.severity[position] ?? 0;
  if (fill === 'leader') {
    return (position, place) => {
      const leader = table.leader[position];
      if (leader === 255) return 4;
      if (leader === place) return place === 0 ? 1 : 2;
      return place === 0 ? 3 : 0;
    };
  }
  if (fill === 'size' || fill === 'lag') {
    const column = table[fill];
    const { width } = table.header;
    let most = 1;
    for (const each of column) most = Math.max(most, each);
    return (position, place) => {
      const value = column[position * width + place] ?? 0;
      return value === 0 ? 0 : 1 + Math.min(STEPS - 1, Math.floor(((value - 1) / most) * STEPS));
    };
  }
  if (table.silent.size) return (position, place, broker) => table.stateOf(position, place, broker);
  // The usual case, for each of 120,000 replicas.
  const { leader: leaders, isr } = table;
  return (position, place) => {
    const leader = leaders[position];
    if (leader === place) return 1;
    return leader === NO_LEADER ? 4 : ((isr[position] ?? 0) >> place) & 1 ? 0 : 2;
  };
}

/**
 * Draws what is in sight.
 * @param {CanvasRenderingContext2D} context
 * @param {MapTable} table
 * @param {Layout} layout
 * @param {{fill: Fill, top: number, width: number, height: number, ratio: number, isDim: ((position: number) => boolean)|null,
 *   cursor: {column: number, index: number}|null}} options
 */
export function drawMap(context, table, layout, { fill, top, width, height, ratio, isDim, cursor }) {
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  const image = context.createImageData(wide, high);
  const pixels = new Uint32Array(image.data.buffer);
  const size = Math.max(2, Math.floor(layout.cell * ratio));
  const { plain, dim } = stamps(looks(fill), size);
  const look = lookOf(table, fill);
  /** Draws the cells of a column from one index to another; `line` is the first of `begin`, in the screen's pixels. */
  const drawCells = (/** @type {BrokerColumn} */ column, /** @type {number} */ begin, /** @type {number} */ end, /** @type {number} */ line) => {
    const { positions, places, perRow, broker } = column;
    const left = Math.round(column.x * ratio);
    const from = begin + Math.max(0, Math.floor(-line / size)) * perRow;
    const to = Math.min(end, begin + Math.ceil((high - line) / size + 1) * perRow);
    for (let index = from; index < to; index += 1) {
      const position = positions[index] ?? 0;
      const number = look(position, places[index] ?? 0, broker);
      const stamp = (isDim?.(position) ? dim : plain)[number];
      if (!stamp) continue;
      const x = left + ((index - begin) % perRow) * size;
      const y = line + Math.floor((index - begin) / perRow) * size;
      if (x + size > wide) continue;
      const last = Math.min(size, high - y);
      for (let dots = Math.max(0, -y); dots < last; dots += 1) {
        const target = (y + dots) * wide + x;
        const source = dots * size;
        // To copy a view of the stamp for each line would take longer than its few pixels.
        for (let dot = 0; dot < size; dot += 1) pixels[target + dot] = /** @type {number} */ (stamp[source + dot]);
      }
    }
  };
  for (const column of layout.columns) {
    const above = column.y + HEAD - top;
    for (let group = lastNotAbove(layout.tops, -above); group < layout.tops.length; group += 1) {
      const line = Math.round((above + (layout.tops[group] ?? 0)) * ratio);
      if (line >= high) break;
      drawCells(column, column.starts[group] ?? 0, column.starts[group + 1] ?? 0, line);
    }
  }
  context.putImageData(image, 0, 0);
  drawFrames(context, layout, top, size / ratio);
  if (layout.groups) drawGroupNames(context, layout, layout.groups, top, height);
  if (cursor) drawCursor(context, layout, cursor, top, ratio, size);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Layout} layout
 * @param {number} top
 * @param {number} side of a cell
 */
function drawFrames(context, layout, top, side) {
  context.lineWidth = 1;
  drawRacks(context, layout, top);
  for (const column of layout.columns) {
    const { length } = column.positions;
    const high = Math.max(8, length ? placeOf(layout, column, length - 1, side).y + side : 0);
    const isDown = column.problem !== null;
    context.strokeStyle = colour(isDown ? 'critical' : 'line');
    context.setLineDash(isDown ? [5, 3] : []);
    context.lineWidth = isDown ? 2 : 1;
    context.strokeRect(column.x - 3, column.y + HEAD - top - 3, Math.min(column.width, column.perRow * side) + 6, high + 6);
  }
  context.setLineDash([]);
}

/**
 * Frames the brokers of each rack, where a rack has several.
 * @param {CanvasRenderingContext2D} context
 * @param {Layout} layout
 * @param {number} top
 */
function drawRacks(context, layout, top) {
  const { columns } = layout;
  context.strokeStyle = colour('strong-line');
  for (let first = 0; first < columns.length; ) {
    const from = columns[first];
    let last = first;
    while (columns[last + 1]?.rack === from?.rack && columns[last + 1]?.y === from?.y) last += 1;
    const to = columns[last];
    if (from && to && from.rack !== null && last > first) {
      context.beginPath();
      context.roundRect(from.x - 6.5, from.y - top + 1.5, to.x + to.width - from.x + 13, from.height - 4, 8);
      context.stroke();
    }
    first = last + 1;
  }
}

/**
 * Writes the names of the groups in sight above their cells, once for each row of columns.
 * @param {CanvasRenderingContext2D} context
 * @param {Layout} layout
 * @param {Groups} groups
 * @param {number} top
 * @param {number} height
 */
function drawGroupNames(context, { columns, tops, width }, groups, top, height) {
  context.font = '600 12px system-ui, sans-serif';
  context.textAlign = 'left';
  context.textBaseline = 'alphabetic';
  for (const { y } of columns.filter((column, place) => column.y !== columns[place - 1]?.y)) {
    const above = y + HEAD - top;
    for (let group = lastNotAbove(tops, -above); group < tops.length; group += 1) {
      const line = above + (tops[group] ?? 0);
      if (line - GROUP_HEAD >= height) break;
      const of = groups.all[group];
      if (!of) continue;
      const text = `${of.name} · ${plural(of.partitions, texts.nouns.partition)}`;
      context.fillStyle = colour('panel');
      context.fillRect(6, line - GROUP_HEAD + 2, Math.min(width - 12, context.measureText(text).width + 8), GROUP_HEAD - 4);
      context.fillStyle = colour('text');
      context.fillText(text, 10, line - 5);
    }
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Layout} layout
 * @param {{column: number, index: number}} cursor
 * @param {number} top
 * @param {number} ratio
 * @param {number} size
 */
function drawCursor(context, layout, cursor, top, ratio, size) {
  const column = layout.columns[cursor.column];
  if (!column) return;
  const side = size / ratio;
  const place = placeOf(layout, column, cursor.index, side);
  const [x, y] = [column.x + place.x, column.y + HEAD - top + place.y];
  context.strokeStyle = colour('panel');
  context.lineWidth = 5;
  context.strokeRect(x - 2, y - 2, side + 3, side + 3);
  context.strokeStyle = colour('text');
  context.lineWidth = 2;
  context.strokeRect(x - 2, y - 2, side + 3, side + 3);
}

/**
 * Returns the cell at a point of the picture, or null.
 * @param {Layout} layout
 * @param {number} x
 * @param {number} y
 * @param {number} ratio
 */
export function cellAt(layout, x, y, ratio) {
  const side = Math.max(2, Math.floor(layout.cell * ratio)) / ratio;
  for (const [number, column] of layout.columns.entries()) {
    const [inX, inY] = [x - column.x, y - column.y - HEAD];
    if (inX < 0 || inY < (layout.tops[0] ?? 0) || inX >= column.perRow * side) continue;
    const group = lastNotAbove(layout.tops, inY);
    const row = Math.floor((inY - (layout.tops[group] ?? 0)) / side);
    const index = (column.starts[group] ?? 0) + row * column.perRow + Math.floor(inX / side);
    if (index < (column.starts[group + 1] ?? 0) && inY < column.height) return { column: number, index };
  }
  return null;
}
