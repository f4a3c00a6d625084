// Groups of the partitions on the map: by topic, by leader or by state. A partition is in one group, which has the same
// place in the column of every broker.
import { texts } from './texts.js';
/** @import { MapTable } from './map_table.js' */
/** @import { Severity } from './types.js' */

/** @typedef {'topic'|'leader'|'state'} Grouping */
/** @typedef {{name: string, partitions: number, topic?: string, broker?: number, severity?: Severity}} Group */
/** @typedef {{by: Grouping, all: Group[], numbers: Uint32Array}} Groups `numbers`: the group of each position */
/** @typedef {{positions: Uint32Array, places: Uint8Array, starts: Uint32Array}} Arranged `starts`: where each group
 *   begins, and at last the number of all replicas */

export const GROUPINGS = /** @type {const} */ ([
  ['topic', texts.map.byTopic],
  ['leader', texts.map.byLeader],
  ['state', texts.map.byState],
]);
/** @type {Severity[]} */
const WORST_FIRST = ['critical', 'error', 'warning', 'notice', 'ok'];

/**
 * Returns the groups that have partitions, in order: topics by name; no leader, then brokers by number; the worst state
 * first.
 * @param {MapTable} table
 * @param {Grouping} by
 * @returns {Groups}
 */
export function groupsOf(table, by) {
  if (by === 'topic') return byTopic(table);
  const keys = new Int32Array(table.count);
  for (let position = 0; position < table.count; position += 1) {
    keys[position] = by === 'leader' ? table.leaderOf(position) : WORST_FIRST.length - 1 - (table.severity[position] ?? 0);
  }
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
  const order = [...counts.keys()].sort((one, other) => one - other);
  const places = new Map(order.map((key, place) => [key, place]));
  const all = order.map((key) => ({ ...(by === 'leader' ? leaderGroup(key) : stateGroup(key)), partitions: counts.get(key) ?? 0 }));
  return { by, all, numbers: Uint32Array.from(keys, (key) => places.get(key) ?? 0) };
}

/** @param {number} broker */
function leaderGroup(broker) {
  return broker < 0 ? { name: texts.replica.leaderless } : { name: texts.map.ledBy(broker), broker };
}

/** @param {number} place */
function stateGroup(place) {
  const severity = WORST_FIRST[place] ?? 'ok';
  return { name: texts.severity[severity], severity };
}

/** @param {MapTable} table @returns {Groups} */
function byTopic(table) {
  const numbers = new Uint32Array(table.count);
  const { names, counts } = table.topics;
  const all = names.map((topic, index) => {
    const start = table.starts[index] ?? 0;
    const partitions = counts[index] ?? 0;
    numbers.fill(index, start, start + partitions);
    return { name: topic, topic, partitions };
  });
  return { by: 'topic', all, numbers };
}

/**
 * Returns each broker's replicas in the order of groups, and within a group in the order of topics.
 * @param {MapTable} table
 * @param {Groups|null} groups null: all replicas are one group
 * @returns {Map<number, Arranged>}
 */
export function arranged(table, groups) {
  /** @type {Map<number, Arranged>} */
  const found = new Map();
  for (const [broker, { positions, places }] of table.byBroker()) {
    found.set(broker, groups ? grouped(positions, places, groups) : { positions, places, starts: Uint32Array.of(0, positions.length) });
  }
  return found;
}

/** @param {Uint32Array} positions @param {Uint8Array} places @param {Groups} groups @returns {Arranged} */
function grouped(positions, places, { all, numbers }) {
  const starts = new Uint32Array(all.length + 1);
  for (const position of positions) {
    const after = (numbers[position] ?? 0) + 1;
    starts[after] = (starts[after] ?? 0) + 1;
  }
  for (let group = 1; group <= all.length; group += 1) starts[group] = (starts[group] ?? 0) + (starts[group - 1] ?? 0);
  const next = starts.slice();
  const found = { positions: new Uint32Array(positions.length), places: new Uint8Array(positions.length), starts };
  for (let index = 0; index < positions.length; index += 1) {
    const position = positions[index] ?? 0;
    const group = numbers[position] ?? 0;
    const target = next[group] ?? 0;
    next[group] = target + 1;
    found.positions[target] = position;
    found.places[target] = places[index] ?? 0;
  }
  return found;
}

/**
 * Returns the number of the last value of ascending ones that is not above `wanted`; 0 if all are.
 * @param {ArrayLike<number>} values
 * @param {number} wanted
 */
export function lastNotAbove(values, wanted) {
  let [low, high] = [0, values.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((values[middle] ?? 0) <= wanted) low = middle;
    else high = middle - 1;
  }
  return low;
}
