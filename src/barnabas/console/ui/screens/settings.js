// Settings: what this console is, and who changed what with it.
import { useEffect, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { address, get, has, session } from '../core/api.js';
import { asApiError, shown, useStatus } from '../core/data.js';
import { atMs, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { moment } from '../core/format.js';
import { setTheme, theme } from '../core/theme.js';
import { Acls, Quotas, ScramUsers } from '../parts/rights.js';
import { Table } from '../parts/table.js';

/** @typedef {{id: number, time_ms: number, user: string, role: string, address: string, cluster: string, action: string,
 *   arguments: unknown, result: string, text: string}} Entry */

export function Settings() {
  const mine = session.value;
  const [audit, setAudit] = useState(/** @type {{entries: Entry[]|null, problem: string}} */ ({ entries: null, problem: '' }));
  const at = atMs();
  useStatus('settings');
  useEffect(() => {
    const abort = new AbortController();
    void get('/api/audit', { limit: 200 }, { signal: abort.signal })
      .then((answer) => {
        shown.value = { ...answer, data: null };
        const data = /** @type {any} */ (answer.data ?? answer);
        setAudit({ entries: data.entries ?? [], problem: '' });
      })
      .catch((error) => !abort.signal.aborted && setAudit({ entries: null, problem: asApiError(error).message }));
    return () => abort.abort();
  }, [at]);
  const history = mine?.history;
  return html`
    <div class="columns">
      <section class="panel" aria-label="This console"><h2>This console</h2>
        <dl class="facts-list">
          <div><dt>Version</dt><dd>${mine?.version ?? '?'}</dd></div>
          <div><dt>User</dt><dd>${mine?.user ?? 'nobody'} (${mine?.role ?? 'no role'})</dd></div>
          <div><dt>Changes</dt><dd>${mine?.read_only ? 'off: the console is read-only' : 'on, as the role allows'}</dd></div>
          <div><dt>History</dt><dd>${history ? `since ${moment(history.first_ms)}` : 'not recorded'}</dd></div>
          <div><dt>Clusters</dt><dd>${mine?.clusters.map((each) => each.name).join(', ')}</dd></div>
        </dl></section>
      <section class="panel" aria-label="This browser"><h2>This browser</h2>
        <div class="choices" role="group" aria-label="Theme">
          <button class="choice" aria-pressed=${theme.value === 'light'} onClick=${() => setTheme('light')}>Light</button>
          <button class="choice" aria-pressed=${theme.value === 'dark'} onClick=${() => setTheme('dark')}>Dark</button></div>
        ${at !== null && html`<p><button onClick=${() => setParams({ at: null })}>${texts.backToLive}</button></p>`}</section>
    </div>
    ${has('operator') && !mine?.is_restricted && at === null && html`<${Acls} /><${ScramUsers} /><${Quotas} />`}
    <section class="panel" aria-label="Audit"><h2>What was changed with this console</h2>
      <p class="tools"><span class="grow"></span><a class="button" href=${address('/api/audit', { limit: 1000, format: 'csv' })} download>CSV</a></p>
      ${audit.problem
        ? html`<p class="empty">${audit.problem}</p>`
        : html`<${Table} label="Entries of the audit" count=${audit.entries?.length ?? 0} isTall=${(audit.entries?.length ?? 0) > 60} row=${(/** @type {number} */ index) => audit.entries?.[index] ?? null} keyOf=${(/** @type {Entry} */ row) => String(row.id)}
            empty=${audit.entries ? texts.empty.audit : ''} columns=${[
              { key: 'time', title: 'When', width: 176, cell: (/** @type {Entry} */ row) => moment(row.time_ms) },
              { key: 'user', title: 'Who', width: 150, cell: (/** @type {Entry} */ row) => `${row.user} (${row.role})` },
              { key: 'from', title: 'From', width: 120, isWide: true, cell: (/** @type {Entry} */ row) => row.address },
              { key: 'action', title: 'What', width: 150, cell: (/** @type {Entry} */ row) => row.action },
              { key: 'result', title: 'Result', width: 90, cell: (/** @type {Entry} */ row) => html`<span class=${['ok', 'begun'].includes(row.result) ? '' : 'bad'}>${row.result}</span>` },
              { key: 'text', title: 'Text', cell: (/** @type {Entry} */ row) => html`<span title=${JSON.stringify(row.arguments)}>${row.text}</span>` },
            ]} />`}</section>`;
}
