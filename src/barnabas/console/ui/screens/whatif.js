// What if: what breaks if brokers are restarted, die or are drained, a rack or a disk is lost, min ISR is raised?
import { html } from '../core/html.js';
import { useRoute } from '../core/data.js';
import { asFile, setPlan } from '../core/plan.js';
import { atMs, go, href, param, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { bytes, count, plural, brokers as listed } from '../core/format.js';
import { Mark, PartitionLink, State } from '../parts/badges.js';
import { Table } from '../parts/table.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { Brokers, Severity } from '../core/types.js' */
/** @import { PlanRow } from '../core/plan.js' */

const ASKS = /** @type {const} */ ([
  ['restart', 'a broker is restarted'],
  ['restart-all', 'all brokers are restarted, one by one'],
  ['lose-broker', 'a broker dies'],
  ['lose-rack', 'a rack is lost'],
  ['lose-disk', 'a disk is lost'],
  ['drain', 'a broker is drained'],
  ['min-isr', 'min.insync.replicas of a topic is'],
]);
const OF_BROKER = ['restart', 'lose-broker', 'drain', 'lose-disk'];
/** @type {Record<string, Severity>} */
const VERDICTS = { safe: 'ok', degraded: 'warning', unsafe: 'critical' };
/** @type {Record<string, [string, Severity]>} */
const EFFECTS = {
  offline: ['offline', 'critical'],
  unclean: ['unclean election', 'critical'],
  'under-min-isr': ['under min ISR', 'error'],
  'single-copy': ['one copy left', 'warning'],
  'at-min-isr': ['at min ISR', 'warning'],
  'new-leader': ['new leader', 'notice'],
  'under-replicated': ['under-replicated', 'notice'],
};

/** @typedef {{topic: string, partition: number, effects: string[], already: string[], leader_before: number,
 *   leader_after: number, isr_before: number[], isr_after: number[], text: string}} Outcome */
/** @typedef {{ask: string, verdict: 'safe'|'degraded'|'unsafe', lines: string[], notes: string[],
 *   counts: {effect: string, partitions: number}[], partitions: Outcome[], changed: number, total: number,
 *   order: number[]|null, plan: string[]|null, moved_bytes: number|null, reassignment: unknown,
 *   stuck: {topic: string, partition: number, reason: string}[]|null}} Answer */

export function WhatIf() {
  const answer = useRoute('/api/brokers', {}, { isStill: true });
  const known = /** @type {Brokers|null} */ (answer.data);
  const brokers = known?.brokers ?? [];
  const ask = ASKS.find(([name]) => name === param('ask'))?.[0] ?? 'restart';
  const racks = [...new Set(brokers.map((each) => each.rack).filter((each) => each !== null))];
  const first = brokers[0]?.broker;
  const broker = OF_BROKER.includes(ask) ? (param('broker') ?? (first === undefined ? null : String(first))) : null;
  const asked = {
    ask,
    broker,
    rack: ask === 'lose-rack' ? (param('rack') ?? racks[0] ?? null) : null,
    path: ask === 'lose-disk' ? param('path') : null,
    topic: ask === 'min-isr' ? param('topic') : null,
    value: ask === 'min-isr' ? (param('value') ?? '2') : null,
  };
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setParams({ [name]: event.currentTarget.value });
  return html`
    <div class="tools">
      <label>if <select value=${ask} onChange=${set('ask')}>${ASKS.map(([name, title]) => html`<option key=${name} value=${name}>${title}</option>`)}</select></label>
      ${broker !== null && html`<label>broker <select value=${broker} onChange=${set('broker')}>${brokers.map((each) => html`<option key=${each.broker} value=${each.broker}>${each.broker}</option>`)}</select></label>`}
      ${ask === 'lose-rack' && html`<label>rack <select value=${asked.rack ?? ''} onChange=${set('rack')}>${racks.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>`}
      ${ask === 'lose-disk' && html`<label>directory <input class="filter" value=${asked.path ?? ''} onChange=${set('path')} spellcheck=${false} /></label>`}
      ${ask === 'min-isr' && html`<label>topic <input value=${asked.topic ?? ''} onChange=${set('topic')} spellcheck=${false} /></label>
        <label>value <input class="short" type="number" min="1" max="10" value=${asked.value} onChange=${set('value')} /></label>`}
    </div>
    ${known ? (missing(asked, racks.length, brokers.length) ?? html`<${Result} key=${ask} asked=${asked} />`) : html`<${Waiting} ...${answer} />`}`;
}

/** @param {Record<string, string|null>} asked @param {number} racks @param {number} brokers */
function missing(asked, racks, brokers) {
  if (asked['ask'] === 'lose-rack' && racks === 0 && brokers > 0) return html`<p class="empty">The brokers of this cluster name no racks.</p>`;
  if (asked['ask'] === 'min-isr' && !asked['topic']) return html`<p class="empty">Name a topic.</p>`;
  if (asked['ask'] === 'lose-disk' && !asked['path']) return html`<p class="empty">Name a log directory of the broker, as its page lists them.</p>`;
  return brokers === 0 ? html`<p class="empty">${texts.empty.brokers}</p>` : null;
}

/** @param {{asked: Record<string, string|null>}} props */
function Result({ asked }) {
  const answer = useRoute('/api/whatif', asked, { screen: 'whatif', isOfStates: true });
  const data = /** @type {Answer|null} */ (answer.data);
  if (!data) return html`<${Waiting} ...${answer} />`;
  const severity = VERDICTS[data.verdict] ?? 'notice';
  const stuck = data.stuck ?? [];
  return html`
    <section class="health" data-severity=${severity} aria-label="Verdict" aria-live="polite"><${Mark} severity=${severity} /><strong>${data.verdict}</strong>
      <span class="facts">${data.counts.filter((each) => each.partitions > 0).map(
        (each) => html`<span key=${each.effect} class="fact"><${Mark} severity=${EFFECTS[each.effect]?.[1] ?? 'notice'} /> ${count(each.partitions)} ${EFFECTS[each.effect]?.[0] ?? each.effect}</span>`,
      )}${data.counts.every((each) => each.partitions === 0) && 'no partition is worse than before'}</span></section>
    ${data.order && html`<p class="facts">A safe order: <strong>${data.order.join(', ')}</strong></p>`}
    ${data.plan && html`<ol class="explanation">${data.plan.map((line) => html`<li key=${line}>${line}</li>`)}</ol>`}
    ${data.moved_bytes !== null && html`<p class="facts">${bytes(data.moved_bytes)} would move${data.reassignment ? html`; <a href=${asFile(JSON.stringify(data.reassignment, null, 2))} download="reassignment.json">the plan as JSON</a> for <span class="code">barnabas reassign</span>` : ''}.</p>`}
    ${data.notes.length > 0 && html`<ul class="hint">${data.notes.map((line) => html`<li key=${line}>${line}</li>`)}</ul>`}
    ${stuck.length > 0 && html`<p class="warning"><strong>${plural(stuck.length, 'partition')} cannot move:</strong> ${stuck.slice(0, 5).map((each) => `${each.topic}-${each.partition} (${each.reason})`).join(', ')}${stuck.length > 5 ? ' …' : ''}</p>`}
    <p class="facts">${data.changed > 0 && html`<a class="button" href=${href('/map', { ...asked, at: atMs() })}>Show it on the map</a>`}
      ${reassigned(data).length > 0 && html`<button onClick=${() => {
        setPlan({ rows: reassigned(data), source: `drain of broker ${asked['broker'] ?? ''}` });
        go(href('/moves'));
      }}>Open the plan in Moves</button>`}</p>
    <h2>${count(data.changed)} of ${plural(data.total, 'partition')} would change</h2>
    <${Table} label="Partitions that change" isTall=${data.partitions.length > 60} count=${data.partitions.length} row=${(/** @type {number} */ index) => data.partitions[index] ?? null}
      keyOf=${(/** @type {Outcome} */ row) => `${row.topic}-${row.partition}`} empty="No partition would be worse." columns=${[
        { key: 'name', title: 'Partition', cell: (/** @type {Outcome} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
        { key: 'effects', title: 'Then', width: 190, cell: (/** @type {Outcome} */ row) => html`<${Effects} effects=${row.effects} />` },
        { key: 'leader', title: 'Leader', width: 110, cell: (/** @type {Outcome} */ row) => `${named(row.leader_before)}${row.leader_before === row.leader_after ? '' : ` → ${named(row.leader_after)}`}` },
        { key: 'isr', title: 'ISR', width: 150, cell: (/** @type {Outcome} */ row) => `${listed(row.isr_before)} → ${listed(row.isr_after)}` },
        { key: 'text', title: 'Why', isWide: true, cell: (/** @type {Outcome} */ row) => html`<span title=${row.text}>${row.text}</span>` },
      ]} />
    ${data.changed > data.partitions.length && html`<p class="hint">The first ${count(data.partitions.length)} are shown.</p>`}`;
}

/** The gravest effect in words, the others by their number. @param {{effects: string[]}} props */
function Effects({ effects }) {
  const [first, ...others] = effects;
  if (first === undefined) return html`<span class="nothing">no worse</span>`;
  const text = others.map((each) => EFFECTS[each]?.[0] ?? each).join(', ');
  return html`<span title=${text}><${State} severity=${EFFECTS[first]?.[1] ?? 'notice'} text=${EFFECTS[first]?.[0] ?? first} />${
    others.length > 0 && html` <small class="muted">+ ${text}</small>`
  }</span>`;
}

/** @param {Answer} answer @returns {PlanRow[]} */
function reassigned(answer) {
  const found = /** @type {{partitions?: PlanRow[]}|null} */ (answer.reassignment);
  return (found?.partitions ?? []).map(({ topic, partition, replicas }) => ({ topic, partition, replicas }));
}

/** @param {number} broker */
function named(broker) {
  return broker < 0 ? 'none' : String(broker);
}
