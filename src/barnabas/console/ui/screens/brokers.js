// Brokers and quorum: how is each node?
import { html } from '../core/html.js';
import { canAll, post } from '../core/api.js';
import { clocks, useNow, useRoute } from '../core/data.js';
import { atMs, href, param, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { bytes, count, duration } from '../core/format.js';
import { LinksPanel } from '../parts/links.js';
import { Table, sorted } from '../parts/table.js';
import { ActionDialog } from '../parts/action_dialog.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { Brokers as BrokersData, Broker, Quorum, Voter } from '../core/types.js' */
/** @import { Column } from '../parts/table.js' */

const VALUES = {
  broker: (/** @type {Broker} */ row) => row.broker,
  rack: (/** @type {Broker} */ row) => row.rack,
  leaders: (/** @type {Broker} */ row) => row.leaders,
  replicas: (/** @type {Broker} */ row) => row.replicas,
  out: (/** @type {Broker} */ row) => row.out_of_sync,
  size: (/** @type {Broker} */ row) => row.size_bytes,
};

export function Brokers() {
  const answer = useRoute('/api/brokers', {}, { screen: 'brokers' });
  const now = useNow(1000) + clocks.value.ahead;
  const isElecting = param('do') === 'elect' && canAll('operator');
  const data = /** @type {BrokersData|null} */ (answer.data);
  if (!data) return html`<${Waiting} ...${answer} />`;
  const { rows, sort, isDown } = sorted(data.brokers, VALUES, 'broker');
  const isPast = atMs() !== null;
  /** @type {Column<Broker>[]} */
  const columns = [
    { key: 'broker', title: texts.words.broker, width: 190, sort: 'broker', cell: (row) => html`<a class="name" href=${href('/broker', { id: row.broker })}>${texts.words.broker} ${row.broker}</a>${row.is_controller && html`<span class="chip">${texts.words.controllerLower}</span>`}` },
    { key: 'state', title: texts.words.state, cell: (row) => {
      const age = row.answered_ms === null ? row.age_ms : now - row.answered_ms;
      return row.problem === null
        ? html`<span class="up">${texts.words.answersLower}</span>`
        : html`<span class="broker-problem" title=${row.problem}>${isPast || age === null ? 'silent' : texts.words.silentForOf(duration(age))}: ${row.problem}</span>`;
    } },
    { key: 'address', title: texts.brokersScreen.address, width: 180, isWide: true, cell: (row) => html`<span class="code" title=${`${row.host}:${row.port}`}>${row.host}:${row.port}</span>` },
    { key: 'rack', title: texts.words.rack2, width: 90, sort: 'rack', isWide: true, cell: (row) => row.rack ?? '–' },
    { key: 'leaders', title: texts.brokersScreen.leads, width: 84, sort: 'leaders', isFirstDown: true, align: 'end', cell: (row) => count(row.leaders) },
    { key: 'replicas', title: texts.words.replicas, width: 92, sort: 'replicas', isFirstDown: true, align: 'end', cell: (row) => count(row.replicas) },
    { key: 'out', title: texts.brokersScreen.outOfSync, width: 104, sort: 'out', isFirstDown: true, align: 'end', cell: (row) => html`<span class=${row.out_of_sync ? 'bad' : 'nothing'}>${count(row.out_of_sync)}</span>` },
    { key: 'size', title: texts.words.size, width: 92, sort: 'size', isFirstDown: true, align: 'end', isWide: true, cell: (row) => bytes(row.size_bytes) },
  ];
  return html`<div class="tools"><span class="grow"></span>
      <a class="button" href=${href('/whatif', { ask: 'restart-all' })}>${texts.brokersScreen.restartAllInWhichOrder}</a>
      ${canAll('operator') && html`<button onClick=${() => setParams({ do: 'elect' })}>${texts.words.electAllPreferredLeaders}</button>`}</div>
    ${isElecting && html`<${ActionDialog} title=${texts.brokersScreen.electThePreferredLeadersOf} verb=${texts.words.elect} onClose=${() => setParams({ do: null }, { replace: true })} fields=${[]}
      act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) => post('/api/actions/elect', { kind: 'preferred', partitions: null, dry_run: isDry })} />`}
    <${Table} label=${texts.words.brokers} columns=${columns} count=${rows.length} row=${(/** @type {number} */ index) => rows[index] ?? null}
      keyOf=${(/** @type {Broker} */ row) => String(row.broker)} sort=${sort} isDown=${isDown} isTall=${rows.length > 60}
      markOf=${(/** @type {Broker} */ row) => `${row.problem !== null} ${row.is_controller}`} empty=${texts.empty.brokers} />
    <${LinksPanel} />
    <${QuorumPanel} />`;
}

