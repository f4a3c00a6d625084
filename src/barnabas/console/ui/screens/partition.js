// Partition: why has it this leader and ISR, and who had it when?
import { html } from '../core/html.js';
import { serverNow, useNow, useRoute } from '../core/data.js';
import { atMs, href, param } from '../core/url.js';
import { texts } from '../core/texts.js';
import { bytes, count, moment } from '../core/format.js';
import { BrokerLink, BrokerList, State, replicaState } from '../parts/badges.js';
import { beginOf, Lanes, LanesTable } from '../pictures/lanes.js';
import { AbortTransaction, PartitionActions } from '../parts/partition_dialogs.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { PartitionPage } from '../core/types.js' */

export function PartitionScreen() {
  const [topic, partition] = [param('topic') ?? '', Number(param('partition') ?? 0)];
  const answer = useRoute('/api/partition', { topic, partition }, { screen: 'partition', live: { topic, partition }, merge: withAsked });
  const now = useNow(2000);
  const data = /** @type {PartitionPage|null} */ (answer.data);
  if (!data || data.topic !== topic || data.partition !== partition) return html`<${Waiting} ...${answer} />`;
  const end = atMs() ?? Math.max(serverNow(), now);
  const lanes = data.lanes ?? [];
  const brokers = [...new Set([...data.replicas, ...lanes.flatMap((lane) => lane.replicas ?? lane.isr)])].sort((one, other) => one - other);
  const from = beginOf([{ name: '', lanes }], data.lanes_from_ms ?? end, end);
  return html`
    ${answer.error && html`<p class="warning" role="status">${answer.error.message}</p>`}
    <section class="summary" aria-label=${texts.words.summary}>
      <${State} severity=${data.severity} text=${data.state} />
      <span>${texts.words.leaderLower} <strong><${BrokerLink} id=${data.leader} isPreferred=${data.leader < 0 ? undefined : data.leader === data.preferred} /></strong></span>
      <span>${texts.words.replicasLower} <strong><${BrokerList} brokers=${data.replicas} /></strong></span>
      <span>${texts.words.isr} <strong><${BrokerList} brokers=${data.isr} /></strong></span>
      ${data.osr.length > 0 && html`<span>${texts.words.osr} <strong><${BrokerList} brokers=${data.osr} tone="bad" /></strong></span>`}
      ${data.elr && data.elr.length > 0 && html`<span>${texts.words.elr} <strong><${BrokerList} brokers=${data.elr} /></strong></span>`}
      <span>${texts.partitionScreen.epoch} <strong>${count(data.leader_epoch)}</strong></span>
      <span>${texts.partitionScreen.offsets} <strong>${count(data.start_offset)} … ${count(data.high_watermark ?? data.end_offset)}</strong></span>
      <span><strong>${bytes(data.size_bytes)}</strong></span>
      <span class="grow"></span>
      <a class="button" href=${href('/topic', { name: topic })}>${texts.words.topic}</a>
      <a class="button" href=${href('/messages', { topic, partition })}>${texts.words.messages}</a>
      <${PartitionActions} data=${data} reload=${answer.reload} />
    </section>
    <section class="panel" aria-label=${texts.partitionScreen.leaderAndIsrOverTime}>
      <h2>${texts.partitionScreen.leaderAndIsrOverTime} <a class="more" href=${href('/timeline', { topic, partition })}>${texts.partitionScreen.events}</a></h2>
      ${data.lanes_gap && html`<p class="hint">${texts.partitionScreen.changesBefore} ${moment(data.lanes_from_ms)} ${texts.partitionScreen.areNotKnownTheConsole}</p>`}
      ${lanes.length
        ? html`<${Lanes} rows=${[{ name: `${topic}-${partition}`, lanes }]} from=${from} to=${end} brokers=${brokers} />
            <p class="legend"><span>${texts.partitionScreen.thickLeader}</span><span>${texts.partitionScreen.thinInSync}</span><span>${texts.partitionScreen.hatchedOutOfSync}</span><span>${texts.partitionScreen.crossedNoLeader}</span></p>
            <${LanesTable} rows=${[{ name: `${topic}-${partition}`, lanes: [...lanes].reverse() }]} />`
        : html`<p class="empty">${texts.empty.lanes}</p>`}
    </section>
    <section class="panel" aria-label=${texts.partitionScreen.explanation}>
      <h2>${texts.partitionScreen.whyItIsSo}</h2>
      ${data.explanation?.length
        ? html`<ul class="explanation">${data.explanation.map((line) => html`<li key=${line}>${line}</li>`)}</ul>`
        : html`<p class="empty">${data.cause ? data.cause.text : texts.partitionScreen.noCauseIsKnownThis}</p>`}
    </section>
    <${ReplicasTable} data=${data} />
    <${Producers} data=${data} reload=${answer.reload} />`;
}

