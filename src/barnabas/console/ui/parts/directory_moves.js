// The moves of replicas between the log directories of a broker: those that run, and a plan for some.
import { html } from '../core/html.js';
import { can, get } from '../core/api.js';
import { param } from '../core/url.js';
import { directoriesOf, setPlan, shortened } from '../core/plan.js';
import { bytes, byteRate, count, pathEnd } from '../core/format.js';
import { ActionDialog } from './action_dialog.js';
import { BrokerLink, PartitionLink } from './badges.js';
import { CancelMove, End } from './move_cells.js';
import { Table } from './table.js';
/** @import { DirectoryMove, DirectoryMoves } from '../core/types.js' */
/** @import { PlanRow } from '../core/plan.js' */

/** @param {{data: DirectoryMoves, reload: () => void}} props */
export function BetweenDirectories({ data, reload }) {
  if (data.total === 0 && data.problems.length === 0) return null;
  return html`<section class="panel" aria-label="Between log directories"><h2>Between log directories</h2>
    ${data.problems.map((each) => html`<p key=${each.broker} class="hint">${each.text}</p>`)}
    ${data.total > 0 && html`<${Table} label="Moves between log directories" count=${data.moves.length} isTall=${data.moves.length > 60} row=${(/** @type {number} */ index) => data.moves[index] ?? null}
      keyOf=${(/** @type {DirectoryMove} */ row) => `${row.topic}-${row.partition}-${row.broker}`} columns=${[
        { key: 'name', title: 'Partition', cell: (/** @type {DirectoryMove} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
        { key: 'broker', title: 'Broker', width: 70, cell: (/** @type {DirectoryMove} */ row) => html`<${BrokerLink} id=${row.broker} />` },
        { key: 'from', title: 'From', width: 180, isWide: true, cell: (/** @type {DirectoryMove} */ row) => html`<span class="code" title=${row.from}>${pathEnd(row.from)}</span>` },
        { key: 'to', title: 'To', width: 180, cell: (/** @type {DirectoryMove} */ row) => html`<span class="code" title=${row.to}>${pathEnd(row.to)}</span>` },
        { key: 'left', title: 'Left', width: 80, align: /** @type {const} */ ('end'), cell: (/** @type {DirectoryMove} */ row) => bytes(row.left_bytes) },
        { key: 'rate', title: 'Rate', width: 90, align: /** @type {const} */ ('end'), isWide: true, cell: (/** @type {DirectoryMove} */ row) => byteRate(row.rate) },
        { key: 'end', title: 'Ends', width: 100, cell: (/** @type {DirectoryMove} */ row) => html`<${End} time=${row.end_ms} left=${row.left_bytes} whenDone="ends soon" />` },
        ...(can('admin') ? [{ key: 'cancel', title: 'Action', width: 90, cell: (/** @type {DirectoryMove} */ row) =>
          html`<${CancelMove} name=${`${row.topic}-${row.partition} on broker ${row.broker}`} move=${{ topic: row.topic, partition: row.partition, broker: row.broker }} reload=${reload} />` }] : []),
      ]} />`}
    ${data.total > data.moves.length && html`<p class="hint">The first ${count(data.moves.length)} of ${count(data.total)} are shown.</p>`}
  </section>`;
}

/** @param {{onClose: () => void}} props */
export function PlanDirectories({ onClose }) {
  return html`<${ActionDialog} title="Plan moves between log directories" verb="Take the plan" onClose=${onClose} fields=${[
    { name: 'broker', title: 'Broker', type: 'number', value: param('broker') ?? '' },
    { name: 'from', title: 'From directory', value: param('from') ?? '', hint: 'Empty: from all others. The directories are on the page of the broker.' },
    { name: 'to', title: 'To directory' },
    { name: 'topics', title: 'Topics', hint: 'Separated by commas; empty: all' },
  ]} act=${async (/** @type {any} */ values, /** @type {boolean} */ isDry) => {
    const { data } = await get('/api/directory-plan', { ...values, topics: values.topics.replaceAll(' ', '') });
    const found = /** @type {{rows: PlanRow[], bytes: number|null}} */ (data);
    if (found.rows.length === 0) throw new Error('No replica of these topics is in such a directory.');
    if (isDry) {
      const lines = found.rows.map((row) => `${row.topic}-${row.partition}: ${directoriesOf(row).join(', ')}`);
      return { plan: [...shortened(lines), `${bytes(found.bytes)} would be copied`] };
    }
    setPlan({ rows: found.rows, source: `between the directories of broker ${values.broker}` });
    return { text: 'The plan is open. Nothing moves yet.', results: [] };
  }} />`;
}
