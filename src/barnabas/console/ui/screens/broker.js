// Broker: how is it, and what does it hold?
import { html } from '../core/html.js';
import { clocks, useNow, useRoute } from '../core/data.js';
import { atMs, changed, href, param } from '../core/url.js';
import { texts } from '../core/texts.js';
import { bytes, count, duration, plural } from '../core/format.js';
import { Mark, PartitionLink, State } from '../parts/badges.js';
import { Configs } from '../parts/configs.js';
import { Table, sorted } from '../parts/table.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { BrokerPage, Severity } from '../core/types.js' */

/** @typedef {BrokerPage['hosted'][number]} Held */
/** @type {Severity[]} */
const RANK = ['ok', 'notice', 'warning', 'error', 'critical'];
const VALUES = {
  name: (/** @type {Held} */ row) => `${row.topic} ${row.partition}`,
  severity: (/** @type {Held} */ row) => RANK.indexOf(row.severity),
  role: (/** @type {Held} */ row) => Number(row.is_leader) * 2 + Number(row.in_sync),
  lag: (/** @type {Held} */ row) => row.lag,
  size: (/** @type {Held} */ row) => row.size_bytes,
};
const TABS = /** @type {const} */ ([
  ['replicas', texts.words.replicas],
  ['directories', texts.brokerScreen.directories],
  ['configs', texts.words.configuration],
]);

export function BrokerScreen() {
  const id = Number(param('id') ?? -1);
  const answer = useRoute('/api/broker', { id }, { screen: 'broker', live: { id }, merge: withAsked });
  const now = useNow(1000) + clocks.value.ahead;
  const data = /** @type {BrokerPage|null} */ (answer.data);
  if (!data || data.broker !== id) return html`<${Waiting} ...${answer} />`;
  const tab = TABS.find(([key]) => key === param('tab'))?.[0] ?? 'replicas';
  const age = data.answered_ms === null ? data.age_ms : now - data.answered_ms;
  return html`
    <section class="summary" aria-label=${texts.words.summary}>
      ${data.problem === null ? html`<span class="up">${texts.words.answers}</span>` : html`<span class="broker-problem">${atMs() !== null || age === null ? 'silent' : texts.words.silentForOf(duration(age))}: ${data.problem}</span>`}
      ${data.is_controller && html`<span class="chip">${texts.words.controllerLower}</span>`}
      <span class="code">${data.host}:${data.port}</span>
      ${data.rack && html`<span>${texts.words.rackLower} <strong>${data.rack}</strong></span>`}
      <span>${texts.brokerScreen.leads} <strong>${count(data.leaders)}</strong></span><span>${texts.words.replicasLower} <strong>${count(data.replicas_total)}</strong></span>
      <span>${texts.words.outOfSyncLower} <strong class=${data.out_of_sync ? 'bad' : ''}>${count(data.out_of_sync)}</strong></span><span><strong>${bytes(data.size_bytes)}</strong></span>
      <span class="grow"></span>
      <a class="button" href=${href('/timeline', { broker: id })}>${texts.words.events}</a>
      <a class="button" href=${href('/whatif', { ask: 'restart', broker: id })}>${texts.brokerScreen.isARestartSafe}</a>
      <a class="button" href=${href('/whatif', { ask: 'drain', broker: id })}>${texts.brokerScreen.drain}</a>
    </section>
    <p class="facts" aria-label=${texts.words.partitionsByState}>${[...RANK].reverse().map((each) =>
      data.by_severity?.[each] ? html`<span key=${each} class="fact"><${Mark} severity=${each} /> ${count(data.by_severity[each])} ${texts.severity[each]}</span>` : null,
    )}</p>
    <div class="tabs" role="tablist" aria-label=${texts.brokerScreen.partsOfTheBroker}>${TABS.map(
      ([key, title]) => html`<a key=${key} role="tab" aria-selected=${tab === key} href=${changed({ tab: key === 'replicas' ? null : key })}>${title}</a>`,
    )}</div>
    ${tab === 'replicas' && html`<${Held} data=${data} />`}
    ${tab === 'directories' && html`<${Directories} data=${data} />`}
    ${tab === 'configs' && html`<${Configs} configs=${data.configs} problem=${data.configs_problem} kind="broker" name=${id} reload=${answer.reload} />`}`;
}

