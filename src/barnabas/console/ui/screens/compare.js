// Compare: what differs between two moments?
import { html } from '../core/html.js';
import { hasHistory, session } from '../core/api.js';
import { serverNow, useRoute, useStatus } from '../core/data.js';
import { atMs, changed, param, setParams } from '../core/url.js';
import { bytes, count, duration, moment, plural, brokers as listed } from '../core/format.js';
import { texts } from '../core/texts.js';
import { Mark, PartitionLink, State } from '../parts/badges.js';
import { Table } from '../parts/table.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { Comparison, Changed } from '../core/types.js' */

const STEPS = /** @type {const} */ ([
  [60_000, '1 min'],
  [300_000, '5 min'],
  [3_600_000, '1 h'],
  [86_400_000, '1 d'],
]);

export function Compare() {
  const from = Number(param('from') ?? Number.NaN);
  const first = session.value?.history?.first_ms ?? 0;
  const end = atMs() ?? serverNow();
  useStatus('compare');
  if (!hasHistory()) return html`<p class="empty">${texts.waiting.noHistory}</p>`;
  return html`
    <div class="tools" role="group" aria-label=${texts.compareScreen.firstMoment}>
      <span>${texts.compareScreen.firstMomentLower} <strong>${Number.isFinite(from) ? moment(from) : 'none'}</strong></span>
      ${STEPS.map(([ms, name]) => html`<button key=${ms} disabled=${end - ms < first} onClick=${() => setParams({ from: Math.round(end - ms) })}>${name} ${texts.compareScreen.beforeTheSecond}</button>`)}
      <button onClick=${() => setParams({ from: first })}>${texts.compareScreen.beginOfTheHistory}</button>
      ${atMs() !== null && html`<a class="button" href=${changed({ from: atMs(), at: null })}>${texts.compareScreen.takeTheShownMoment}</a>`}
      <span class="grow"></span><span>${texts.compareScreen.secondMoment} <strong>${atMs() === null ? 'now' : moment(atMs())}</strong></span>
    </div>
    ${Number.isFinite(from) ? html`<${Differences} from=${from} />` : html`<p class="empty">${texts.compareScreen.chooseTheFirstMomentThe}</p>`}`;
}

/** @param {{from: number}} props */
function Differences({ from }) {
  const answer = useRoute('/api/compare', { from }, { isStill: true });
  const data = /** @type {Comparison|null} */ (answer.data);
  if (!data) return html`<${Waiting} ...${answer} />`;
  const [before, after] = data.controller;
  return html`
    <section class="summary" aria-label=${texts.words.summary}>
      <span><strong>${count(data.changed)}</strong> ${data.changed === 1 ? texts.compareScreen.partitionDiffers : texts.compareScreen.partitionsDiffer}</span><span><strong>${count(data.same)}</strong> ${texts.compareScreen.doNot}</span>
      <span>${duration(Math.abs(data.second.time_ms - data.first.time_ms))} ${texts.compareScreen.lieBetween}</span>
      ${before !== after && html`<span>${texts.words.controllerLower} <strong>${leaderName(before)} → ${leaderName(after)}</strong></span>`}
      <span class="grow"></span>${atMs() === null && html`<button onClick=${answer.reload}>${texts.compareScreen.compareAgain}</button>`}</section>
    ${[data.first, data.second].map((each) => each.problem && html`<p key=${each.time_ms} class="warning" role="status">${moment(each.time_ms)}: ${each.problem}</p>`)}
    <div class="columns">
      <section class="panel" aria-label=${texts.words.partitionsByState}><h2>${texts.words.partitionsByState}</h2>
        <div class="table-box" role="region" tabindex="0" aria-label=${texts.compareScreen.partitionsByStateScrollable}><table><thead><tr><th scope="col">${texts.words.state}</th><th scope="col" class="end">${texts.compareScreen.first}</th><th scope="col" class="end">${texts.compareScreen.second}</th></tr></thead>
          <tbody>${data.counts.map((each) => html`<tr key=${each.severity}><th scope="row"><${Mark} severity=${each.severity} /> ${texts.severity[each.severity]}</th><td class="end">${count(each.first)}</td>
            <td class="end">${each.first === each.second ? count(each.second) : html`<strong>${count(each.second)}</strong>`}</td></tr>`)}</tbody></table></div></section>
      <section class="panel" aria-label=${texts.compareScreen.brokersAndTopics}><h2>${texts.compareScreen.brokersAndTopics}</h2>
        ${data.brokers.length + data.created.length + data.deleted.length + data.recreated.length === 0
          ? html`<p class="empty">${texts.compareScreen.theyAreTheSame}</p>`
          : html`<ul class="explanation">
              ${data.brokers.map((each) => html`<li key=${each.broker}>${texts.words.brokerLower} ${each.broker}: ${each.first} → ${each.second}</li>`)}
              ${named('created', data.created)}${named('deleted', data.deleted)}${named(texts.compareScreen.createdAgainUnderTheirName, data.recreated)}</ul>`}</section>
    </div>
    <${Table} label=${texts.compareScreen.partitionsThatDiffer} count=${data.partitions.length} isTall=${data.partitions.length > 60} row=${(/** @type {number} */ index) => data.partitions[index] ?? null}
      keyOf=${(/** @type {Changed} */ row) => `${row.topic}-${row.partition}`} empty=${texts.compareScreen.noPartitionDiffers} columns=${[
        { key: 'name', title: texts.words.partition, cell: (/** @type {Changed} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
        { key: 'first', title: texts.compareScreen.first, width: 150, isWide: true, cell: (/** @type {Changed} */ row) => html`<${State} severity=${row.severity[0]} />` },
        { key: 'second', title: texts.compareScreen.second, width: 150, cell: (/** @type {Changed} */ row) => html`<${State} severity=${row.severity[1]} />` },
        { key: 'leader', title: texts.words.leader, width: 110, cell: (/** @type {Changed} */ row) => arrow(...row.leader.map(leaderName)) },
        { key: 'isr', title: texts.words.isr, width: 150, cell: (/** @type {Changed} */ row) => arrow(...row.isr.map(listed)) },
        { key: 'replicas', title: texts.words.replicas, width: 150, isWide: true, cell: (/** @type {Changed} */ row) => arrow(...row.replicas.map(listed)) },
        { key: 'size', title: texts.words.size, width: 140, isWide: true, align: /** @type {const} */ ('end'), cell: (/** @type {Changed} */ row) => arrow(...row.size_bytes.map(bytes)) },
      ]} />
    ${data.changed > data.partitions.length && html`<p class="hint">${texts.words.theFirst} ${count(data.partitions.length)} ${texts.words.areShownLower}</p>`}`;
}

/** @param {string} verb @param {string[]} names */
function named(verb, names) {
  if (!names.length) return null;
  const more = names.length > 10 ? texts.compareScreen.andMoreOf(count(names.length - 10)) : '';
  return html`<li>${plural(names.length, texts.nouns.topic)} ${verb}: ${names.slice(0, 10).join(', ')}${more}</li>`;
}

/** @param {number} broker */
function leaderName(broker) {
  return broker < 0 ? 'none' : String(broker);
}

/** @param {string[]} both */
function arrow(...both) {
  return both[0] === both[1] ? html`<span class="muted">${both[0]}</span>` : `${both[0]} → ${both[1]}`;
}