const QUORUM_MS = 2_000;

function QuorumPanel() {
  const turn = Math.floor(useNow(QUORUM_MS) / QUORUM_MS);
  const answer = useRoute('/api/quorum', atMs() === null ? { turn } : {}, {});
  const data = /** @type {Quorum|null} */ (answer.data);
  if (!data) {
    const why = answer.error?.message ?? (answer.envelope ? texts.brokersScreen.theQuorumIsNotKnown : '');
    return html`<section class="panel" aria-label=${texts.brokersScreen.quorum}><h2>${texts.brokersScreen.quorum}</h2>${why && html`<p class="empty">${why}</p>`}</section>`;
  }
  return html`<section class="panel" aria-label=${texts.brokersScreen.quorum}>
    <h2>${texts.brokersScreen.quorum} <span class="kind">${data.kind === 'kraft' ? texts.brokersScreen.kraft : data.kind === 'zookeeper' ? texts.brokersScreen.zookeeper : ''}</span></h2>
    ${data.problem && html`<p class="hint bad">${data.problem}</p>`}
    ${data.kind === 'kraft' && html`<p class="facts">${texts.words.leader} <strong>${data.leader < 0 ? 'none' : data.leader}</strong>${texts.brokersScreen.epoch} <strong>${count(data.leader_epoch)}</strong>${texts.brokersScreen.highWatermark} <strong>${count(data.high_watermark)}</strong></p>`}
    ${data.kind === 'zookeeper' && html`<p class="facts">${texts.brokersScreen.controller} <strong>${data.leader < 0 ? 'none' : data.leader}</strong>${texts.brokersScreen.aClusterWithZookeeperHas}</p>`}
    ${data.voters.length + data.observers.length > 0 && html`<div class="table-box" role="region" tabindex="0" aria-label=${texts.brokersScreen.votersAndObservers}><table>
      <thead><tr><th scope="col">${texts.brokersScreen.node}</th><th scope="col">${texts.brokersScreen.role}</th><th scope="col" class="end">${texts.words.logEnd}</th><th scope="col" class="end">${texts.words.lag}</th><th scope="col">${texts.brokersScreen.lastFetch}</th><th scope="col">${texts.brokersScreen.caughtUp}</th></tr></thead>
      <tbody>${[...data.voters.map((each) => ({ ...each, role: 'voter' })), ...data.observers.map((each) => ({ ...each, role: 'observer' }))].map(
        (each) => html`<tr key=${`${each.role} ${each.node}`}><th scope="row">${each.node}</th><td>${each.node === data.leader ? 'leader' : each.role}</td>
          <td class="end">${count(each.end_offset)}</td><td class="end">${each.lag ? html`<span class="bad">${count(each.lag)}</span>` : count(each.lag)}</td>
          <td>${ago(each.last_fetch_ms, each, data)}</td><td>${ago(each.last_caught_up_ms, each, data)}</td></tr>`,
      )}</tbody></table></div>`}</section>`;
}

/** @param {number|null} time @param {Voter} voter @param {Quorum} quorum */
function ago(time, voter, quorum) {
  if (voter.node === quorum.leader) return '–';
  if (time === null || time < 0) return '?';
  return texts.brokersScreen.agoOf(duration(Date.now() + clocks.value.ahead - time));
}
