// Groups: who is behind, and how much? And one group: who reads which partition.
import { useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { address, can, post } from '../core/api.js';
import { serverNow, useNow, useRoute } from '../core/data.js';
import { atMs, go, href, param, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { clock, count, day, duration, moment, plural, timeOf } from '../core/format.js';
import { AssignmentOf } from '../parts/assignment.js';
import { BrokerLink, PartitionLink } from '../parts/badges.js';
import { ActionDialog } from '../parts/action_dialog.js';
import { Table, sorted } from '../parts/table.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { GroupRow, GroupPage, GroupPartition } from '../core/types.js' */
/** @import { Column } from '../parts/table.js' */

const LIMIT = 1000;

/** @param {{seconds: number|null}} props */
function LagTime({ seconds }) {
  return seconds === null ? html`<span class="unknown">?</span>` : seconds === 0 ? html`<span class="nothing">${texts.groupsScreen.level}</span>` : duration(seconds * 1000);
}

/** @param {number|null} ms */
function time(ms) {
  if (ms === null) return html`<span class="nothing">–</span>`;
  return html`<span title=${moment(ms)}>${day(ms) === day(serverNow()) ? clock(ms) : moment(ms).slice(5, -3)}</span>`;
}

/** @type {Column<GroupRow>[]} */
const COLUMNS = [
  { key: 'group', title: texts.words.group, sort: 'name', cell: (row) => html`<a class="name" href=${href('/group', { name: row.group })} title=${row.group}>${row.group}</a>` },
  { key: 'state', title: texts.words.state, width: 130, sort: 'state', cell: (row) => html`<span class="group-state" data-state=${row.state}>${row.state}</span>` },
  { key: 'members', title: texts.words.members, width: 92, sort: 'members', isFirstDown: true, align: 'end', cell: (row) => count(row.members) },
  { key: 'topics', title: texts.words.topics, width: 80, sort: 'topics', isFirstDown: true, align: 'end', isWide: true, cell: (row) => count(row.topics) },
  { key: 'lag', title: texts.words.lag, hint: texts.groupsScreen.recordsNotReadYet, width: 110, sort: 'lag', isFirstDown: true, align: 'end', cell: (row) => count(row.lag) },
  { key: 'lag_s', title: texts.groupsScreen.behind, hint: texts.groupsScreen.howOldTheFirstUnread, width: 100, sort: 'lag_s', isFirstDown: true, align: 'end', cell: (row) => html`<${LagTime} seconds=${row.lag_s} />` },
  { key: 'since', title: texts.words.since, hint: texts.groupsScreen.whenItWasFirstSeen, width: 100, align: 'end', isWide: true, cell: (row) => time(row.since_ms) },
  { key: 'level', title: texts.groupsScreen.levelAt, hint: texts.groupsScreen.whenItHasReadEverything, width: 100, align: 'end', isWide: true, cell: (row) => time(row.level_ms) },
  { key: 'protocol', title: texts.groupsScreen.protocol, width: 110, isWide: true, cell: (row) => row.protocol || '–' },
  { key: 'coordinator', title: texts.groupsScreen.coordinator, width: 100, isWide: true, cell: (row) => html`<${BrokerLink} id=${row.coordinator} />` },
];

export function Groups() {
  const filters = { q: param('q') ?? '', sort: param('sort') ?? 'name', desc: param('desc') ?? '0' };
  const answer = useRoute('/api/groups', { ...filters, limit: LIMIT }, { screen: 'groups' });
  const data = /** @type {{total: number, matched: number, rows: GroupRow[], age_ms: number|null, problem: string|null}|null} */ (answer.data);
  useNow(1000);
  const age = data && data.age_ms !== null && answer.envelope ? data.age_ms + serverNow() - answer.envelope.now_ms : null;
  return html`
    <div class="tools">
      <input type="search" class="filter" aria-label=${texts.groupsScreen.filterGroupsByName} placeholder=${texts.groupsScreen.filterByName} value=${filters.q} spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setParams({ q: event.currentTarget.value }, { replace: true })} />
      <span class="grow"></span>
      <span class="found" role="status">${data ? `${plural(data.matched, texts.nouns.group)}${age === null ? '' : texts.groupsScreen.readAgoOf(duration(age))}` : ''}</span>
      <a class="button" href=${address('/api/groups', { ...filters, format: 'csv', at: atMs() })} download>${texts.words.csv}</a>
    </div>
    ${data?.problem && html`<p class="warning" role="status">${data.problem}</p>`}
    ${!data
      ? html`<${Waiting} ...${answer} />`
      : html`<${Table} label=${texts.words.groups} isTall columns=${COLUMNS} count=${data.rows.length} row=${(/** @type {number} */ index) => data.rows[index] ?? null} keyOf=${(/** @type {GroupRow} */ row) => row.group}
          sort=${filters.sort} isDown=${filters.desc === '1'} markOf=${(/** @type {GroupRow} */ row) => `${row.state} ${row.members}`} empty=${data.problem ? null : filters.q ? texts.empty.groupsFilter : texts.empty.groups} />
        ${data.matched > data.rows.length && html`<p class="hint">${texts.firstRows(count(data.rows.length), count(data.matched))}</p>`}`}`;
}

const VALUES = {
  name: (/** @type {GroupPartition} */ row) => `${row.topic} ${row.partition}`,
  lag: (/** @type {GroupPartition} */ row) => row.lag,
  lag_s: (/** @type {GroupPartition} */ row) => row.lag_s,
};

export function GroupScreen() {
  const name = param('name') ?? '';
  const [shown, setShown] = useState('');
  const answer = useRoute('/api/group', { name }, { screen: 'group', live: { name } });
  const told = /** @type {GroupPage|null} */ (answer.data);
  /** The last answer with members: they stay while their coordinator gives none. */
  const known = useRef(/** @type {GroupPage|null} */ (null));
  if (told && !told.problem) known.current = told;
  const last = known.current?.group === told?.group ? known.current : null;
  const data = told?.problem && last ? { ...told, members: last.members, assigned: last.assigned } : told;
  if (!data || data.group !== name) return html`<${Waiting} ...${answer} />`;
  const { rows, sort, isDown } = sorted(data.partitions, VALUES, 'lag', true);
  const close = () => setShown('');
  /** @type {[string, string][]} */
  const topics = [...new Set(data.partitions.map((each) => each.topic))].sort().map((each) => [each, each]);
  return html`
    <section class="summary" aria-label=${texts.words.summary}>
      <span class="group-state" data-state=${data.state}>${data.state}</span>
      <span>${plural(data.members.length, texts.nouns.member)}</span>
      <span>${texts.groupsScreen.lag} <strong>${count(data.lag)}</strong></span><span>${texts.groupsScreen.behindLower} <strong><${LagTime} seconds=${data.lag_s} /></strong></span>
      ${data.since_ms !== null && html`<span>${texts.groupsScreen.since} <strong>${time(data.since_ms)}</strong></span>`}
      ${data.level_ms !== null && html`<span>${texts.groupsScreen.levelAtLower} <strong>${time(data.level_ms)}</strong></span>`}
      <span>${texts.groupsScreen.coordinatorLower} <strong><${BrokerLink} id=${data.coordinator} /></strong></span>
      ${data.protocol && html`<span>${texts.groupsScreen.protocolLower} <strong>${data.protocol}</strong></span>`}
      <span class="grow"></span>
      <a class="button" href=${address('/api/group', { name, format: 'csv', at: atMs() })} download>${texts.words.csv}</a>
      ${can('operator') && html`<button onClick=${() => setShown('reset')}>${texts.groupsScreen.resetOffsets}</button>`}
      ${can('admin') && html`<button disabled=${data.partitions.length === 0} onClick=${() => setShown('offsets')}>${texts.groupsScreen.deleteOffsets}</button><button onClick=${() => setShown('delete')}>${texts.groupsScreen.delete}</button>`}
    </section>
    ${data.problem && html`<p class="warning" role="status">${data.problem}</p>`}
    <section class="panel" aria-label=${texts.assignment.title}><h2>${texts.assignment.title}</h2>
      <${AssignmentOf} group=${data} /></section>
    <section class="panel" aria-label=${texts.groupsScreen.offsets}><h2>${texts.groupsScreen.offsets}</h2>
      <${Table} label=${texts.groupsScreen.offsetsByPartition} count=${rows.length} isTall=${rows.length > 60} row=${(/** @type {number} */ index) => rows[index] ?? null} keyOf=${(/** @type {GroupPartition} */ row) => `${row.topic}-${row.partition}`}
        sort=${sort} isDown=${isDown} empty=${texts.empty.offsets} columns=${[
          { key: 'name', title: texts.words.partition, sort: 'name', cell: (/** @type {GroupPartition} */ row) => html`<${PartitionLink} topic=${row.topic} partition=${row.partition} />` },
          { key: 'committed', title: texts.groupsScreen.committed, width: 110, align: /** @type {const} */ ('end'), cell: (/** @type {GroupPartition} */ row) => count(row.committed) },
          { key: 'end', title: texts.words.end, width: 110, align: /** @type {const} */ ('end'), cell: (/** @type {GroupPartition} */ row) => count(row.end_offset) },
          { key: 'lag', title: texts.words.lag, width: 100, sort: 'lag', isFirstDown: true, align: /** @type {const} */ ('end'), cell: (/** @type {GroupPartition} */ row) => count(row.lag) },
          { key: 'lag_s', title: texts.groupsScreen.behind, width: 100, sort: 'lag_s', isFirstDown: true, align: /** @type {const} */ ('end'), cell: (/** @type {GroupPartition} */ row) => html`<${LagTime} seconds=${row.lag_s} />` },
          { key: 'member', title: texts.words.member, width: 200, isWide: true, cell: (/** @type {GroupPartition} */ row) => html`<span title=${row.member ?? ''}>${row.member ?? '–'}</span>` },
        ]} /></section>
    ${shown === 'reset' && html`<${ActionDialog} title=${texts.groupsScreen.resetOffsetsOf(name)} verb=${texts.groupsScreen.reset} isDanger onClose=${close} fields=${[
      { name: 'to', title: texts.words.to, value: 'latest', choices: [['earliest', texts.groupsScreen.theFirstRecords], ['latest', texts.groupsScreen.theEnd], ['time', texts.groupsScreen.aTime], ['offset', texts.groupsScreen.anOffset], ['shift', texts.groupsScreen.byANumberOfRecords]] },
      { name: 'value', title: texts.words.value, hint: texts.groupsScreen.anOffsetANumberOf(texts.timeHint) },
      { name: 'topic', title: texts.groupsScreen.ofTheTopic, choices: [['', texts.groupsScreen.everyTopic], ...topics] },
    ]} act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => {
      const chosen = data.partitions.filter((each) => values.topic === '' || each.topic === values.topic);
      return post('/api/actions/reset-offsets', {
        group: name,
        to: values.to,
        value: resetValue(values.to, values.value),
        partitions: chosen.map(({ topic, partition }) => ({ topic, partition })),
        dry_run: isDry,
      });
    }} />`}
    ${shown === 'offsets' && html`<${ActionDialog} title=${texts.groupsScreen.deleteOffsetsOf(name)} verb=${texts.groupsScreen.deleteTheOffsets} isDanger onClose=${close} onDone=${answer.reload}
      fields=${[{ name: 'topic', title: texts.groupsScreen.ofTopic, value: data.partitions[0]?.topic ?? '', choices: topics }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/delete-offsets', { group: name, topic: values.topic, dry_run: isDry })} />`}
    ${shown === 'delete' && html`<${ActionDialog} title=${texts.words.deleteOf(name)} verb=${texts.groupsScreen.deleteTheGroup} isDanger onClose=${close} onDone=${() => go(href('/groups'))}
      fields=${[{ name: 'confirm', title: texts.groupsScreen.typeTheNameOfThe(name) }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/delete-group', { group: name, confirm: values.confirm, dry_run: isDry })} />`}`;
}

/** Returns the value of a reset as the server reads it. Throws for a text that is none. @param {string} to @param {string} text */
function resetValue(to, text) {
  if (to === 'earliest' || to === 'latest') return null;
  const found = to === 'time' ? timeOf(text) : text.trim() === '' ? Number.NaN : Number(text);
  if (found === null || !Number.isInteger(found)) throw new Error(to === 'time' ? texts.messages.noTime(text) : texts.noNumber(text));
  return found;
}
