// The replica map: a column for each broker, racks framed, a cell for each replica in the order of topics.
import { STEPS, looks, stamps } from './stamps.js';
import { colour } from '../core/theme.js';
import { NO_LEADER } from '../core/map_table.js';
/** @import { MapTable } from '../core/map_table.js' */
/** @import { Fill } from './stamps.js' */

const CELL_MIN = 3;
const CELL_MAX = 30;
const COLUMN_MIN = 120;
const COLUMN_MAX = 420;
const GAP = 14;
const RACK_GAP = 26;
export const HEAD = 46;
const FOOT = 18;

/** @typedef {{broker: number, rack: string|null, problem: string|null, positions: Uint32Array, places: Uint8Array,
 *   x: number, y: number, width: number, height: number, perRow: number, isRackStart: boolean}} BrokerColumn */
/** @typedef {{columns: BrokerColumn[], cell: number, width: number, height: number}} Layout */

/**
 * Returns where each broker's column stands, with the largest cells that fit.
 * @param {MapTable} table
 * @param {number} width
 * @param {number} height
 * @param {number} zoom
 * @returns {Layout}
 */
export function layOut(table, width, height, zoom) {
  const held = table.byBroker();
  const brokers = [...table.header.brokers].sort(
    (one, other) => (one.rack ?? '').localeCompare(other.rack ?? '', 'en', { numeric: true }) || one.broker - other.broker,
  );
  const perBand = Math.max(1, Math.min(brokers.length || 1, Math.floor((width + GAP) / (COLUMN_MIN + GAP))));
  const racks = new Set(brokers.map((each) => each.rack ?? '')).size;
  const spare = perBand === brokers.length ? (racks - 1) * (RACK_GAP - GAP) : 0;
  const most = Math.max(1, ...[...held.values()].map((each) => each.positions.length));
  const columnWidth = Math.min(COLUMN_MAX, Math.floor((width - spare - GAP * (perBand - 1) - 16) / perBand));
  const bands = Math.ceil((brokers.length || 1) / perBand);
  const rowsAt = (/** @type {number} */ cell) => Math.ceil(most / Math.max(1, Math.floor(columnWidth / cell)));
  let cell = CELL_MAX;
  while (cell > CELL_MIN && bands * (rowsAt(cell) * cell + HEAD + FOOT) > height) cell -= 1;
  cell = Math.min(columnWidth, Math.round(cell * zoom));
  const perRow = Math.max(1, Math.floor(columnWidth / cell));
  const bandHeight = HEAD + FOOT + rowsAt(cell) * cell;
  let x = 8;
  let [band, inBand] = [0, 0];
  let rack = brokers[0]?.rack ?? null;
  const columns = brokers.map((each, index) => {
    const isRackStart = index === 0 || each.rack !== rack;
    if (inBand === perBand) [x, inBand, band] = [8, 0, band + 1];
    else if (index > 0) x += isRackStart ? RACK_GAP - GAP : 0;
    rack = each.rack;
    const of = held.get(each.broker) ?? { positions: new Uint32Array(0), places: new Uint8Array(0) };
    const column = { ...each, positions: of.positions, places: of.places, x, y: band * bandHeight, width: columnWidth, height: bandHeight - FOOT, perRow, isRackStart };
    x += columnWidth + GAP;
    inBand += 1;
    return column;
  });
  return { columns, cell, width, height: bands * bandHeight };
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
  for (const column of layout.columns) {
    const [left, first] = [Math.round(column.x * ratio), Math.round((column.y + HEAD - top) * ratio)];
    const { positions, places, perRow, broker } = column;
    const from = Math.max(0, Math.floor(-first / size)) * perRow;
    const to = Math.min(positions.length, Math.ceil((high - first) / size + 1) * perRow);
    for (let index = from; index < to; index += 1) {
      const position = positions[index] ?? 0;
      const number = look(position, places[index] ?? 0, broker);
      const stamp = (isDim?.(position) ? dim : plain)[number];
      if (!stamp) continue;
      const x = left + (index % perRow) * size;
      const y = first + Math.floor(index / perRow) * size;
      if (x + size > wide) continue;
      const last = Math.min(size, high - y);
      for (let line = Math.max(0, -y); line < last; line += 1) {
        const target = (y + line) * wide + x;
        const source = line * size;
        // To copy a view of the stamp for each line would take longer than its few pixels.
        for (let dot = 0; dot < size; dot += 1) pixels[target + dot] = /** @type {number} */ (stamp[source + dot]);
      }
    }
  }
  context.putImageData(image, 0, 0);
  drawFrames(context, layout, top, ratio, size);
  if (cursor) drawCursor(context, layout, cursor, top, ratio, size);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Layout} layout
 * @param {number} top
 * @param {number} ratio
 * @param {number} size
 */
function drawFrames(context, layout, top, ratio, size) {
  context.lineWidth = 1;
  drawRacks(context, layout, top);
  for (const column of layout.columns) {
    const rows = Math.ceil(column.positions.length / column.perRow);
    const high = Math.max(8, (rows * size) / ratio);
    const isDown = column.problem !== null;
    context.strokeStyle = colour(isDown ? 'critical' : 'line');
    context.setLineDash(isDown ? [5, 3] : []);
    context.lineWidth = isDown ? 2 : 1;
    context.strokeRect(column.x - 3, column.y + HEAD - top - 3, Math.min(column.width, (column.perRow * size) / ratio) + 6, high + 6);
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
  const x = column.x + ((cursor.index % column.perRow) * size) / ratio;
  const y = column.y + HEAD - top + (Math.floor(cursor.index / column.perRow) * size) / ratio;
  const side = size / ratio;
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
    if (inX < 0 || inY < 0 || inX >= column.perRow * side) continue;
    const index = Math.floor(inY / side) * column.perRow + Math.floor(inX / side);
    if (index < column.positions.length && inY < column.height) return { column: number, index };
  }
  return null;
}