/**
 * Returns the partition as the stream sends it, with the directories and producers that brokers were asked for.
 * @param {PartitionPage} old
 * @param {PartitionPage} streamed
 */
function withAsked(old, streamed) {
  return { ...old, ...streamed };
}

/** @param {{data: PartitionPage}} props */
function ReplicasTable({ data }) {
  return html`<section class="panel" aria-label=${texts.words.replicas}><h2>${texts.words.replicas}</h2>
    <div class="table-box" role="region" tabindex="0" aria-label=${texts.partitionScreen.replicasScrollable}><table>
      <thead><tr><th scope="col">${texts.words.broker}</th><th scope="col">${texts.words.state}</th><th scope="col" class="end">${texts.words.logEnd}</th><th scope="col" class="end">${texts.words.lag}</th><th scope="col" class="end">${texts.words.size}</th><th scope="col">${texts.partitionScreen.directory}</th></tr></thead>
      <tbody>${(data.details ?? []).map((each) => {
        // A replica that moves to another directory of its broker has two.
        const directories = (data.directories ?? []).filter((one) => one.broker === each.broker);
        const own = directories.find((one) => !one.is_future);
        const state = replicaState(data, each.broker);
        const old = state === 'silent' ? 'end muted' : 'end';
        const hint = state === 'silent' ? texts.partitionScreen.theLastThatWasKnown : undefined;
        return html`<tr key=${each.broker}><th scope="row"><a href=${href('/broker', { id: each.broker })}>${texts.words.broker} ${each.broker}</a></th>
          <td><span class="replica" data-replica=${state}>${each.broker}</span> ${texts.replica[state]}</td>
          <td class=${old} title=${hint}>${count(each.end_offset)}</td><td class=${old} title=${hint}>${each.is_leader ? '–' : count(each.lag)}</td>
          <td class=${old} title=${hint}>${bytes(each.size_bytes ?? own?.size_bytes)}</td><td class="wrap code">${
            directories.length === 0 ? '?' : directories.map((one) => html`<div key=${one.directory}>${one.error ?? one.directory}${one.is_future && texts.partitionScreen.movingHere(bytes(one.size_bytes))}</div>`)
          }</td></tr>`;
      })}</tbody></table></div></section>`;
}

/** @param {{data: PartitionPage, reload: () => void}} props */
function Producers({ data, reload }) {
  const producers = data.producers ?? [];
  return html`<section class="panel" aria-label=${texts.partitionScreen.producers}><h2>${texts.partitionScreen.producersAndOpenTransactions}</h2>
    ${producers.length === 0
      ? html`<p class="empty">${data.producers === null ? (data.producers_problem ?? texts.partitionScreen.theyAreNotKnown) : texts.empty.producers}</p>`
      : html`<div class="table-box" role="region" tabindex="0" aria-label=${texts.partitionScreen.producersScrollable}><table>
          <thead><tr><th scope="col">${texts.partitionScreen.producerId}</th><th scope="col" class="end">${texts.words.epoch}</th><th scope="col" class="end">${texts.partitionScreen.lastSequence}</th><th scope="col">${texts.partitionScreen.lastWrite}</th><th scope="col" class="end">${texts.partitionScreen.openTransactionFrom}</th></tr></thead>
          <tbody>${producers.map(
            (each) => html`<tr key=${each.producer_id}><th scope="row">${each.producer_id}</th><td class="end">${each.epoch}</td><td class="end">${count(each.last_sequence)}</td>
              <td>${moment(each.last_ms)}</td><td class="end">${each.open_txn_from === null ? '–' : count(each.open_txn_from)}<${AbortTransaction} topic=${data.topic} partition=${data.partition} producer=${each} reload=${reload} /></td></tr>`,
          )}</tbody></table></div>`}</section>`;
}
