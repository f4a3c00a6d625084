// The cursor of the replica map: where the keys move it, and where its replica is after a change.
import { HEAD, GROUP_HEAD, placeOf } from './map.js';
/** @import { BrokerColumn, Layout } from './map.js' */

/** @typedef {{column: number, index: number}} Cell */
/** @typedef {Cell & {broker: number, position: number}} Cursor a cell, and the replica that was there */

const KEYS = ['ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight', 'Home', 'End'];
const GROUP_KEYS = ['PageUp', 'PageDown'];

/** @param {Layout} layout @param {Cell|null} cell @returns {Cursor|null} */
export function cursorAt(layout, cell) {
  const column = cell ? layout.columns[cell.column] : undefined;
  const position = cell ? column?.positions[cell.index] : undefined;
  return cell && column && position !== undefined ? { ...cell, broker: column.broker, position } : null;
}

/**
 * Returns the cursor at the place that its replica has now: in groups, replicas change their places with their state.
 * @param {Layout} layout
 * @param {Cursor|null} cursor
 */
export function followed(layout, cursor) {
  if (!cursor) return null;
  const before = layout.columns[cursor.column];
  if (before?.broker === cursor.broker && before.positions[cursor.index] === cursor.position) return cursor;
  const column = layout.columns.findIndex((each) => each.broker === cursor.broker);
  const index = layout.columns[column]?.positions.indexOf(cursor.position) ?? -1;
  return index < 0 ? null : { ...cursor, column, index };
}

/**
 * Returns the cell to which a key moves; null for a key that moves nothing.
 * @param {Layout} layout
 * @param {Cell|null} cursor
 * @param {string} key
 * @returns {Cell|null}
 */
export function moved(layout, cursor, key) {
  if (!KEYS.includes(key) && !(layout.groups && GROUP_KEYS.includes(key))) return null;
  if (!cursor) return { column: Math.max(0, layout.columns.findIndex((each) => each.positions.length)), index: 0 };
  const column = layout.columns[cursor.column];
  if (!column) return null;
  const last = column.positions.length - 1;
  if (key === 'Home') return { column: cursor.column, index: 0 };
  if (key === 'End') return { column: cursor.column, index: last };
  if (key === 'ArrowUp' || key === 'ArrowDown') return { column: cursor.column, index: vertical(layout, column, cursor.index, key === 'ArrowUp' ? -1 : 1) };
  if (GROUP_KEYS.includes(key)) return { column: cursor.column, index: ofGroup(layout, column, cursor.index, key === 'PageUp' ? -1 : 1) };
  return horizontal(layout, column, cursor, key === 'ArrowLeft' ? -1 : 1);
}

/**
 * Returns the index one row above or below; over the edge of a group it is in the next one that has cells.
 * @param {Layout} layout
 * @param {BrokerColumn} column
 * @param {number} index
 * @param {-1|1} step
 */
function vertical(layout, column, index, step) {
  const { starts, perRow } = column;
  const { group, row } = placeOf(layout, column, index);
  const [begin, end] = [starts[group] ?? 0, starts[group + 1] ?? 0];
  const lastRow = Math.floor((end - 1 - begin) / perRow);
  if (step < 0 ? row > 0 : row < lastRow) return Math.min(end - 1, index + step * perRow);
  const next = step < 0 ? begin - 1 : end;
  if (next < 0) return 0;
  if (next >= column.positions.length) return column.positions.length - 1;
  const other = placeOf(layout, column, next);
  const [first, past] = [starts[other.group] ?? 0, starts[other.group + 1] ?? 0];
  return Math.min(past - 1, first + other.row * perRow + ((index - begin) % perRow));
}

/**
 * Returns the first cell of the group after, or before; of the present one if the cursor is further in it.
 * @param {Layout} layout
 * @param {BrokerColumn} column
 * @param {number} index
 * @param {-1|1} step
 */
function ofGroup(layout, column, index, step) {
  const begin = column.starts[placeOf(layout, column, index).group] ?? 0;
  if (step > 0) {
    const next = column.starts[placeOf(layout, column, index).group + 1] ?? 0;
    return next < column.positions.length ? next : index;
  }
  if (index > begin || begin === 0) return begin;
  return column.starts[placeOf(layout, column, begin - 1).group] ?? 0;
}

/**
 * Returns the next cell of the row; over its edge, that of the next broker at the same height.
 * @param {Layout} layout
 * @param {BrokerColumn} column
 * @param {Cell} cursor
 * @param {-1|1} step
 * @returns {Cell}
 */
function horizontal(layout, column, cursor, step) {
  const from = placeOf(layout, column, cursor.index);
  const wanted = cursor.index + step;
  if (wanted >= 0 && wanted < column.positions.length) {
    const to = placeOf(layout, column, wanted);
    if (to.group === from.group && to.row === from.row) return { column: cursor.column, index: wanted };
  }
  const other = layout.columns[cursor.column + step];
  if (!other?.positions.length) return cursor;
  const [begin, end] = [other.starts[from.group] ?? 0, other.starts[from.group + 1] ?? 0];
  const edge = begin + from.row * other.perRow + (step > 0 ? 0 : other.perRow - 1);
  const last = begin < end ? end - 1 : Math.min(other.positions.length - 1, begin);
  return { column: cursor.column + step, index: Math.min(last, edge) };
}

/** Scrolls so that a cell is in sight. @param {HTMLElement|null} box @param {Layout} layout @param {Cell} cell */
export function reveal(box, layout, cell) {
  const column = layout.columns[cell.column];
  if (!box || !column) return;
  const y = column.y + HEAD + placeOf(layout, column, cell.index).y;
  const above = HEAD + (layout.groups ? GROUP_HEAD : 0);
  if (y < box.scrollTop + above) box.scrollTop = Math.max(0, y - above);
  else if (y + layout.cell > box.scrollTop + box.clientHeight) box.scrollTop = y + layout.cell - box.clientHeight + 8;
}
