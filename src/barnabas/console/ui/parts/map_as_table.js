// The map as tables: replicas of each broker by state, the groups, and the partitions: those that are not well, or all of
// them in the order of groups.
import { useMemo } from 'preact/hooks';
import { html } from '../core/html.js';
import { href, param } from '../core/url.js';
import { count } from '../core/format.js';
import { texts } from '../core/texts.js';
import { BrokerLink, BrokerList, PartitionLink, State } from './badges.js';
import { Table } from './table.js';
/** @import { Group, Groups } from '../core/map_groups.js' */
/** @import { MapTable } from '../core/map_table.js' */
/** @import { Severity } from '../core/types.js' */

/** @type {Severity[]} */
const RANK = ['ok', 'notice', 'warning', 'error', 'critical'];
const STATES = /** @type {const} */ (['follower', 'leader', 'out', 'silent', 'leaderless']);


/** @param {{table: MapTable, drawn: number, groups: Groups|null}} props */
export function MapTableView({ table, drawn, groups }) {
  const brokers = useMemo(() => {
    const held = table.byBroker();
    return table.header.brokers.map((each) => {
      const of = held.get(each.broker);
      const sums = [0, 0, 0, 0, 0];
      of?.positions.forEach((position, index) => {
        const state = table.stateOf(position, of.places[index] ?? 0, each.broker);
        sums[state] = (sums[state] ?? 0) + 1;
      });
      return { ...each, sums };
    });
  }, [table, drawn]);
  const wanted = param('state');
  const text = (param('q') ?? '').toLowerCase();
  const shown = useMemo(() => chosen(table, groups, wanted, text), [table, drawn, groups, wanted, text]);
  const title = groups ? texts.map.inGroups : texts.mapAsTable.partitionsThatAreNotWell;
  return html`<div class="stack">
    <${Table} label=${texts.mapAsTable.replicasByBroker} count=${brokers.length} row=${(/** @type {number} */ index) => brokers[index] ?? null} keyOf=${(/** @type {any} */ row) => String(row.broker)}
      columns=${[
        { key: 'broker', title: texts.words.broker, width: 110, cell: (/** @type {any} */ row) => html`<a href=${href('/broker', { id: row.broker })}>${texts.words.broker} ${row.broker}</a>` },
        { key: 'rack', title: texts.words.rack2, width: 110, cell: (/** @type {any} */ row) => row.rack ?? '–' },
        ...STATES.map((state, index) => ({ key: state, title: texts.replica[state], width: 104, align: /** @type {const} */ ('end'), cell: (/** @type {any} */ row) => count(row.sums[index]) })),
      ]} />
    ${groups && html`<${GroupsTable} table=${table} groups=${groups} drawn=${drawn} />`}
    <${Table} label=${title} isTall count=${shown.length} row=${(/** @type {number} */ index) => rowOf(table, groups, shown[index])} keyOf=${(/** @type {any} */ row) => `${row.topic}-${row.partition}`}
      empty=${groups || wanted || text ? texts.empty.partitions : texts.empty.worst} columns=${[
        { key: 'name', title: texts.words.partition, cell: (/** @type {any} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
        ...(groups?.by === 'leader' ? [{ key: 'group', title: texts.words.group, width: 150, isWide: true, cell: (/** @type {any} */ row) => row.group }] : []),
        { key: 'state', title: texts.words.state, width: 160, cell: (/** @type {any} */ row) => html`<${State} severity=${row.severity} />` },
        { key: 'leader', title: texts.words.leader, width: 90, cell: (/** @type {any} */ row) => html`<${BrokerLink} id=${row.leader} />` },
        { key: 'replicas', title: texts.words.replicas, width: 120, cell: (/** @type {any} */ row) => html`<${BrokerList} brokers=${row.replicas} />` },
        { key: 'isr', title: texts.words.isr, width: 120, cell: (/** @type {any} */ row) => html`<${BrokerList} brokers=${row.isr} />` },
      ]} /></div>`;
}

/** @param {{table: MapTable, groups: Groups, drawn: number}} props */
function GroupsTable({ table, groups, drawn }) {
  const rows = useMemo(() => {
    const sums = groups.all.map(() => RANK.map(() => 0));
    groups.numbers.forEach((group, position) => {
      const of = sums[group];
      const severity = table.severity[position] ?? 0;
      if (of) of[severity] = (of[severity] ?? 0) + 1;
    });
    return groups.all.map((group, place) => ({ group, sums: sums[place] ?? [] }));
  }, [groups, drawn]);
  return html`<${Table} label=${texts.map.groups} isTall=${rows.length > 20} count=${rows.length} row=${(/** @type {number} */ index) => rows[index] ?? null} keyOf=${(/** @type {any} */ row) => row.group.name}
    columns=${[
      { key: 'name', title: texts.words.group, cell: (/** @type {any} */ row) => nameOf(row.group) },
      { key: 'partitions', title: texts.words.partitions, width: 104, align: /** @type {const} */ ('end'), cell: (/** @type {any} */ row) => count(row.group.partitions) },
      ...RANK.map((severity, index) => ({ key: severity, title: texts.severity[severity], width: 140, isWide: true, align: /** @type {const} */ ('end'), cell: (/** @type {any} */ row) => count(row.sums[index]) })),
    ]} />`;
}

/** @param {Group} group */
function nameOf({ name, topic, broker, severity }) {
  if (topic !== undefined) return html`<${PartitionLink} topic=${topic} />`;
  if (broker !== undefined) return html`<a href=${href('/broker', { id: broker })}>${name}</a>`;
  return severity ? html`<${State} severity=${severity} />` : name;
}

/**
 * Returns the positions of the rows: in groups all partitions in their order, else those that are not well, the worst
 * first. A filter by state or by a text of the topic leaves fewer.
 * @param {MapTable} table
 * @param {Groups|null} groups
 * @param {string|null} state
 * @param {string} text
 */
function chosen(table, groups, state, text) {
  /** @type {number[]} */
  const found = [];
  table.topics.names.forEach((name, topic) => {
    if (text && !name.toLowerCase().includes(text)) return;
    const start = table.starts[topic] ?? 0;
    for (let position = start; position < start + (table.topics.counts[topic] ?? 0); position += 1) {
      const severity = RANK[table.severity[position] ?? 0] ?? 'ok';
      if (state ? severity === state : groups || severity !== 'ok') found.push(position);
    }
  });
  if (!groups) return found.sort((one, other) => (table.severity[other] ?? 0) - (table.severity[one] ?? 0));
  return found.sort((one, other) => (groups.numbers[one] ?? 0) - (groups.numbers[other] ?? 0));
}

/** @param {MapTable} table @param {Groups|null} groups @param {number|undefined} position */
function rowOf(table, groups, position) {
  if (position === undefined) return null;
  const replicas = table.replicasOf(position);
  return {
    ...table.nameOf(position),
    group: groups?.all[groups.numbers[position] ?? 0]?.name ?? '',
    severity: RANK[table.severity[position] ?? 0] ?? 'ok',
    leader: table.leaderOf(position),
    replicas,
    isr: replicas.filter((_, place) => ((table.isr[position] ?? 0) >> place) & 1),
  };
}
