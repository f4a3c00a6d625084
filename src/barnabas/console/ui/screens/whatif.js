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
  ['restart', texts.whatifScreen.aBrokerIsRestarted],
  ['restart-all', texts.whatifScreen.allBrokersAreRestartedOne],
  ['lose-broker', texts.whatifScreen.aBrokerDies],
  ['lose-rack', texts.whatifScreen.aRackIsLost],
  ['lose-disk', texts.whatifScreen.aDiskIsLost],
  ['drain', texts.whatifScreen.aBrokerIsDrained],
  ['min-isr', texts.whatifScreen.minInsyncReplicasOfA],
]);
const OF_BROKER = ['restart', 'lose-broker', 'drain', 'lose-disk'];
/** @type {Record<string, Severity>} */
const VERDICTS = { safe: 'ok', degraded: 'warning', unsafe: 'critical' };
/** @type {Record<string, [string, Severity]>} */
const EFFECTS = {
  offline: ['offline', 'critical'],
  unclean: [texts.whatifScreen.uncleanElection, 'critical'],
  'under-min-isr': [texts.words.underMinIsrLower, 'error'],
  'single-copy': [texts.whatifScreen.oneCopyLeft, 'warning'],
  'at-min-isr': [texts.words.atMinIsrLower, 'warning'],
  'new-leader': [texts.whatifScreen.newLeader, 'notice'],
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
      <label>${texts.whatifScreen.if} <select value=${ask} onChange=${set('ask')}>${ASKS.map(([name, title]) => html`<option key=${name} value=${name}>${title}</option>`)}</select></label>
      ${broker !== null && html`<label>${texts.words.brokerLower} <select value=${broker} onChange=${set('broker')}>${brokers.map((each) => html`<option key=${each.broker} value=${each.broker}>${each.broker}</option>`)}</select></label>`}
      ${ask === 'lose-rack' && html`<label>${texts.words.rackLower} <select value=${asked.rack ?? ''} onChange=${set('rack')}>${racks.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>`}
      ${ask === 'lose-disk' && html`<label>${texts.whatifScreen.directory} <input class="filter" value=${asked.path ?? ''} onChange=${set('path')} spellcheck=${false} /></label>`}
      ${ask === 'min-isr' && html`<label>${texts.whatifScreen.topic} <input value=${asked.topic ?? ''} onChange=${set('topic')} spellcheck=${false} /></label>
        <label>${texts.whatifScreen.value} <input class="short" type="number" min="1" max="10" value=${asked.value} onChange=${set('value')} /></label>`}
    </div>
    ${known ? (missing(asked, racks.length, brokers.length) ?? html`<${Result} key=${ask} asked=${asked} />`) : html`<${Waiting} ...${answer} />`}`;
}

/** @param {Record<string, string|null>} asked @param {number} racks @param {number} brokers */
function missing(asked, racks, brokers) {
  if (asked['ask'] === 'lose-rack' && racks === 0 && brokers > 0) return html`<p class="empty">${texts.whatifScreen.theBrokersOfThisCluster}</p>`;
  if (asked['ask'] === 'min-isr' && !asked['topic']) return html`<p class="empty">${texts.whatifScreen.nameATopic}</p>`;
  if (asked['ask'] === 'lose-disk' && !asked['path']) return html`<p class="empty">${texts.whatifScreen.nameALogDirectoryOf}</p>`;
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
    <section class="health" data-severity=${severity} aria-label=${texts.whatifScreen.verdict} aria-live="polite"><${Mark} severity=${severity} /><strong>${data.verdict}</strong>
      <span class="facts">${data.counts.filter((each) => each.partitions > 0).map(
        (each) => html`<span key=${each.effect} class="fact"><${Mark} severity=${EFFECTS[each.effect]?.[1] ?? 'notice'} /> ${count(each.partitions)} ${EFFECTS[each.effect]?.[0] ?? each.effect}</span>`,
      )}${data.counts.every((each) => each.partitions === 0) && texts.whatifScreen.noPartitionIsWorseThan}</span></section>
    ${data.order && html`<p class="facts">${texts.whatifScreen.aSafeOrder} <strong>${data.order.join(', ')}</strong></p>`}
    ${data.plan && html`<ol class="explanation">${data.plan.map((line) => html`<li key=${line}>${line}</li>`)}</ol>`}
    ${data.moved_bytes !== null && html`<p class="facts">${bytes(data.moved_bytes)} ${texts.whatifScreen.wouldMove}${data.reassignment ? html`; <a href=${asFile(JSON.stringify(data.reassignment, null, 2))} download="reassignment.json">${texts.whatifScreen.thePlanAsJson}</a> ${texts.whatifScreen.for} <span class="code">${texts.whatifScreen.barnabasReassign}</span>` : ''}.</p>`}
    ${data.notes.length > 0 && html`<ul class="hint">${data.notes.map((line) => html`<li key=${line}>${line}</li>`)}</ul>`}
    ${stuck.length > 0 && html`<p class="warning"><strong>${plural(stuck.length, texts.nouns.partition)} ${texts.whatifScreen.cannotMove}</strong> ${stuck.slice(0, 5).map((each) => `${each.topic}-${each.partition} (${each.reason})`).join(', ')}${stuck.length > 5 ? ' …' : ''}</p>`}
    <p class="facts">${data.changed > 0 && html`<a class="button" href=${href('/map', { ...asked, at: atMs() })}>${texts.whatifScreen.showItOnTheMap}</a>`}
      ${reassigned(data).length > 0 && html`<button onClick=${() => {
        setPlan({ rows: reassigned(data), source: texts.whatifScreen.drainOfBroker(asked['broker'] ?? '') });
        go(href('/moves'));
      }}>${texts.whatifScreen.openThePlanInMoves}</button>`}</p>
    <h2>${count(data.changed)} ${texts.words.ofLower} ${plural(data.total, texts.nouns.partition)} ${texts.whatifScreen.wouldChange}</h2>
    <${Table} label=${texts.whatifScreen.partitionsThatChange} isTall=${data.partitions.length > 60} count=${data.partitions.length} row=${(/** @type {number} */ index) => data.partitions[index] ?? null}
      keyOf=${(/** @type {Outcome} */ row) => `${row.topic}-${row.partition}`} empty=${texts.whatifScreen.noPartitionWouldBeWorse} columns=${[
        { key: 'name', title: texts.words.partition, cell: (/** @type {Outcome} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
        { key: 'effects', title: texts.whatifScreen.then, width: 190, cell: (/** @type {Outcome} */ row) => html`<${Effects} effects=${row.effects} />` },
        { key: 'leader', title: texts.words.leader, width: 110, cell: (/** @type {Outcome} */ row) => `${named(row.leader_before)}${row.leader_before === row.leader_after ? '' : ` → ${named(row.leader_after)}`}` },
        { key: 'isr', title: texts.words.isr, width: 150, cell: (/** @type {Outcome} */ row) => `${listed(row.isr_before)} → ${listed(row.isr_after)}` },
        { key: 'text', title: texts.whatifScreen.why, isWide: true, cell: (/** @type {Outcome} */ row) => html`<span title=${row.text}>${row.text}</span>` },
      ]} />
    ${data.changed > data.partitions.length && html`<p class="hint">${texts.words.theFirst} ${count(data.partitions.length)} ${texts.words.areShownLower}</p>`}`;
}

/** The gravest effect in words, the others by their number. @param {{effects: string[]}} props */
function Effects({ effects }) {
  const [first, ...others] = effects;
  if (first === undefined) return html`<span class="nothing">${texts.whatifScreen.noWorse}</span>`;
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
