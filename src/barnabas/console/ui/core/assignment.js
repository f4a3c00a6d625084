// Who reads which partition of a consumer group: the members with their numbers, and a cell for each partition.
/** @import { Group } from './map_groups.js' */
/** @import { GroupPage } from './types.js' */

/** @typedef {{number: number, member: string, name: string, host: string, partitions: {topic: string, partition: number}[],
 *   lag: number|null}} Reader `number`: from 1 on, 0 for nobody */
/** @typedef {{topic: string, partition: number, reader: Reader|null, lag: number|null, committed: number|null}} Cell */
/** @typedef {{readers: Reader[], nobody: Reader, cells: Cell[], topics: Group[], starts: Uint32Array}} Assignment
 *   `starts`: the first cell of each topic, and the number of all */

/** Returns the assignment of a group, members in the order of their names. @param {GroupPage} group @returns {Assignment} */
export function assignmentOf(group) {
  const readers = group.members
    .map((each) => ({ number: 0, member: each.member, name: each.instance ?? (each.client || each.member), host: each.host, partitions: each.assignments, lag: /** @type {number|null} */ (null) }))
    .sort((one, other) => one.name.localeCompare(other.name, 'en', { numeric: true }) || one.member.localeCompare(other.member));
  readers.forEach((each, index) => (each.number = index + 1));
  const nobody = { number: 0, member: '', name: '', host: '', partitions: /** @type {{topic: string, partition: number}[]} */ ([]), lag: /** @type {number|null} */ (null) };
  const keyOf = (/** @type {{topic: string, partition: number}} */ each) => `${each.topic} ${each.partition}`;
  const owners = new Map(readers.flatMap((reader) => reader.partitions.map((each) => [keyOf(each), reader])));
  const offsets = new Map(group.partitions.map((each) => [keyOf(each), each]));
  /** @type {Cell[]} */
  const cells = [];
  /** @type {Group[]} */
  const topics = [];
  const starts = [0];
  for (const { topic, numbers } of partitionsOf(group)) {
    for (const partition of numbers) {
      const key = keyOf({ topic, partition });
      const { lag = null, committed = null } = offsets.get(key) ?? {};
      const reader = owners.get(key) ?? null;
      cells.push({ topic, partition, reader, lag, committed });
      const of = reader ?? nobody;
      if (!reader) nobody.partitions.push({ topic, partition });
      if (lag !== null) of.lag = (of.lag ?? 0) + lag;
    }
    topics.push({ name: topic, topic, partitions: numbers.length });
    starts.push(cells.length);
  }
  return { readers, nobody, cells, topics, starts: Uint32Array.from(starts) };
}

/** Returns the partitions of each topic: those of the cluster, and those that the group still has. @param {GroupPage} group */
function partitionsOf(group) {
  const known = new Map(group.assigned.map(({ topic, partitions }) => [topic, new Set(Array.from({ length: partitions }, (_, number) => number))]));
  for (const { topic, partition } of [...group.partitions, ...group.members.flatMap((each) => each.assignments)]) {
    const numbers = known.get(topic) ?? new Set();
    known.set(topic, numbers.add(partition));
  }
  return [...known].sort(([one], [other]) => (one < other ? -1 : 1)).map(([topic, numbers]) => ({ topic, numbers: [...numbers].sort((one, other) => one - other) }));
}

/** Returns partitions as ranges, such as “orders 0–2, 5; events 1”. @param {{topic: string, partition: number}[]} partitions */
export function ranges(partitions) {
  /** @type {Map<string, number[]>} */
  const topics = new Map();
  for (const { topic, partition } of partitions) topics.set(topic, [...(topics.get(topic) ?? []), partition]);
  return [...topics].map(([topic, numbers]) => `${topic} ${rangesOf(numbers.sort((one, other) => one - other))}`).join('; ');
}

/** @param {number[]} numbers */
function rangesOf(numbers) {
  /** @type {[number, number][]} */
  const found = [];
  for (const each of numbers) {
    const last = found.at(-1);
    if (last && last[1] === each - 1) last[1] = each;
    else found.push([each, each]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(', ');
}
