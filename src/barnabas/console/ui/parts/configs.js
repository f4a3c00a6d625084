// Settings with their origin.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { can, post } from '../core/api.js';
import { useRoute } from '../core/data.js';
import { asFile } from '../core/plan.js';
import { param, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { Table } from './table.js';
import { ActionDialog } from './action_dialog.js';
import { Waiting } from './state_of_answer.js';
/** @import { Config } from '../core/types.js' */

/** @typedef {'topic'|'broker'|'cluster'} Kind */

/**
 * Changes one setting; an empty value removes it.
 * @param {Kind} kind
 * @param {string|number} name
 * @param {string} key
 * @param {string} value
 * @param {boolean} isDry
 */
function alter(kind, name, key, value, isDry) {
  const [set, remove] = value === '' ? [{}, [key]] : [{ [key]: value }, []];
  return post('/api/actions/alter-configs', { kind, name: String(name), set, remove, dry_run: isDry });
}

/** The dynamic settings that all brokers have which have none of their own. */
export function ClusterDefaults() {
  const answer = useRoute('/api/cluster-configs', {}, { isStill: true });
  const [isAdding, setAdding] = useState(false);
  const data = /** @type {{configs: Config[]|null, configs_problem: string|null}|null} */ (answer.data);
  return html`<section class="panel" aria-label=${texts.defaults.title}><h2>${texts.defaults.title} ${data?.configs && can('admin') && html`<button class="small" onClick=${() => setAdding(true)}>${texts.defaults.add}</button>`}</h2>
    <p class="hint">${texts.defaults.hint}</p>
    ${!data
      ? html`<${Waiting} ...${answer} />`
      : data.configs?.length === 0
        ? html`<p class="empty">${texts.defaults.none}</p>`
        : html`<${Configs} configs=${data.configs} problem=${data.configs_problem} kind="cluster" name="" reload=${answer.reload} />`}
    ${isAdding && html`<${ActionDialog} title=${texts.defaults.add} verb=${texts.words.set} onClose=${() => setAdding(false)} onDone=${answer.reload}
      fields=${[{ name: 'name', title: texts.words.setting, hint: texts.defaults.nameHint }, { name: 'value', title: texts.words.value }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => alter('cluster', '', values.name.trim(), values.value, isDry)} />`}</section>`;
}

/** Returns settings with their values, as a file. @param {Config[]} rows */
function fileOf(rows) {
  const known = rows.filter((each) => !each.is_sensitive).map(({ name, value }) => [name, value]);
  return asFile(JSON.stringify(Object.fromEntries(known), null, 2));
}

/** @param {{configs: Config[]|null, problem: string|null, kind: Kind, name: string|number, reload: () => void}} props */
export function Configs({ configs, problem, kind, name, reload }) {
  const [edited, setEdited] = useState(/** @type {Config|null} */ (null));
  if (!configs) return html`<p class="empty">${problem ?? texts.configs.theConfigurationWasNotRead}</p>`;
  const text = (param('config') ?? '').toLowerCase();
  const isOwn = param('own') === '1';
  const rows = configs.filter((each) => each.name.toLowerCase().includes(text) && (!isOwn || each.origin !== 'default'));
  const mayEdit = can(kind === 'topic' ? 'operator' : 'admin');
  return html`
    <div class="tools">
      <input type="search" class="filter" aria-label=${texts.configs.filterSettings} placeholder=${texts.configs.filterSettings} value=${param('config') ?? ''} spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setParams({ config: event.currentTarget.value }, { replace: true })} />
      <label class="check"><input type="checkbox" checked=${isOwn} onChange=${(/** @type {any} */ event) => setParams({ own: event.currentTarget.checked ? 1 : null })} /> ${texts.configs.onlyThoseThatWereSet}</label>
      <span class="grow"></span><a class="button" href=${fileOf(rows)} download=${`${[kind, name].filter((each) => each !== '').join('-')}.json`} aria-label=${texts.files.of(texts.words.configuration, texts.words.json)}>${texts.words.json}</a>
    </div>
    <${Table} label=${texts.words.configuration} count=${rows.length} row=${(/** @type {number} */ index) => rows[index] ?? null} keyOf=${(/** @type {Config} */ row) => row.name}
      isTall=${rows.length > 60} empty=${texts.empty.configs} columns=${[
        { key: 'name', title: texts.words.setting, width: 330, cell: (/** @type {Config} */ row) => html`<span class="code" title=${row.doc ?? ''}>${row.name}</span>` },
        { key: 'value', title: texts.words.value, cell: (/** @type {Config} */ row) => html`<span class=${row.origin === 'default' ? 'code muted' : 'code'} title=${row.value ?? ''}>${row.is_sensitive ? texts.configs.hidden : row.value === '' ? texts.configs.empty : (row.value ?? '–')}</span>` },
        { key: 'origin', title: texts.configs.origin, width: 110, cell: (/** @type {Config} */ row) => html`<span class=${row.origin === 'default' ? 'muted' : 'chip plain'}>${row.origin}</span>` },
        { key: 'edit', title: texts.words.change, width: 70, align: 'end', cell: (/** @type {Config} */ row) =>
          mayEdit && !row.is_read_only ? html`<button class="small" aria-label=${texts.configs.editOf(row.name)} onClick=${() => setEdited(row)}>${texts.configs.edit}</button>` : '' },
      ]} />
    ${edited && html`<${ActionDialog} title=${texts.configs.setOf(edited.name)} onClose=${() => setEdited(null)} onDone=${reload} verb=${texts.words.set}
      fields=${[{ name: 'value', title: texts.configs.newValueOfForEmpty(edited.name, kind === 'cluster' ? texts.defaults.all : `${kind} ${name}`), value: edited.value ?? '', hint: edited.default === null ? '' : texts.defaults.of(edited.default) }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => alter(kind, name, edited.name, values.value, isDry)} />`}`;
}
