// The assignment of a consumer group: a strip of cells for each topic, one for each partition; number and colour are the
// member that reads it.
import { lastNotAbove } from '../core/map_groups.js';
import { colour } from '../core/theme.js';
import { GROUP_HEAD, HEAD } from './map.js';
import { hatch } from './stamps.js';
/** @import { Assignment, Cell } from '../core/assignment.js' */
/** @import { Layout } from './map.js' */

const GAP = 6;
const SIDES = { few: 30, many: 20 };
const MANY = 600;
const SERIES = 7;

/** Returns the colour of a member. After seven of them the colours begin again; the number tells them apart. @param {number} number */
export function readerColour(number) {
  return colour(`series-${number % SERIES}`);
}

/**
 * Returns where the cells stand, as one column of the map whose groups are topics.
 * @param {Assignment} assignment
 * @param {number} width
 * @returns {Layout}
 */
export function layOutAssignment({ cells, topics, starts }, width) {
  const cell = cells.length > MANY ? SIDES.many : SIDES.few;
  const perRow = Math.max(1, Math.floor((width - 16) / cell));
  const tops = new Float64Array(topics.length);
  let bottom = 0;
  topics.forEach(({ partitions }, place) => {
    tops[place] = bottom + GROUP_HEAD;
    bottom += GROUP_HEAD + Math.ceil(partitions / perRow) * cell + GAP;
  });
  const positions = Uint32Array.from(cells, (_, index) => index);
  // It has no head of a broker.
  const column = { broker: 0, rack: null, problem: null, positions, places: new Uint8Array(0), starts, x: 8, y: -HEAD, width: perRow * cell, height: bottom + HEAD, perRow, isRackStart: false };
  return { columns: cells.length ? [column] : [], cell, width, height: bottom, tops, groups: { by: 'topic', all: topics, numbers: new Uint32Array(0) } };
}

/**
 * Draws what is in sight.
 * @param {CanvasRenderingContext2D} context
 * @param {Assignment} assignment
 * @param {Layout} layout
 * @param {{top: number, height: number, isDim: (cell: Cell) => boolean, cursor: number|null}} options
 */
export function drawAssignment(context, { cells, topics, starts }, layout, { top, height, isDim, cursor }) {
  const { cell: side, tops } = layout;
  const perRow = layout.columns[0]?.perRow ?? 1;
  for (let place = lastNotAbove(tops, top); place < topics.length; place += 1) {
    const line = (tops[place] ?? 0) - top;
    if (line - GROUP_HEAD >= height) break;
    context.globalAlpha = 1;
    context.fillStyle = colour('text');
    context.font = '600 12px system-ui, sans-serif';
    context.textAlign = 'left';
    context.fillText(topics[place]?.name ?? '', 8, line - 5);
    const begin = starts[place] ?? 0;
    const from = begin + Math.max(0, Math.floor(-line / side)) * perRow;
    const to = Math.min(starts[place + 1] ?? 0, begin + Math.ceil((height - line) / side + 1) * perRow);
    for (let index = from; index < to; index += 1) {
      const cell = cells[index];
      if (!cell) continue;
      const [x, y] = [8 + ((index - begin) % perRow) * side, line + Math.floor((index - begin) / perRow) * side];
      context.globalAlpha = isDim(cell) ? 0.2 : 1;
      drawCell(context, cell, x, y, side - 2);
      context.globalAlpha = 1;
      if (cursor === index) drawCursor(context, x, y, side - 2);
    }
  }
}

/** @param {CanvasRenderingContext2D} context @param {Cell} cell @param {number} x @param {number} y @param {number} side */
function drawCell(context, { reader }, x, y, side) {
  context.fillStyle = reader ? readerColour(reader.number) : colour('map-silent');
  context.fillRect(x, y, side, side);
  if (!reader) {
    context.save();
    context.beginPath();
    context.rect(x, y, side, side);
    context.clip();
    context.translate(x, y);
    context.strokeStyle = colour('ink-on-dark');
    hatch(context, 'cross', side);
    context.restore();
    return;
  }
  const text = String(reader.number);
  const high = Math.min(13, Math.floor(side * (text.length < 3 ? 0.6 : 1.5 / text.length)));
  context.font = `600 ${high}px system-ui, sans-serif`;
  context.textAlign = 'center';
  context.fillStyle = colour('series-ink');
  context.fillText(text, x + side / 2, y + side / 2 + high * 0.36);
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} side */
function drawCursor(context, x, y, side) {
  context.strokeStyle = colour('panel');
  context.lineWidth = 5;
  context.strokeRect(x - 1, y - 1, side + 2, side + 2);
  context.strokeStyle = colour('text');
  context.lineWidth = 2;
  context.strokeRect(x - 1, y - 1, side + 2, side + 2);
}
