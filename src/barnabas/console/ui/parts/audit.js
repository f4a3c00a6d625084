// The audit log: who changed what with this console.
import { useEffect, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { address, changes, get, has } from '../core/api.js';
import { asApiError } from '../core/data.js';
import { texts } from '../core/texts.js';
import { moment } from '../core/format.js';
import { Table } from './table.js';

/** @typedef {{id: number, time_ms: number, user: string, role: string, address: string, cluster: string, action: string,
 *   arguments: unknown, result: string, text: string}} Entry */

const STEP = 200;
/** The most entries that the server sends at once. */
const MOST = 1_000;
const LOOK_MS = 10_000;

export function AuditLog() {
  const [found, setFound] = useState(/** @type {{entries: Entry[]|null, problem: string}} */ ({ entries: null, problem: '' }));
  const [limit, setLimit] = useState(STEP);
  const isAllowed = has('operator');
  const done = changes.value;
  // It is of the present in any moment, and others write to it as well.
  useEffect(() => {
    if (!isAllowed) return undefined;
    const abort = new AbortController();
    const look = async () => {
      if (document.visibilityState === 'hidden') return;
      try {
        const { data } = await get('/api/audit', { limit }, { signal: abort.signal });
        const { entries, problem } = /** @type {{entries: Entry[], problem: string|null}} */ (data);
        setFound({ entries, problem: problem ?? '' });
      } catch (error) {
        if (!abort.signal.aborted) setFound((old) => ({ ...old, problem: asApiError(error).message }));
      }
    };
    void look();
    const timer = setInterval(look, LOOK_MS);
    return () => {
      abort.abort();
      clearInterval(timer);
    };
  }, [isAllowed, limit, done]);

  const entries = found.entries ?? [];
  return html`<section class="panel" aria-label=${texts.audit.audit}><h2>${texts.audit.whatWasChangedWithThis}</h2>
    ${isAllowed
      ? html`<p class="tools"><span class="grow"></span><a class="button" href=${address('/api/audit', { limit: MOST, format: 'csv' })} download>${texts.words.csv}</a></p>`
      : html`<p class="empty">${texts.auditRole}</p>`}
    ${found.problem && html`<p class="warning" role="status">${found.problem}</p>`}
    ${found.entries && html`<${Table} label=${texts.audit.entriesOfTheAudit} count=${entries.length} isTall=${entries.length > 60} row=${(/** @type {number} */ index) => entries[index] ?? null} keyOf=${(/** @type {Entry} */ row) => String(row.id)}
      empty=${texts.empty.audit} columns=${[
        { key: 'time', title: texts.audit.when, width: 176, cell: (/** @type {Entry} */ row) => moment(row.time_ms) },
        { key: 'user', title: texts.audit.who, width: 150, cell: (/** @type {Entry} */ row) => `${row.user} (${row.role})` },
        { key: 'from', title: texts.words.from, width: 120, isWide: true, cell: (/** @type {Entry} */ row) => row.address },
        { key: 'action', title: texts.audit.what, width: 150, cell: (/** @type {Entry} */ row) => row.action },
        { key: 'result', title: texts.audit.result, width: 90, cell: (/** @type {Entry} */ row) => html`<span class=${['ok', 'begun'].includes(row.result) ? '' : 'bad'}>${row.result}</span>` },
        { key: 'text', title: texts.audit.text, cell: (/** @type {Entry} */ row) => html`<span title=${JSON.stringify(row.arguments)}>${row.text}</span>` },
      ]} />
      ${entries.length === limit && limit < MOST && html`<p><button onClick=${() => setLimit(limit + STEP)}>${texts.audit.earlierEntries}</button></p>`}`}</section>`;
}
