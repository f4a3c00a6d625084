// Topic: each partition's log size, leader, preferred leader, replicas, ISR, OSR, ELR, offsets and lag.
import { html } from '../core/html.js';
import { address, can } from '../core/api.js';
import { useRoute } from '../core/data.js';
import { atMs, changed, href, param, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { bytes, count, plural } from '../core/format.js';
import { BrokerLink, BrokerList, Mark, Replicas, State } from '../parts/badges.js';
import { Configs } from '../parts/configs.js';
import { Table, sorted } from '../parts/table.js';
import { Waiting } from '../parts/state_of_answer.js';
import { TopicActions } from '../parts/topic_dialogs.js';
import { RateChart } from '../pictures/rates.js';
import { TopicLanes } from '../parts/topic_lanes.js';
/** @import { Column } from '../parts/table.js' */
/** @import { Topic, Partition, Severity } from '../core/types.js' */

const TALL_FROM = 60;
/** @type {Severity[]} */
const RANK = ['ok', 'notice', 'warning', 'error', 'critical'];

/** @type {Column<Partition>[]} */
const COLUMNS = [
  { key: 'partition', title: texts.words.partition, width: 96, sort: 'partition', cell: (row) => html`<a class="name" href=${href('/partition', { topic: row.topic, partition: row.partition })}
    aria-label=${texts.topicScreen.partitionOf(row.partition)}>${row.partition}</a>` },
  { key: 'state', title: texts.words.state, width: 130, sort: 'state', isFirstDown: true, cell: (row) => html`<span title=${row.cause?.text ?? ''}><${State} severity=${row.severity} text=${row.state} /></span>` },
  { key: 'size', title: texts.topicScreen.logSize, hint: texts.topicScreen.ofTheLeadersLog, width: 78, sort: 'size', isFirstDown: true, align: 'end', cell: (row) => bytes(row.size_bytes) },
  { key: 'leader', title: texts.words.leader, width: 66, sort: 'leader', cell: (row) => html`<${BrokerLink} id=${row.leader} />` },
  { key: 'preferred', title: texts.topicScreen.preferred, hint: texts.topicScreen.theFirstOfTheReplicas, width: 86, cell: (row) =>
    row.preferred === row.leader ? html`<span title=${texts.topicScreen.itLeads}>${row.preferred} ✓</span>` : html`<span class="bad" title=${texts.topicScreen.anotherBrokerLeads}>${row.preferred} ≠</span>` },
  { key: 'replicas', title: texts.words.replicas, width: 98, cell: (row) => html`<${Replicas} partition=${row} />` },
  { key: 'isr', title: texts.words.isr, hint: texts.topicScreen.inSyncReplicas, width: 66, sort: 'isr', cell: (row) => html`<${BrokerList} brokers=${row.isr} />` },
  { key: 'osr', title: texts.words.osr, hint: texts.topicScreen.outOfSyncReplicas, width: 52, cell: (row) => html`<${BrokerList} brokers=${row.osr} tone="bad" />` },
  { key: 'elr', title: texts.words.elr, hint: texts.topicScreen.eligibleLeaderReplicas, width: 48, cell: (row) => html`<${BrokerList} brokers=${row.elr} />` },
  { key: 'start', title: texts.words.start, hint: texts.topicScreen.logStartOffset, width: 70, align: 'end', cell: (row) => count(row.start_offset) },
  { key: 'end', title: texts.words.end, hint: texts.topicScreen.highWatermarkAndTheLog, width: 84, sort: 'end', isFirstDown: true, align: 'end', cell: (row) => {
    const isSame = row.end_offset === row.high_watermark || row.end_offset === null || row.high_watermark === null;
    return html`<span title=${texts.topicScreen.highWatermarkLogEnd(count(row.high_watermark), count(row.end_offset))}>${count(row.high_watermark ?? row.end_offset)}${!isSame && html`<small> /${count(row.end_offset)}</small>`}</span>`;
  } },
  { key: 'lag', title: texts.topicScreen.replicaLag, hint: texts.topicScreen.recordsThatAFollowerLacks, width: 92, sort: 'lag', isFirstDown: true, cell: (row) => html`<${Lag} partition=${row} />` },
];

/** @param {{partition: Partition}} props */
function Lag({ partition }) {
  const followers = (partition.details ?? []).filter((each) => !each.is_leader);
  if (!followers.length) return html`<span class="nothing">–</span>`;
  const text = followers.map((each) => `${each.broker}: ${count(each.lag)}`).join('  ');
  const isBehind = followers.some((each) => each.lag === null || each.lag > 0);
  return html`<span class=${isBehind ? 'lag' : 'lag nothing'} title=${text}>${isBehind ? text : 'none'}</span>`;
}

/** @param {Partition} row */
function worstLag(row) {
  const lags = (row.details ?? []).filter((each) => !each.is_leader).map((each) => each.lag ?? Number.MAX_SAFE_INTEGER);
  return lags.length ? Math.max(...lags) : -1;
}

const VALUES = {
  partition: (/** @type {Partition} */ row) => row.partition,
  state: (/** @type {Partition} */ row) => RANK.indexOf(row.severity),
  size: (/** @type {Partition} */ row) => row.size_bytes,
  leader: (/** @type {Partition} */ row) => row.leader,
  isr: (/** @type {Partition} */ row) => row.isr.length,
  end: (/** @type {Partition} */ row) => row.end_offset ?? row.high_watermark,
  lag: worstLag,
};
const TABS = /** @type {const} */ ([
  ['partitions', texts.words.partitions],
  ['history', texts.words.history],
  ['groups', texts.words.groups],
  ['configs', texts.words.configuration],
]);

export function TopicScreen() {
  const name = param('name') ?? '';
  const answer = useRoute('/api/topic', { name }, { screen: 'topic', live: { name }, merge: withAsked });
  const data = /** @type {Topic|null} */ (answer.data);
  if (!data || data.topic !== name) return html`<${Waiting} ...${answer} />`;
  const tab = TABS.find(([key]) => key === param('tab'))?.[0] ?? 'partitions';
  return html`
    ${answer.error && html`<p class="warning" role="status">${answer.error.message}</p>`}
    <section class="summary" aria-label=${texts.words.summary}>
      <${State} severity=${data.severity} />
      <span><strong>${count(data.total)}</strong> ${data.total === 1 ? 'partition' : 'partitions'}</span>
      <span>${texts.topicScreen.replicationFactor} <strong>${count(data.replication)}</strong></span>
      <span>${texts.topicScreen.minIsr} <strong>${count(data.min_isr)}</strong></span>
      <span><strong>${bytes(data.size_bytes)}</strong></span>
      <span><strong>${count(data.messages)}</strong> ${data.messages === 1 ? 'record' : 'records'}</span>
      ${data.is_internal && html`<span class="chip plain">${texts.words.internal}</span>`}
      <span class="grow"></span>
      <a class="button" href=${href('/messages', { topic: name })}>${texts.words.messages}</a>
      <a class="button" href=${address('/api/topic', { name, format: 'csv', at: atMs() })} download>${texts.words.csv}</a>
      ${can('operator') && html`<${TopicActions} topic=${data} />`}
    </section>
    <div class="tabs" role="tablist" aria-label=${texts.topicScreen.partsOfTheTopic}>${TABS.map(
      ([key, title]) => html`<a key=${key} role="tab" aria-selected=${tab === key} href=${changed({ tab: key === 'partitions' ? null : key })}>${title}${
        key === 'groups' && data.groups ? ` (${data.groups.length})` : ''
      }</a>`,
    )}</div>
    ${tab === 'partitions' && html`<${Partitions} topic=${data} />
      <${RateChart} subject=${name} isPast=${atMs() !== null}
        end=${sum(data.partitions.map((each) => each.end_offset ?? each.high_watermark))}
        below=${data.partitions.filter((each) => each.severity !== 'ok').length} />`}
    ${tab === 'history' && html`<${TopicLanes} topic=${data} />`}
    ${tab === 'groups' && html`<${Groups} topic=${data} />`}
    ${tab === 'configs' && html`<${Configs} configs=${data.configs} problem=${data.configs_problem} kind="topic" name=${name} reload=${answer.reload} />`}`;
}

/**
 * Returns the topic as the stream sends it, with the settings that a broker was asked for, and with the partitions of a
 * large topic that the stream leaves out.
 * @param {Topic} old
 * @param {Topic} streamed
 * @returns {Topic}
 */
function withAsked(old, streamed) {
  const others = old.partitions.slice(streamed.partitions.length, streamed.total);
  const { configs, configs_problem } = old;
  return { ...streamed, configs, configs_problem, partitions: [...streamed.partitions, ...others] };
}

/** @param {{topic: Topic}} props */
function Partitions({ topic }) {
  const wanted = param('state') ?? '';
  const only = param('only');
  const present = new Set(topic.partitions.map((each) => each.severity));
  const chosen = topic.partitions.filter(
    (each) => (!wanted || each.severity === wanted) && (only === null || String(each.leader) === only || each.replicas.map(String).includes(only)),
  );
  const { rows, sort, isDown } = sorted(chosen, VALUES, 'partition');
  const silentBroker = [...new Set(topic.partitions.flatMap((each) => each.replicas))].sort((one, other) => one - other);
  return html`
    ${(present.size > 1 || wanted || only !== null || topic.partitions.length > 12) && html`<div class="tools">
      <label>${texts.words.stateLower} <select value=${wanted} onChange=${(/** @type {any} */ event) => setParams({ state: event.currentTarget.value })}>
        <option value="">${texts.words.anyLower}</option>${[...RANK].reverse().map((each) => html`<option key=${each} value=${each}>${texts.severity[each]}</option>`)}</select></label>
      <label>${texts.topicScreen.onBroker} <select value=${only ?? ''} onChange=${(/** @type {any} */ event) => setParams({ only: event.currentTarget.value })}>
        <option value="">${texts.words.anyLower}</option>${silentBroker.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
      <span class="found" role="status">${chosen.length === topic.partitions.length ? '' : texts.words.ofOf(count(chosen.length), plural(topic.partitions.length, texts.nouns.partition))}</span>
    </div>`}
    <${Table} label=${texts.words.partitions} columns=${COLUMNS} count=${rows.length} row=${(/** @type {number} */ index) => rows[index] ?? null}
      keyOf=${(/** @type {Partition} */ row) => String(row.partition)} isTall=${rows.length > TALL_FROM} sort=${sort} isDown=${isDown} minWidth=${960}
      markOf=${(/** @type {Partition} */ row) => `${row.state} ${row.leader} ${row.isr.join()}`} empty=${texts.empty.partitions} />
    ${topic.total > topic.partitions.length && html`<p class="hint">${texts.words.theFirst} ${count(topic.partitions.length)} ${texts.words.ofLower} ${count(topic.total)} ${texts.topicScreen.partitionsAreShownTheCsv}</p>`}
    <p class="legend"><span><span class="replica" data-replica="leader">1</span> ${texts.words.leaderLower}</span><span><span class="replica" data-replica="follower">2</span> ${texts.words.inSyncLower}</span>
      <span><span class="replica" data-replica="out">3</span> ${texts.words.outOfSyncLower}</span><span><span class="replica" data-replica="silent">4</span> ${texts.words.brokerSilentLower}</span></p>`;
}

/** @param {{topic: Topic}} props */
function Groups({ topic }) {
  if (!topic.groups) return html`<p class="empty">${texts.topicScreen.theGroupsOfThisTopic}</p>`;
  if (!topic.groups.length) return html`<p class="empty">${texts.topicScreen.noGroupHasCommittedOffsets}</p>`;
  return html`<${Table} label=${texts.topicScreen.groupsOfThisTopic} count=${topic.groups.length} row=${(/** @type {number} */ index) => topic.groups?.[index] ?? null}
    keyOf=${(/** @type {any} */ row) => row.group} columns=${[
      { key: 'group', title: texts.words.group, cell: (/** @type {any} */ row) => html`<a class="name" href=${href('/group', { name: row.group })}>${row.group}</a>` },
      { key: 'members', title: texts.words.members, width: 100, align: 'end', cell: (/** @type {any} */ row) => count(row.members) },
      { key: 'lag', title: texts.words.lag, width: 120, align: 'end', cell: (/** @type {any} */ row) => html`${row.lag ? html`<${Mark} severity="notice" /> ` : ''}${count(row.lag)}` },
    ]} />`;
}

/** @param {(number|null)[]} values */
function sum(values) {
  const known = values.filter((each) => each !== null);
  return known.length || !values.length ? known.reduce((total, each) => total + each, 0) : null;
}
