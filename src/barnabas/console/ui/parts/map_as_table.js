// The map as tables: replicas of each broker by state, and the partitions that are not well.
import { useMemo } from 'preact/hooks';
import { html } from '../core/html.js';
import { href, param } from '../core/url.js';
import { count } from '../core/format.js';
import { texts } from '../core/texts.js';
import { BrokerLink, BrokerList, PartitionLink, State } from './badges.js';
import { Table } from './table.js';
/** @import { MapTable } from '../core/map_table.js' */
/** @import { Severity } from '../core/types.js' */

/** @type {Severity[]} */
const RANK = ['ok', 'notice', 'warning', 'error', 'critical'];
const STATES = /** @type {const} */ (['follower', 'leader', 'out', 'silent', 'leaderless']);
const ROWS_MAX = 5_000;

/** @param {{table: MapTable, drawn: number}} props */
export function MapTableView({ table, drawn }) {
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
  const bad = useMemo(() => {
    const found = [];
    for (let position = 0; position < table.count && found.length < ROWS_MAX; position += 1) {
      const severity = RANK[table.severity[position] ?? 0] ?? 'ok';
      if (wanted ? severity !== wanted : severity === 'ok') continue;
      const replicas = table.replicasOf(position);
      const isr = replicas.filter((_, place) => ((table.isr[position] ?? 0) >> place) & 1);
      const named = table.nameOf(position);
      if (!text || named.topic.toLowerCase().includes(text)) found.push({ ...named, severity, leader: table.leaderOf(position), replicas, isr });
    }
    return found.sort((one, other) => RANK.indexOf(other.severity) - RANK.indexOf(one.severity));
  }, [table, drawn, wanted, text]);
  return html`<div class="stack">
    <${Table} label="Replicas by broker" count=${brokers.length} row=${(/** @type {number} */ index) => brokers[index] ?? null} keyOf=${(/** @type {any} */ row) => String(row.broker)}
      columns=${[
        { key: 'broker', title: 'Broker', width: 110, cell: (/** @type {any} */ row) => html`<a href=${href('/broker', { id: row.broker })}>Broker ${row.broker}</a>` },
        { key: 'rack', title: 'Rack', width: 110, cell: (/** @type {any} */ row) => row.rack ?? '–' },
        ...STATES.map((state, index) => ({ key: state, title: texts.replica[state], width: 104, align: /** @type {const} */ ('end'), cell: (/** @type {any} */ row) => count(row.sums[index]) })),
      ]} />
    <${Table} label="Partitions that are not well" isTall count=${bad.length} row=${(/** @type {number} */ index) => bad[index] ?? null} keyOf=${(/** @type {any} */ row) => `${row.topic}-${row.partition}`}
      empty=${wanted || text ? texts.empty.partitions : texts.empty.worst} columns=${[
        { key: 'name', title: 'Partition', cell: (/** @type {any} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
        { key: 'state', title: 'State', width: 160, cell: (/** @type {any} */ row) => html`<${State} severity=${row.severity} />` },
        { key: 'leader', title: 'Leader', width: 90, cell: (/** @type {any} */ row) => html`<${BrokerLink} id=${row.leader} />` },
        { key: 'replicas', title: 'Replicas', width: 120, cell: (/** @type {any} */ row) => html`<${BrokerList} brokers=${row.replicas} />` },
        { key: 'isr', title: 'ISR', width: 120, cell: (/** @type {any} */ row) => html`<${BrokerList} brokers=${row.isr} />` },
      ]} /></div>`;
}
