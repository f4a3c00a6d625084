// What if: what breaks if a broker is restarted, dies, is drained, or min ISR is raised?
import { html } from '../core/html.js';
import { useRoute } from '../core/data.js';
import { param, setParams } from '../core/url.js';
import { count, plural } from '../core/format.js';
import { BrokerLink, PartitionLink, State } from '../parts/badges.js';
import { Table } from '../parts/table.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { Brokers, Count, Severity } from '../core/types.js' */

const ASKS = /** @type {const} */ ([
  ['restart', 'a broker is restarted'],
  ['lose-broker', 'a broker dies'],
  ['lose-rack', 'a rack is lost'],
  ['drain', 'a broker is drained'],
  ['min-isr', 'min.insync.replicas is'],
]);
const VERDICTS = { safe: 'ok', degraded: 'warning', unsafe: 'critical' };

/** @typedef {{topic: string, partition: number, severity_before: Severity, severity_after: Severity,
 *   leader_before: number, leader_after: number, text: string}} Changed */
/** @typedef {{ask: string, verdict: 'safe'|'degraded'|'unsafe', lines: string[], counts: Count[], partitions: Changed[],
 *   total: number, order: number[]|null}} Answer */

export function WhatIf() {
  const brokers = /** @type {Brokers|null} */ (useRoute('/api/brokers', {}, { isStill: true }).data)?.brokers ?? [];
  const ask = ASKS.find(([name]) => name === param('ask'))?.[0] ?? 'restart';
  const racks = [...new Set(brokers.map((each) => each.rack).filter((each) => each !== null))];
  const first = brokers[0]?.broker;
  const broker = param('broker') ?? (first === undefined ? null : String(first));
  const rack = param('rack') ?? racks[0] ?? null;
  const value = param('value') ?? '2';
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setParams({ [name]: event.currentTarget.value });
  return html`
    <div class="tools">
      <label>if <select value=${ask} onChange=${set('ask')}>${ASKS.map(([name, title]) => html`<option key=${name} value=${name}>${title}</option>`)}</select></label>
      ${['restart', 'lose-broker', 'drain'].includes(ask) && html`<label>broker <select value=${broker ?? ''} onChange=${set('broker')}>${brokers.map((each) => html`<option key=${each.broker} value=${each.broker}>${each.broker}</option>`)}</select></label>`}
      ${ask === 'lose-rack' && html`<label>rack <select value=${rack ?? ''} onChange=${set('rack')}>${racks.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>`}
      ${ask === 'min-isr' && html`<label><span class="spoken">value</span><input class="short" type="number" min="1" max="10" value=${value} onChange=${set('value')} /></label>`}
    </div>
    ${ask === 'lose-rack' && rack === null
      ? html`<p class="empty">The brokers of this cluster name no racks.</p>`
      : broker !== null && html`<${Result} ask=${ask} broker=${broker} rack=${rack} value=${value} />`}`;
}

/** @param {{ask: string, broker: string, rack: string|null, value: string}} props */
function Result({ ask, broker, rack, value }) {
  const params = { ask, broker: ['restart', 'lose-broker', 'drain'].includes(ask) ? broker : null, rack: ask === 'lose-rack' ? rack : null, value: ask === 'min-isr' ? value : null };
  const answer = useRoute('/api/whatif', params, { isStill: true });
  const data = /** @type {Answer|null} */ (answer.data);
  if (!data) return html`<${Waiting} ...${answer} />`;
  const severity = /** @type {Severity} */ (VERDICTS[data.verdict] ?? 'notice');
  return html`
    <section class="health" data-severity=${severity} aria-live="polite"><${State} severity=${severity} text=${data.verdict} />
      <div>${data.lines.map((line) => html`<p key=${line}>${line}</p>`)}</div></section>
    ${data.order && html`<p class="facts">A safe order: <strong>${data.order.join(', ')}</strong></p>`}
    <section class="panel" aria-label="Partitions that change"><h2>${plural(data.total, 'partition')} would change</h2>
      <${Table} label="Partitions that change" isTall=${data.partitions.length > 60} count=${data.partitions.length} row=${(/** @type {number} */ index) => data.partitions[index] ?? null}
        keyOf=${(/** @type {Changed} */ row) => `${row.topic}-${row.partition}`} empty="Nothing would change." columns=${[
          { key: 'name', title: 'Partition', cell: (/** @type {Changed} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
          { key: 'before', title: 'Now', width: 160, cell: (/** @type {Changed} */ row) => html`<${State} severity=${row.severity_before} />` },
          { key: 'after', title: 'Then', width: 160, cell: (/** @type {Changed} */ row) => html`<${State} severity=${row.severity_after} />` },
          { key: 'leader', title: 'Leader', width: 110, cell: (/** @type {Changed} */ row) => html`<${BrokerLink} id=${row.leader_before} /> → <${BrokerLink} id=${row.leader_after} />` },
          { key: 'text', title: 'Why', isWide: true, cell: (/** @type {Changed} */ row) => html`<span title=${row.text}>${row.text}</span>` },
        ]} />
      ${data.total > data.partitions.length && html`<p class="hint">The first ${count(data.partitions.length)} are shown.</p>`}</section>`;
}
