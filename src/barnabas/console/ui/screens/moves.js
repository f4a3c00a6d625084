// Moves: which replicas move, how far are they, when do they end; and the plan that is to be begun.
import { useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { can, canAll, get, post } from '../core/api.js';
import { useNow, useRoute, useStatus } from '../core/data.js';
import { param } from '../core/url.js';
import { asFile, directoriesOf, parsePlan, plan, planRow, planText, setPlan, shortened } from '../core/plan.js';
import { bytes, byteRate, count, pathEnd, plural, brokers as listed } from '../core/format.js';
import { texts } from '../core/texts.js';
import { BrokerLink, PartitionLink } from '../parts/badges.js';
import { Table } from '../parts/table.js';
import { Waiting } from '../parts/state_of_answer.js';
import { ActionDialog } from '../parts/action_dialog.js';
import { BetweenDirectories, PlanDirectories } from '../parts/directory_moves.js';
import { CancelMove, End } from '../parts/move_cells.js';
/** @import { Moves as MovesData, Move, MoveLimits } from '../core/types.js' */
/** @import { PlanRow } from '../core/plan.js' */

const LOOK_MS = 2_000;

/** Returns a number that grows while the tab is seen. */
function useTurn() {
  const last = useRef(0);
  const now = Math.floor(useNow(LOOK_MS) / LOOK_MS);
  if (document.visibilityState === 'visible') last.current = now;
  return last.current;
}

export function Moves() {
  const turn = useTurn();
  const answer = useRoute('/api/moves', { turn }, { isStill: true });
  // A link of a broker's page names the directory that is to be emptied.
  const [shown, setShown] = useState(param('from') === null ? '' : 'directories');
  // The moves themselves are asked for; the stream tells how the brokers are.
  useStatus('moves');
  const data = /** @type {MovesData|null} */ (answer.data);
  if (!data) return html`<${Waiting} ...${answer} />`;
  const limits = data.throttles.filter((each) => each.leader_rate !== null || each.follower_rate !== null || each.directory_rate !== null);
  const between = data.directories;
  const close = () => setShown('');
  return html`
    ${answer.error && html`<p class="warning" role="status">${answer.error.message}</p>`}
    <section class="summary" aria-label=${texts.words.summary}>
      <span><strong>${count(data.total)}</strong> ${data.total === 1 ? texts.movesScreen.partitionMoves : texts.movesScreen.partitionsMove}</span>
      ${data.total > 0 && html`<span><strong>${bytes(data.left_bytes)}</strong> ${texts.movesScreen.left}</span><span><strong>${byteRate(data.rate)}</strong></span><span>${texts.movesScreen.ends} <strong><${End} time=${data.end_ms} left=${data.left_bytes} /></strong></span>`}
      ${between.total > 0 && html`<span><strong>${count(between.total)}</strong> ${between.total === 1 ? texts.movesScreen.replicaMoves : texts.movesScreen.replicasMove} ${texts.movesScreen.betweenDirectories}</span><span><strong>${bytes(between.left_bytes)}</strong> ${texts.movesScreen.leftLower}</span>`}
      <span>${texts.movesScreen.throttle} <strong>${limits.length === 0 ? 'none' : limits.map(limitText).join(', ')}</strong></span>
      <span class="grow"></span>
      <button onClick=${() => setShown('generate')}>${texts.movesScreen.generateAPlan}</button>
      <button onClick=${() => setShown('directories')}>${texts.movesScreen.planForDirectories}</button>
      <button onClick=${() => setShown('open')}>${texts.movesScreen.openAPlan}</button>
      ${canAll('admin') && html`<button onClick=${() => setShown('throttle')}>${texts.movesScreen.throttle2}</button>
        <button disabled=${data.total + between.total === 0} onClick=${() => setShown('cancel')}>${texts.movesScreen.cancelAll}</button>`}
    </section>
    <section class="panel" aria-label=${texts.movesScreen.running}><h2>${texts.movesScreen.running}</h2>
      <${Table} label=${texts.movesScreen.runningMoves} count=${data.moves.length} isTall=${data.moves.length > 60} row=${(/** @type {number} */ index) => data.moves[index] ?? null}
        keyOf=${(/** @type {Move} */ row) => `${row.topic}-${row.partition}`} empty=${texts.empty.moves} columns=${[
          { key: 'name', title: texts.words.partition, cell: (/** @type {Move} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
          { key: 'from', title: texts.words.from, width: 80, cell: (/** @type {Move} */ row) => listed(row.removing) },
          { key: 'to', title: texts.words.to, width: 80, cell: (/** @type {Move} */ row) => html`<span title=${row.targets.map((each) => texts.words.brokerOf(each.broker, each.problem ?? texts.movesScreen.copiedOf(bytes(each.copied_bytes)))).join(', ')}>${listed(row.adding)}</span>` },
          { key: 'leader', title: texts.words.leader, width: 70, isWide: true, cell: (/** @type {Move} */ row) => html`<${BrokerLink} id=${row.leader} />` },
          { key: 'size', title: texts.words.size, width: 90, align: /** @type {const} */ ('end'), isWide: true, cell: (/** @type {Move} */ row) => bytes(row.size_bytes) },
          { key: 'left', title: texts.words.left, width: 90, align: /** @type {const} */ ('end'), cell: (/** @type {Move} */ row) => bytes(row.left_bytes) },
          { key: 'rate', title: texts.words.rate, width: 90, align: /** @type {const} */ ('end'), isWide: true, cell: (/** @type {Move} */ row) => byteRate(row.rate) },
          { key: 'end', title: texts.words.ends, width: 150, cell: (/** @type {Move} */ row) => html`<${End} time=${row.end_ms} left=${row.left_bytes} />` },
          ...(can('admin') ? [{ key: 'cancel', title: texts.words.action, width: 90, cell: (/** @type {Move} */ row) =>
            html`<${CancelMove} name=${`${row.topic}-${row.partition}`} move=${{ topic: row.topic, partition: row.partition }} reload=${answer.reload} />` }] : []),
        ]} />
      ${data.total > data.moves.length && html`<p class="hint">${texts.words.theFirst} ${count(data.moves.length)} ${texts.words.areShownLower}</p>`}</section>
    <${BetweenDirectories} data=${between} reload=${answer.reload} />
    <${PlanPanel} data=${data} reload=${answer.reload} />
    ${shown === 'generate' && html`<${Generate} onClose=${close} />`}
    ${shown === 'directories' && html`<${PlanDirectories} onClose=${close} />`}
    ${shown === 'open' && html`<${OpenPlan} onClose=${close} />`}
    ${shown === 'throttle' && html`<${ActionDialog} title=${texts.movesScreen.throttleTheMovesThatRun} verb=${texts.movesScreen.setTheThrottle} onClose=${close} onDone=${answer.reload}
      lead=${texts.movesScreen.aRateThatIsEmpty}
      fields=${[
        { name: 'rate', title: texts.movesScreen.bytesASecondAtEach, type: 'number', value: '' },
        { name: 'directory_rate', title: texts.movesScreen.betweenLogDirectoriesInBytes, type: 'number', value: '' },
      ]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) =>
        post('/api/actions/throttle-moves', { rate: limit(values.rate), directory_rate: limit(values.directory_rate), dry_run: isDry })} />`}
    ${shown === 'cancel' && html`<${ActionDialog} title=${texts.movesScreen.cancelAllMoves} verb=${texts.movesScreen.cancelTheMoves} isDanger onClose=${close} onDone=${answer.reload} fields=${[]}
      lead=${texts.movesScreen.newReplicasAreRemovedAnd}
      act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) => post('/api/actions/cancel-moves', { partitions: null, dry_run: isDry })} />`}`;
}