/**
 * Returns the broker as the stream sends it, with the directories and settings that it was asked for.
 * @param {BrokerPage} old
 * @param {BrokerPage} streamed
 */
function withAsked(old, streamed) {
  return { ...old, ...streamed };
}

/** @param {{data: BrokerPage}} props */
function Held({ data }) {
  const { rows, sort, isDown } = sorted(data.hosted, VALUES, 'severity', true);
  return html`<${Table} label=${texts.brokerScreen.replicasOfThisBroker} isTall=${rows.length > 60} count=${rows.length} row=${(/** @type {number} */ index) => rows[index] ?? null}
      keyOf=${(/** @type {Held} */ row) => `${row.topic}-${row.partition}`} sort=${sort} isDown=${isDown} empty=${texts.brokerScreen.thisBrokerHoldsNoReplicas}
      markOf=${(/** @type {Held} */ row) => `${row.severity} ${row.in_sync} ${row.is_leader}`} columns=${[
        { key: 'name', title: texts.words.partition, sort: 'name', cell: (/** @type {Held} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
        { key: 'severity', title: texts.words.state, width: 170, sort: 'severity', isFirstDown: true, cell: (/** @type {Held} */ row) => html`<${State} severity=${row.severity} />` },
        { key: 'role', title: texts.brokerScreen.thisReplica, width: 120, sort: 'role', isFirstDown: true, cell: (/** @type {Held} */ row) => (row.is_leader ? 'leader' : row.in_sync ? texts.words.inSyncLower : html`<span class="bad">${texts.words.outOfSyncLower}</span>`) },
        { key: 'lag', title: texts.words.lag, width: 90, sort: 'lag', isFirstDown: true, align: /** @type {const} */ ('end'), cell: (/** @type {Held} */ row) => (row.is_leader ? '–' : count(row.lag)) },
        { key: 'size', title: texts.words.size, width: 100, sort: 'size', isFirstDown: true, align: /** @type {const} */ ('end'), cell: (/** @type {Held} */ row) => bytes(row.size_bytes) },
      ]} />
    ${data.replicas_total > rows.length && html`<p class="hint">${texts.words.theFirst} ${count(rows.length)} ${texts.words.ofLower} ${plural(data.replicas_total, texts.nouns.replica)}${texts.brokerScreen.theWorstFirst}</p>`}`;
}

/** @param {{data: BrokerPage}} props */
function Directories({ data }) {
  if (!data.directories) return html`<p class="empty">${data.directories_problem ?? texts.empty.directories}</p>`;
  const several = data.directories.length > 1 && atMs() === null;
  return html`<ul class="cards">${data.directories.map((each) => {
    const used = each.total_bytes && each.usable_bytes !== null ? 1 - each.usable_bytes / each.total_bytes : null;
    return html`<li key=${each.path} class="panel"><span class="code wrap">${each.path}</span>
      ${each.error && html`<strong class="bad">${each.error}</strong>`}
      <span>${each.replicas === null ? '?' : plural(each.replicas, texts.nouns.replica)}, ${bytes(each.size_bytes)}</span>
      ${several && html`<a href=${href('/moves', { broker: data.broker, from: each.path })}>${texts.words.moveItsReplicas}</a>`}
      ${used !== null && html`<progress max="1" value=${used} aria-label=${texts.brokerScreen.diskOf(each.path)}></progress>
        <span>${texts.brokerScreen.free(bytes(each.usable_bytes), bytes(each.total_bytes), Math.round(used * 100))}</span>`}</li>`;
  })}</ul>`;
}
