// The moves of replicas between the log directories of a broker: those that run, and a plan for some.
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
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
  return html`<section class="panel" aria-label=${texts.directoryMoves.betweenLogDirectories}><h2>${texts.directoryMoves.betweenLogDirectories}</h2>
    ${data.problems.map((each) => html`<p key=${each.broker} class="hint">${each.text}</p>`)}
    ${data.total > 0 && html`<${Table} label=${texts.directoryMoves.movesBetweenLogDirectories} count=${data.moves.length} isTall=${data.moves.length > 60} row=${(/** @type {number} */ index) => data.moves[index] ?? null}
      keyOf=${(/** @type {DirectoryMove} */ row) => `${row.topic}-${row.partition}-${row.broker}`} columns=${[
        { key: 'name', title: texts.words.partition, cell: (/** @type {DirectoryMove} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
        { key: 'broker', title: texts.words.broker, width: 70, cell: (/** @type {DirectoryMove} */ row) => html`<${BrokerLink} id=${row.broker} />` },
        { key: 'from', title: texts.words.from, width: 180, isWide: true, cell: (/** @type {DirectoryMove} */ row) => html`<span class="code" title=${row.from}>${pathEnd(row.from)}</span>` },
        { key: 'to', title: texts.words.to, width: 180, cell: (/** @type {DirectoryMove} */ row) => html`<span class="code" title=${row.to}>${pathEnd(row.to)}</span>` },
        { key: 'left', title: texts.words.left, width: 80, align: /** @type {const} */ ('end'), cell: (/** @type {DirectoryMove} */ row) => bytes(row.left_bytes) },
        { key: 'rate', title: texts.words.rate, width: 90, align: /** @type {const} */ ('end'), isWide: true, cell: (/** @type {DirectoryMove} */ row) => byteRate(row.rate) },
        { key: 'end', title: texts.words.ends, width: 100, cell: (/** @type {DirectoryMove} */ row) => html`<${End} time=${row.end_ms} left=${row.left_bytes} whenDone=${texts.directoryMoves.endsSoon} />` },
        ...(can('admin') ? [{ key: 'cancel', title: texts.words.action, width: 90, cell: (/** @type {DirectoryMove} */ row) =>
          html`<${CancelMove} name=${texts.directoryMoves.onBrokerOf(row.topic, row.partition, row.broker)} move=${{ topic: row.topic, partition: row.partition, broker: row.broker }} reload=${reload} />` }] : []),
      ]} />`}
    ${data.total > data.moves.length && html`<p class="hint">${texts.words.theFirst} ${count(data.moves.length)} ${texts.words.of} ${count(data.total)} ${texts.words.areShown}</p>`}
  </section>`;
}

/** @param {{onClose: () => void}} props */
export function PlanDirectories({ onClose }) {
  return html`<${ActionDialog} title=${texts.directoryMoves.planMovesBetweenLogDirectories} verb=${texts.words.takeThePlan} onClose=${onClose} fields=${[
    { name: 'broker', title: texts.words.broker, type: 'number', value: param('broker') ?? '' },
    { name: 'from', title: texts.directoryMoves.fromDirectory, value: param('from') ?? '', hint: texts.directoryMoves.emptyFromAllOthersThe },
    { name: 'to', title: texts.directoryMoves.toDirectory },
    { name: 'topics', title: texts.words.topics, hint: texts.directoryMoves.separatedByCommasEmptyAll },
  ]} act=${async (/** @type {any} */ values, /** @type {boolean} */ isDry) => {
    const { data } = await get('/api/directory-plan', { ...values, topics: values.topics.replaceAll(' ', '') });
    const found = /** @type {{rows: PlanRow[], bytes: number|null}} */ (data);
    if (found.rows.length === 0) throw new Error(texts.directoryMoves.noReplicaOfTheseTopics);
    if (isDry) {
      const lines = found.rows.map((row) => `${row.topic}-${row.partition}: ${directoriesOf(row).join(', ')}`);
      return { plan: [...shortened(lines), texts.words.wouldBeCopied(bytes(found.bytes))] };
    }
    setPlan({ rows: found.rows, source: texts.directoryMoves.betweenTheDirectoriesOfBroker(values.broker) });
    return { text: texts.words.thePlanIsOpenNothing, results: [] };
  }} />`;
}