/** @param {string} text */
function limit(text) {
  return text === '' ? null : Number(text);
}

/** @param {MoveLimits} limits */
function limitText(limits) {
  const parts = [limits.follower_rate ?? limits.leader_rate].filter((each) => each !== null).map(byteRate);
  if (limits.directory_rate !== null) parts.push(texts.movesScreen.betweenDirectoriesOf(byteRate(limits.directory_rate)));
  return texts.words.brokerOf(limits.broker, parts.join(' and '));
}

/** @param {{data: MovesData, reload: () => void}} props */
function PlanPanel({ data, reload }) {
  const [shown, setShown] = useState('');
  const found = plan.value;
  if (!found) return html`<section class="panel" aria-label=${texts.movesScreen.plan}><h2>${texts.movesScreen.plan}</h2><p class="empty">${texts.empty.plan}</p></section>`;
  const running = new Set([...data.moves, ...data.directories.moves].map((each) => `${each.topic}-${each.partition}`));
  const body = () => found.rows.map(planRow);
  const namesDirectories = found.rows.some((row) => directoriesOf(row).length > 0);
  const close = () => setShown('');
  return html`<section class="panel" aria-label=${texts.movesScreen.plan}>
    <h2>${texts.movesScreen.plan} <span class="kind">${found.source}, ${plural(found.rows.length, texts.nouns.partition)}</span></h2>
    <div class="tools">
      ${can('admin') && html`<button class="primary" onClick=${() => setShown('execute')}>${texts.movesScreen.execute}</button>${canAll('admin') && html`<button onClick=${() => setShown('verify')}>${texts.movesScreen.verify}</button>`}
        <button onClick=${() => setShown('cancel')}>${texts.movesScreen.cancelItsMoves}</button>`}
      <a class="button" href=${asFile(planText(found.rows))} download="reassignment.json">${texts.movesScreen.saveAsJson}</a>
      <button onClick=${() => setPlan(null)}>${texts.movesScreen.discard}</button></div>
    <${Table} label=${texts.movesScreen.plannedMoves} count=${found.rows.length} isTall=${found.rows.length > 60} row=${(/** @type {number} */ index) => found.rows[index] ?? null}
      keyOf=${(/** @type {PlanRow} */ row) => `${row.topic}-${row.partition}`} columns=${[
        { key: 'name', title: texts.words.partition, cell: (/** @type {PlanRow} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
        { key: 'before', title: texts.movesScreen.replicasBefore, width: 150, cell: (/** @type {PlanRow} */ row) => (row.before ? listed(row.before) : '–') },
        { key: 'after', title: texts.words.replicasThen, width: 150, cell: (/** @type {PlanRow} */ row) => listed(row.replicas) },
        ...(namesDirectories ? [{ key: 'directories', title: texts.movesScreen.logDirectories, width: 230, cell: (/** @type {PlanRow} */ row) => html`<span class="code" title=${directoriesOf(row).join(', ')}>${directoriesOf(row, pathEnd).join(', ') || 'any'}</span>` }] : []),
        { key: 'bytes', title: texts.movesScreen.toCopy, width: 110, align: /** @type {const} */ ('end'), isWide: true, cell: (/** @type {PlanRow} */ row) => (row.bytes === undefined ? '–' : bytes(row.bytes)) },
        { key: 'state', title: texts.words.state, width: 110, cell: (/** @type {PlanRow} */ row) => (running.has(`${row.topic}-${row.partition}`) ? 'running' : texts.movesScreen.notRunning) },
      ]} />
    ${shown === 'execute' && html`<${ActionDialog} title=${texts.movesScreen.executeThePlan} verb=${texts.words.beginTheMoves} isDanger onClose=${close} onDone=${reload}
      fields=${[
        { name: 'throttle', title: texts.words.throttleInBytesASecond, type: 'number', value: '', hint: texts.movesScreen.emptyWithoutALimitVerify },
        ...(namesDirectories ? [{ name: 'between', title: texts.movesScreen.throttleBetweenLogDirectoriesIn, type: 'number', value: '' }] : []),
      ]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) =>
        post('/api/actions/reassign', { partitions: body(), throttle: limit(values.throttle), directory_throttle: limit(values.between ?? ''), dry_run: isDry })} />`}
    ${shown === 'verify' && html`<${ActionDialog} title=${texts.movesScreen.verifyThePlan} verb=${texts.movesScreen.removeTheThrottles} onClose=${close} onDone=${reload} fields=${[]}
      lead=${texts.movesScreen.whatOfThePlanIs}
      act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) => post('/api/actions/verify-moves', { partitions: body(), dry_run: isDry })} />`}
    ${shown === 'cancel' && html`<${ActionDialog} title=${texts.movesScreen.cancelTheMovesOfThe} verb=${texts.movesScreen.cancelTheMoves} isDanger onClose=${close} onDone=${reload} fields=${[]}
      act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) =>
        post('/api/actions/cancel-moves', { partitions: body().map(({ topic, partition }) => ({ topic, partition })), dry_run: isDry })} />`}
  </section>`;
}

