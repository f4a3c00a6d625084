// Settings with their origin.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { can, post } from '../core/api.js';
import { param, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { Table } from './table.js';
import { ActionDialog } from './action_dialog.js';
/** @import { Config } from '../core/types.js' */

/** @param {{configs: Config[]|null, problem: string|null, kind: 'topic'|'broker', name: string|number}} props */
export function Configs({ configs, problem, kind, name }) {
  const [edited, setEdited] = useState(/** @type {Config|null} */ (null));
  if (!configs) return html`<p class="empty">${problem ?? 'The configuration was not read.'}</p>`;
  const text = (param('config') ?? '').toLowerCase();
  const isOwn = param('own') === '1';
  const rows = configs.filter((each) => each.name.includes(text) && (!isOwn || each.origin !== 'default'));
  const mayEdit = can(kind === 'topic' ? 'operator' : 'admin');
  return html`
    <div class="tools">
      <input type="search" class="filter" aria-label="Filter settings" placeholder="Filter settings" value=${param('config') ?? ''} spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setParams({ config: event.currentTarget.value }, { replace: true })} />
      <label class="check"><input type="checkbox" checked=${isOwn} onChange=${(/** @type {any} */ event) => setParams({ own: event.currentTarget.checked ? 1 : null })} /> only those that were set</label>
    </div>
    <${Table} label="Configuration" count=${rows.length} row=${(/** @type {number} */ index) => rows[index] ?? null} keyOf=${(/** @type {Config} */ row) => row.name}
      isTall=${rows.length > 60} empty=${texts.empty.configs} columns=${[
        { key: 'name', title: 'Setting', width: 330, cell: (/** @type {Config} */ row) => html`<span class="code" title=${row.doc ?? ''}>${row.name}</span>` },
        { key: 'value', title: 'Value', cell: (/** @type {Config} */ row) => html`<span class=${row.origin === 'default' ? 'code muted' : 'code'} title=${row.value ?? ''}>${row.is_sensitive ? '(hidden)' : row.value === '' ? '(empty)' : (row.value ?? '–')}</span>` },
        { key: 'origin', title: 'Origin', width: 110, cell: (/** @type {Config} */ row) => html`<span class=${row.origin === 'default' ? 'muted' : 'chip plain'}>${row.origin}</span>` },
        { key: 'edit', title: 'Change', width: 70, align: 'end', cell: (/** @type {Config} */ row) =>
          mayEdit && !row.is_read_only ? html`<button class="small" aria-label=${`Edit ${row.name}`} onClick=${() => setEdited(row)}>Edit</button>` : '' },
      ]} />
    ${edited && html`<${ActionDialog} title=${`Set ${edited.name}`} onClose=${() => setEdited(null)} verb="Set"
      fields=${[{ name: 'value', title: `New value of ${edited.name} for ${kind} ${name}; empty returns to the default`, value: edited.value ?? '' }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) =>
        post('/api/actions/alter-configs', {
          kind,
          name: String(name),
          set: values.value === '' ? {} : { [edited.name]: values.value },
          remove: values.value === '' ? [edited.name] : [],
          dry_run: isDry,
        })} />`}`;
}
