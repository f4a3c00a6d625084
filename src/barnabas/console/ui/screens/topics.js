// Topics: which are there, how big, how busy, how safe? 10,000 rows, of which only those in sight are fetched.
import { useCallback, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { address, can, get } from '../core/api.js';
import { asApiError, note, throttled } from '../core/data.js';
import { openStream } from '../core/live.js';
import { atMs, param, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { bytes, count, plural, rate } from '../core/format.js';
import { PartitionLink, State } from '../parts/badges.js';
import { Table } from '../parts/table.js';
import { Waiting } from '../parts/state_of_answer.js';
import { CreateTopic } from '../parts/topic_dialogs.js';
/** @import { Column } from '../parts/table.js' */
/** @import { TopicRow, Severity } from '../core/types.js' */

const PAGE = 100;
const PAGES_KEPT = 60;

/** @type {Column<TopicRow>[]} */
const COLUMNS = [
  { key: 'name', title: 'Topic', sort: 'name', cell: (row) => html`<${PartitionLink} topic=${row.topic} />${row.is_internal && html`<span class="chip plain">internal</span>`}` },
  { key: 'state', title: 'State', width: 146, sort: 'severity', isFirstDown: true, cell: (row) => html`<${State} severity=${row.severity} text=${row.state} />` },
  { key: 'partitions', title: 'Partitions', width: 98, sort: 'partitions', isFirstDown: true, align: 'end', cell: (row) => count(row.partitions) },
  { key: 'out', title: 'Out of sync', hint: 'Partitions with a replica out of sync', width: 110, sort: 'out_of_sync', isFirstDown: true, align: 'end', isWide: true,
    cell: (row) => html`<span class=${row.out_of_sync ? 'bad' : 'nothing'}>${count(row.out_of_sync)}</span>` },
  { key: 'replication', title: 'RF', hint: 'Replication factor', width: 50, sort: 'replication', align: 'end', isWide: true, cell: (row) => count(row.replication) },
  { key: 'min', title: 'Min ISR', hint: 'min.insync.replicas', width: 84, sort: 'min_isr', align: 'end', isWide: true, cell: (row) => count(row.min_isr) },
  { key: 'size', title: 'Size', hint: 'Of the leaders’ logs', width: 88, sort: 'size', isFirstDown: true, align: 'end', cell: (row) => bytes(row.size_bytes) },
  { key: 'messages', title: 'Records', hint: 'End offsets minus start offsets', width: 92, sort: 'messages', isFirstDown: true, align: 'end', isWide: true, cell: (row) => count(row.messages) },
  { key: 'rate', title: 'Written', hint: 'Records a second', width: 84, sort: 'rate', isFirstDown: true, align: 'end', isWide: true, cell: (row) => rate(row.rate) },
  { key: 'lag', title: 'Lag', hint: 'Records that groups have not read yet', width: 76, align: 'end', isWide: true, cell: (row) => (row.groups === 0 ? html`<span class="nothing">–</span>` : count(row.lag)) },
];
const SEVERITIES = /** @type {Severity[]} */ (['critical', 'error', 'warning', 'notice', 'ok']);

export function Topics() {
  const filters = {
    q: param('q') ?? '',
    state: param('state') ?? '',
    internal: param('internal') ?? '0',
    sort: param('sort') ?? 'name',
    desc: param('desc') ?? '0',
  };
  const { rows, total, matched, error, envelope, onRange } = usePages(filters);
  const states = new Set(filters.state.split(',').filter(Boolean));
  const toggle = (/** @type {Severity} */ severity) => {
    if (!states.delete(severity)) states.add(severity);
    setParams({ state: [...states].join(',') });
  };
  const row = useCallback((/** @type {number} */ index) => rows.get(index) ?? null, [rows]);
  const csv = address('/api/topics', { ...filters, format: 'csv', at: atMs() });
  return html`
    <div class="tools">
      <input type="search" class="filter short-filter" aria-label="Filter topics by name" placeholder="Name, * is anything" value=${filters.q} spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setParams({ q: event.currentTarget.value }, { replace: true })} />
      <span class="choices" role="group" aria-label="States">${SEVERITIES.map(
        (each) => html`<button key=${each} class="choice" aria-pressed=${states.has(each)} onClick=${() => toggle(each)} title=${texts.severityHelp[each]}>
          <${State} severity=${each} /></button>`,
      )}</span>
      <label class="check"><input type="checkbox" checked=${filters.internal === '1'} onChange=${(/** @type {any} */ event) => setParams({ internal: event.currentTarget.checked ? 1 : null })} /> internal</label>
      <span class="grow"></span>
      <span class="found" role="status">${matched === null ? '' : matched === total ? plural(matched, 'topic') : `${count(matched)} of ${plural(total ?? 0, 'topic')}`}</span>
      <a class="button" href=${csv} download>CSV</a>
      ${can('operator') && html`<button onClick=${() => setParams({ do: 'create' })}>New topic</button>`}
    </div>
    ${matched === null
      ? html`<${Waiting} error=${error} envelope=${envelope} />`
      : html`<${Table} label="Topics" isTall columns=${COLUMNS} count=${matched} row=${row} keyOf=${(/** @type {TopicRow} */ each) => each.topic}
          sort=${filters.sort} isDown=${filters.desc === '1'} onRange=${onRange} markOf=${(/** @type {TopicRow} */ each) => `${each.severity} ${each.out_of_sync}`}
          empty=${total === 0 && !filters.q ? texts.empty.topics : texts.empty.topicsFilter} />`}
    ${param('do') === 'create' && can('operator') && html`<${CreateTopic} onClose=${() => setParams({ do: null }, { replace: true })} />`}`;
}

/**
 * Keeps the pages of rows that are in sight.
 * @param {Record<string, string>} filters
 */
function usePages(filters) {
  const at = atMs();
  const key = JSON.stringify([filters, at, param('cluster')]);
  const [state, setState] = useState({
    key: '',
    rows: /** @type {Map<number, TopicRow>} */ (new Map()),
    total: /** @type {number|null} */ (null),
    matched: /** @type {number|null} */ (null),
    error: /** @type {any} */ (null),
    envelope: /** @type {any} */ (null),
  });
  const range = useRef({ from: 0, to: 60 });
  const loader = useRef({ load: (/** @type {boolean} */ _isAll) => {} });

  useLayoutEffect(() => {
    const abort = new AbortController();
    /** @type {Set<number>} */
    const fetched = new Set();
    /** @type {(() => void)|undefined} */
    let close;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    let timer;
    const loadPage = async (/** @type {number} */ page) => {
      fetched.add(page);
      try {
        const envelope = await get('/api/topics', { ...filters, at, offset: page * PAGE, limit: PAGE }, { signal: abort.signal });
        note(envelope);
        const data = /** @type {any} */ (envelope.data);
        if (!data) {
          fetched.delete(page);
          setState((old) => ({ ...old, envelope, error: null }));
          timer = setTimeout(() => load(true), 1000);
          return;
        }
        setState((old) => {
          const rows = old.key === key && old.rows.size < PAGES_KEPT * PAGE ? new Map(old.rows) : new Map();
          data.rows.forEach((/** @type {TopicRow} */ each, /** @type {number} */ place) => rows.set(data.offset + place, each));
          return { key, rows, total: data.total, matched: data.matched, error: null, envelope };
        });
        if (at === null && !close) {
          close = openStream('topics', {}, `${envelope.boot}.${envelope.version}`, {
            onStale: throttled(() => load(true), 1000),
            onReload: () => load(true),
          });
        }
      } catch (error) {
        fetched.delete(page);
        if (abort.signal.aborted) return;
        setState((old) => ({ ...old, error: asApiError(error) }));
        timer = setTimeout(() => load(true), 1000);
      }
    };
    const load = (/** @type {boolean} */ isAll) => {
      clearTimeout(timer);
      if (isAll) fetched.clear();
      const first = Math.floor(range.current.from / PAGE);
      const last = Math.floor(Math.max(0, range.current.to - 1) / PAGE);
      for (let page = first; page <= last; page += 1) if (!fetched.has(page)) void loadPage(page);
    };
    loader.current = { load };
    range.current = { from: 0, to: 60 };
    load(true);
    return () => {
      abort.abort();
      clearTimeout(timer);
      close?.();
    };
  }, [key]);

  const onRange = useCallback((/** @type {number} */ from, /** @type {number} */ to) => {
    range.current = { from, to: Math.max(to, from + 1) };
    loader.current.load(false);
  }, []);
  return { ...state, onRange };
}