/** @param {{onClose: () => void}} props */
function Generate({ onClose }) {
  return html`<${ActionDialog} title=${texts.movesScreen.generateAPlan} verb=${texts.words.takeThePlan} onClose=${onClose} fields=${[
    { name: 'topics', title: texts.words.topics, hint: texts.movesScreen.separatedByCommas },
    { name: 'brokers', title: texts.movesScreen.toBrokers, hint: texts.movesScreen.idsSeparatedByCommas },
    { name: 'seed', title: texts.movesScreen.seed, type: 'number', value: 1, hint: texts.movesScreen.anotherNumberGivesAnotherPlan },
  ]} act=${async (/** @type {any} */ values, /** @type {boolean} */ isDry) => {
    const { data } = await get('/api/move-plan', { topics: values.topics.replaceAll(' ', ''), brokers: values.brokers.replaceAll(' ', ''), seed: values.seed });
    const found = /** @type {{rows: PlanRow[], bytes: number|null}} */ (data);
    if (isDry) {
      const lines = found.rows.map((row) => texts.movesScreen.replicasOf(row.topic, row.partition, listed(row.before), listed(row.replicas)));
      return { plan: [...shortened(lines), texts.words.wouldBeCopied(bytes(found.bytes))] };
    }
    setPlan({ rows: found.rows, source: texts.movesScreen.proposedForBrokers(values.brokers) });
    return { text: texts.words.thePlanIsOpenNothing, results: [] };
  }} />`;
}

/** @param {{onClose: () => void}} props */
function OpenPlan({ onClose }) {
  return html`<${ActionDialog} title=${texts.movesScreen.openAPlan} verb=${texts.words.takeThePlan} onClose=${onClose} fields=${[
    { name: 'text', title: texts.movesScreen.jsonOfAReassignment, rows: 8, hint: texts.movesScreen.asKafkaReassignPartitionsAnd },
  ]} act=${async (/** @type {any} */ values, /** @type {boolean} */ isDry) => {
    const rows = parsePlan(values.text);
    if (isDry) return { plan: shortened(rows.map((row) => texts.movesScreen.replicasOf2(row.topic, row.partition, [listed(row.replicas), ...directoriesOf(row)].join(', ')))) };
    setPlan({ rows, source: 'read' });
    return { text: texts.words.thePlanIsOpenNothing, results: [] };
  }} />`;
}
