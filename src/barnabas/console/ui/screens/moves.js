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
    <section class="summary" aria-label="Summary">
      <span><strong>${count(data.total)}</strong> ${data.total === 1 ? 'partition moves' : 'partitions move'}</span>
      ${data.total > 0 && html`<span><strong>${bytes(data.left_bytes)}</strong> left</span><span><strong>${byteRate(data.rate)}</strong></span><span>ends <strong><${End} time=${data.end_ms} left=${data.left_bytes} /></strong></span>`}
      ${between.total > 0 && html`<span><strong>${count(between.total)}</strong> ${between.total === 1 ? 'replica moves' : 'replicas move'} between directories</span><span><strong>${bytes(between.left_bytes)}</strong> left</span>`}
      <span>throttle <strong>${limits.length === 0 ? 'none' : limits.map(limitText).join(', ')}</strong></span>
      <span class="grow"></span>
      <button onClick=${() => setShown('generate')}>Generate a plan</button>
      <button onClick=${() => setShown('directories')}>Plan for directories</button>
      <button onClick=${() => setShown('open')}>Open a plan</button>
      ${canAll('admin') && html`<button onClick=${() => setShown('throttle')}>Throttle</button>
        <button disabled=${data.total + between.total === 0} onClick=${() => setShown('cancel')}>Cancel all</button>`}
    </section>
    <section class="panel" aria-label="Running"><h2>Running</h2>
      <${Table} label="Running moves" count=${data.moves.length} isTall=${data.moves.length > 60} row=${(/** @type {number} */ index) => data.moves[index] ?? null}
        keyOf=${(/** @type {Move} */ row) => `${row.topic}-${row.partition}`} empty=${texts.empty.moves} columns=${[
          { key: 'name', title: 'Partition', cell: (/** @type {Move} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
          { key: 'from', title: 'From', width: 80, cell: (/** @type {Move} */ row) => listed(row.removing) },
          { key: 'to', title: 'To', width: 80, cell: (/** @type {Move} */ row) => html`<span title=${row.targets.map((each) => `broker ${each.broker}: ${each.problem ?? `${bytes(each.copied_bytes)} copied`}`).join(', ')}>${listed(row.adding)}</span>` },
          { key: 'leader', title: 'Leader', width: 70, isWide: true, cell: (/** @type {Move} */ row) => html`<${BrokerLink} id=${row.leader} />` },
          { key: 'size', title: 'Size', width: 90, align: /** @type {const} */ ('end'), isWide: true, cell: (/** @type {Move} */ row) => bytes(row.size_bytes) },
          { key: 'left', title: 'Left', width: 90, align: /** @type {const} */ ('end'), cell: (/** @type {Move} */ row) => bytes(row.left_bytes) },
          { key: 'rate', title: 'Rate', width: 90, align: /** @type {const} */ ('end'), isWide: true, cell: (/** @type {Move} */ row) => byteRate(row.rate) },
          { key: 'end', title: 'Ends', width: 150, cell: (/** @type {Move} */ row) => html`<${End} time=${row.end_ms} left=${row.left_bytes} />` },
          ...(can('admin') ? [{ key: 'cancel', title: 'Action', width: 90, cell: (/** @type {Move} */ row) =>
            html`<${CancelMove} name=${`${row.topic}-${row.partition}`} move=${{ topic: row.topic, partition: row.partition }} reload=${answer.reload} />` }] : []),
        ]} />
      ${data.total > data.moves.length && html`<p class="hint">The first ${count(data.moves.length)} are shown.</p>`}</section>
    <${BetweenDirectories} data=${between} reload=${answer.reload} />
    <${PlanPanel} data=${data} reload=${answer.reload} />
    ${shown === 'generate' && html`<${Generate} onClose=${close} />`}
    ${shown === 'directories' && html`<${PlanDirectories} onClose=${close} />`}
    ${shown === 'open' && html`<${OpenPlan} onClose=${close} />`}
    ${shown === 'throttle' && html`<${ActionDialog} title="Throttle the moves that run" verb="Set the throttle" onClose=${close} onDone=${answer.reload}
      lead="A rate that is empty stays as it is; both empty removes all throttles."
      fields=${[
        { name: 'rate', title: 'Bytes a second at each broker', type: 'number', value: '' },
        { name: 'directory_rate', title: 'Between log directories, in bytes a second at each broker', type: 'number', value: '' },
      ]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) =>
        post('/api/actions/throttle-moves', { rate: limit(values.rate), directory_rate: limit(values.directory_rate), dry_run: isDry })} />`}
    ${shown === 'cancel' && html`<${ActionDialog} title="Cancel all moves" verb="Cancel the moves" isDanger onClose=${close} onDone=${answer.reload} fields=${[]}
      lead="New replicas are removed, and those that were to be replaced stay."
      act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) => post('/api/actions/cancel-moves', { partitions: null, dry_run: isDry })} />`}`;
}

/** @param {string} text */
function limit(text) {
  return text === '' ? null : Number(text);
}

/** @param {MoveLimits} limits */
function limitText(limits) {
  const parts = [limits.follower_rate ?? limits.leader_rate].filter((each) => each !== null).map(byteRate);
  if (limits.directory_rate !== null) parts.push(`${byteRate(limits.directory_rate)} between directories`);
  return `broker ${limits.broker}: ${parts.join(' and ')}`;
}

/** @param {{data: MovesData, reload: () => void}} props */
function PlanPanel({ data, reload }) {
  const [shown, setShown] = useState('');
  const found = plan.value;
  if (!found) return html`<section class="panel" aria-label="Plan"><h2>Plan</h2><p class="empty">${texts.empty.plan}</p></section>`;
  const running = new Set([...data.moves, ...data.directories.moves].map((each) => `${each.topic}-${each.partition}`));
  const body = () => found.rows.map(planRow);
  const namesDirectories = found.rows.some((row) => directoriesOf(row).length > 0);
  const close = () => setShown('');
  return html`<section class="panel" aria-label="Plan">
    <h2>Plan <span class="kind">${found.source}, ${plural(found.rows.length, 'partition')}</span></h2>
    <div class="tools">
      ${can('admin') && html`<button class="primary" onClick=${() => setShown('execute')}>Execute</button>${canAll('admin') && html`<button onClick=${() => setShown('verify')}>Verify</button>`}
        <button onClick=${() => setShown('cancel')}>Cancel its moves</button>`}
      <a class="button" href=${asFile(planText(found.rows))} download="reassignment.json">Save as JSON</a>
      <button onClick=${() => setPlan(null)}>Discard</button></div>
    <${Table} label="Planned moves" count=${found.rows.length} isTall=${found.rows.length > 60} row=${(/** @type {number} */ index) => found.rows[index] ?? null}
      keyOf=${(/** @type {PlanRow} */ row) => `${row.topic}-${row.partition}`} columns=${[
        { key: 'name', title: 'Partition', cell: (/** @type {PlanRow} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
        { key: 'before', title: 'Replicas before', width: 150, cell: (/** @type {PlanRow} */ row) => (row.before ? listed(row.before) : '–') },
        { key: 'after', title: 'Replicas then', width: 150, cell: (/** @type {PlanRow} */ row) => listed(row.replicas) },
        ...(namesDirectories ? [{ key: 'directories', title: 'Log directories', width: 230, cell: (/** @type {PlanRow} */ row) => html`<span class="code" title=${directoriesOf(row).join(', ')}>${directoriesOf(row, pathEnd).join(', ') || 'any'}</span>` }] : []),
        { key: 'bytes', title: 'To copy', width: 110, align: /** @type {const} */ ('end'), isWide: true, cell: (/** @type {PlanRow} */ row) => (row.bytes === undefined ? '–' : bytes(row.bytes)) },
        { key: 'state', title: 'State', width: 110, cell: (/** @type {PlanRow} */ row) => (running.has(`${row.topic}-${row.partition}`) ? 'running' : 'not running') },
      ]} />
    ${shown === 'execute' && html`<${ActionDialog} title="Execute the plan" verb="Begin the moves" isDanger onClose=${close} onDone=${reload}
      fields=${[
        { name: 'throttle', title: 'Throttle, in bytes a second at each broker', type: 'number', value: '', hint: 'Empty: without a limit. “Verify” removes it when all is complete.' },
        ...(namesDirectories ? [{ name: 'between', title: 'Throttle between log directories, in bytes a second at each broker', type: 'number', value: '' }] : []),
      ]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) =>
        post('/api/actions/reassign', { partitions: body(), throttle: limit(values.throttle), directory_throttle: limit(values.between ?? ''), dry_run: isDry })} />`}
    ${shown === 'verify' && html`<${ActionDialog} title="Verify the plan" verb="Remove the throttles" onClose=${close} onDone=${reload} fields=${[]}
      lead="What of the plan is complete. Throttles are removed when no move runs any more."
      act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) => post('/api/actions/verify-moves', { partitions: body(), dry_run: isDry })} />`}
    ${shown === 'cancel' && html`<${ActionDialog} title="Cancel the moves of the plan" verb="Cancel the moves" isDanger onClose=${close} onDone=${reload} fields=${[]}
      act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) =>
        post('/api/actions/cancel-moves', { partitions: body().map(({ topic, partition }) => ({ topic, partition })), dry_run: isDry })} />`}
  </section>`;
}

/** @param {{onClose: () => void}} props */
function Generate({ onClose }) {
  return html`<${ActionDialog} title="Generate a plan" verb="Take the plan" onClose=${onClose} fields=${[
    { name: 'topics', title: 'Topics', hint: 'Separated by commas' },
    { name: 'brokers', title: 'To brokers', hint: 'Ids, separated by commas' },
    { name: 'seed', title: 'Seed', type: 'number', value: 1, hint: 'Another number gives another plan.' },
  ]} act=${async (/** @type {any} */ values, /** @type {boolean} */ isDry) => {
    const { data } = await get('/api/move-plan', { topics: values.topics.replaceAll(' ', ''), brokers: values.brokers.replaceAll(' ', ''), seed: values.seed });
    const found = /** @type {{rows: PlanRow[], bytes: number|null}} */ (data);
    if (isDry) {
      const lines = found.rows.map((row) => `${row.topic}-${row.partition}: replicas ${listed(row.before)} → ${listed(row.replicas)}`);
      return { plan: [...shortened(lines), `${bytes(found.bytes)} would be copied`] };
    }
    setPlan({ rows: found.rows, source: `proposed for brokers ${values.brokers}` });
    return { text: 'The plan is open. Nothing moves yet.', results: [] };
  }} />`;
}

/** @param {{onClose: () => void}} props */
function OpenPlan({ onClose }) {
  return html`<${ActionDialog} title="Open a plan" verb="Take the plan" onClose=${onClose} fields=${[
    { name: 'text', title: 'JSON of a reassignment', rows: 8, hint: 'As kafka-reassign-partitions and barnabas reassign read it' },
  ]} act=${async (/** @type {any} */ values, /** @type {boolean} */ isDry) => {
    const rows = parsePlan(values.text);
    if (isDry) return { plan: shortened(rows.map((row) => `${row.topic}-${row.partition}: replicas ${[listed(row.replicas), ...directoriesOf(row)].join(', ')}`)) };
    setPlan({ rows, source: 'read' });
    return { text: 'The plan is open. Nothing moves yet.', results: [] };
  }} />`;
}
