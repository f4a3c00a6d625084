// Topics: which are there, how big, how busy, how safe? 10,000 rows, of which only those in sight are fetched.
import { useCallback, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { address, can, get } from '../core/api.js';
import { chooseAll, choose, chosenRows } from '../core/chosen.js';
import { asApiError, note, throttled } from '../core/data.js';
import { openStream } from '../core/live.js';
import { atMs, param, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { bytes, count, plural, policyText, rate } from '../core/format.js';
import { PartitionLink, State } from '../parts/badges.js';
import { Table } from '../parts/table.js';
import { Waiting } from '../parts/state_of_answer.js';
import { ChosenBar, ManyTopicsDialog } from '../parts/many_topics.js';
import { CreateTopic } from '../parts/topic_dialogs.js';
/** @import { Column } from '../parts/table.js' */
/** @import { Policy, TopicRow, Severity } from '../core/types.js' */

const PAGE = 100;
const PAGES_KEPT = 60;
const POLICIES_MS = 15_000;

/** @typedef {Map<string, Policy>} Policies */

/** @param {Policies} policies @param {string|null} problem @returns {Column<TopicRow>[]} */
const columnsOf = (policies, problem) => [
  { key: 'name', title: texts.words.topic, sort: 'name', cell: (row) => html`<${PartitionLink} topic=${row.topic} />${row.is_internal && html`<span class="chip plain">${texts.words.internalLower}</span>`}` },
  { key: 'state', title: texts.words.state, width: 146, sort: 'severity', isFirstDown: true, cell: (row) => html`<${State} severity=${row.severity} text=${row.state} />` },
  { key: 'partitions', title: texts.words.partitions, width: 98, sort: 'partitions', isFirstDown: true, align: 'end', cell: (row) => count(row.partitions) },
  { key: 'out', title: texts.words.osr, hint: texts.topicsScreen.partitionsWithAReplicaOut, width: 60, sort: 'out_of_sync', isFirstDown: true, align: 'end', isWide: true, isExtra: true,
    cell: (row) => html`<span class=${row.out_of_sync ? 'bad' : 'nothing'}>${count(row.out_of_sync)}</span>` },
  { key: 'replication', title: texts.topicsScreen.rf, hint: texts.words.replicationFactor, width: 46, sort: 'replication', align: 'end', isWide: true, cell: (row) => count(row.replication) },
  { key: 'min', title: texts.topicsScreen.minIsr, hint: 'min.insync.replicas', width: 80, sort: 'min_isr', align: 'end', isWide: true, cell: (row) => count(row.min_isr) },
  { key: 'size', title: texts.words.size, hint: texts.topicsScreen.ofTheLeadersLogs, width: 82, sort: 'size', isFirstDown: true, align: 'end', cell: (row) => bytes(row.size_bytes) },
  { key: 'messages', title: texts.words.records, hint: texts.topicsScreen.endOffsetsMinusStartOffsets, width: 86, sort: 'messages', isFirstDown: true, align: 'end', isWide: true, isExtra: true, cell: (row) => count(row.messages) },
  { key: 'rate', title: texts.topicsScreen.written, hint: texts.topicsScreen.recordsASecond, width: 80, sort: 'rate', isFirstDown: true, align: 'end', isWide: true, cell: (row) => rate(row.rate) },
  { key: 'lag', title: texts.words.lag, hint: texts.topicsScreen.recordsThatGroupsHaveNot, width: 70, sort: 'lag', isFirstDown: true, align: 'end', isWide: true, cell: (row) => (row.groups === 0 ? html`<span class="nothing">–</span>` : count(row.lag)) },
  { key: 'policy', title: texts.topicsScreen.policy, hint: texts.policy.hint, width: 122, sort: 'policy', isWide: true, cell: (row) => policyCell(policies.get(row.topic), problem) },
];

/** @param {Policy|undefined} policy @param {string|null} problem */
function policyCell(policy, problem) {
  if (!policy) return problem ? html`<span class="unknown" title=${problem}>?</span>` : '';
  const full = texts.policy.full(policy.cleanup?.join(', ') ?? '?', policy.retention_ms ?? '?', policy.retention_bytes ?? '?');
  return html`<span title=${full}>${policyText(policy)}</span>`;
}

const SEVERITIES = /** @type {Severity[]} */ (['critical', 'error', 'warning', 'notice', 'ok']);

export function Topics() {
  const filters = {
    q: param('q') ?? '',
    state: param('state') ?? '',
    internal: param('internal') ?? '0',
    sort: param('sort') ?? 'name',
    desc: param('desc') ?? '0',
  };
  const { rows, total, matched, error, envelope, policies, problem, onRange, reload } = usePages(filters);
  const chosen = chosenRows(matched);
  const columns = useMemo(() => columnsOf(policies, problem), [policies, problem]);
  // Another filter matches other topics: “all that match” would silently be others.
  const filter = (/** @type {Record<string, string|number|null>} */ changes, /** @type {{replace?: boolean}} */ options = {}) =>
    setParams(chosen.isAll ? { ...changes, chosen: null, without: null } : changes, options);
  const states = new Set(filters.state.split(',').filter(Boolean));
  const toggle = (/** @type {Severity} */ severity) => {
    if (!states.delete(severity)) states.add(severity);
    filter({ state: [...states].join(',') });
  };
  const mayChange = can('operator');
  const choice = mayChange && {
    has: (/** @type {TopicRow} */ each) => chosen.has(each.topic),
    set: (/** @type {TopicRow[]} */ some, /** @type {boolean} */ isOn) => choose(chosenRows(matched), some.map((each) => each.topic), isOn),
    all: chosen.count === 0 ? false : chosen.count === matched ? true : null,
    setAll: chooseAll,
    allLabel: texts.chosen.all,
    label: (/** @type {TopicRow} */ each) => texts.chosen.one(each.topic),
  };
  const row = useCallback((/** @type {number} */ index) => rows.get(index) ?? null, [rows]);
  const csv = address('/api/topics', { ...filters, format: 'csv', at: atMs() });
  return html`
    <div class="tools">
      <input type="search" class="filter short-filter" aria-label=${texts.topicsScreen.filterTopicsByName} placeholder=${texts.topicsScreen.nameIsAnything} value=${filters.q} spellcheck=${false}
        onInput=${(/** @type {any} */ event) => filter({ q: event.currentTarget.value }, { replace: true })} />
      <span class="choices" role="group" aria-label=${texts.topicsScreen.states}>${SEVERITIES.map(
        (each) => html`<button key=${each} class="choice" aria-pressed=${states.has(each)} onClick=${() => toggle(each)} title=${texts.severityHelp[each]}>
          <${State} severity=${each} /></button>`,
      )}</span>
      <label class="check"><input type="checkbox" checked=${filters.internal === '1'} onChange=${(/** @type {any} */ event) => filter({ internal: event.currentTarget.checked ? 1 : null })} /> ${texts.words.internalLower}</label>
      <span class="grow"></span>
      <span class="found" role="status">${matched === null ? '' : matched === total ? plural(matched, texts.nouns.topic) : texts.words.ofOf(count(matched), plural(total ?? 0, texts.nouns.topic))}</span>
      <a class="button" href=${csv} download>${texts.words.csv}</a>
      ${can('operator') && html`<button onClick=${() => setParams({ do: 'create' })}>${texts.words.newTopic}</button>`}
    </div>
    ${chosen.count > 0 && mayChange && html`<${ChosenBar} chosen=${chosen} />`}
    ${matched === null
      ? html`<${Waiting} error=${error} envelope=${envelope} />`
      : html`<${Table} label=${texts.words.topics} isTall columns=${columns} choice=${choice} count=${matched} row=${row} keyOf=${(/** @type {TopicRow} */ each) => each.topic}
          sort=${filters.sort} isDown=${filters.desc === '1'} onRange=${onRange} markOf=${(/** @type {TopicRow} */ each) => `${each.severity} ${each.out_of_sync}`}
          empty=${total === 0 && !filters.q ? texts.empty.topics : texts.empty.topicsFilter} />`}
    <${ManyTopicsDialog} chosen=${chosen} filters=${filters} onDone=${reload} />
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
  const [known, setKnown] = useState({ policies: /** @type {Policies} */ (new Map()), problem: /** @type {string|null} */ (null) });
  const range = useRef({ from: 0, to: 60 });
  const loader = useRef({ load: (/** @type {boolean} */ _isAll) => {}, reload: () => {} });

  useLayoutEffect(() => {
    const abort = new AbortController();
    /** @type {Set<number>} */
    const fetched = new Set();
    /** When the policies of a page were asked for. @type {Map<number, number>} */
    const asked = new Map();
    /** @type {(() => void)|undefined} */
    let close;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    let timer;
    // The rows do not wait for what the brokers answer about their policies.
    const loadPolicies = async (/** @type {number} */ page) => {
      if (at !== null || performance.now() - (asked.get(page) ?? -POLICIES_MS) < POLICIES_MS) return;
      asked.set(page, performance.now());
      try {
        const { data } = await get('/api/topic-policies', { ...filters, offset: page * PAGE, limit: PAGE }, { signal: abort.signal });
        const { policies, problem } = /** @type {{policies: Record<string, Policy>, problem: string|null}} */ (data ?? { policies: {}, problem: null });
        setKnown((old) => ({ policies: new Map([...(old.policies.size < PAGES_KEPT * PAGE ? old.policies : []), ...Object.entries(policies)]), problem }));
      } catch (error) {
        asked.delete(page);
        if (!abort.signal.aborted) setKnown((old) => ({ ...old, problem: asApiError(error).message }));
      }
    };
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
        void loadPolicies(page);
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
    const reload = () => {
      asked.clear();
      load(true);
    };
    loader.current = { load, reload };
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
  const reload = useCallback(() => loader.current.reload(), []);
  return { ...state, ...known, onRange, reload };
}
