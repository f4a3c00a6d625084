// The changes of the topics that are chosen in the list: each says what it does with each topic.
import { useEffect, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { can, get, post } from '../core/api.js';
import { chooseAll, chooseOnly } from '../core/chosen.js';
import { asApiError } from '../core/data.js';
import { plural } from '../core/format.js';
import { texts } from '../core/texts.js';
import { param, setParams } from '../core/url.js';
import { ActionDialog } from './action_dialog.js';
import { Dialog } from './dialog.js';
/** @import { Chosen } from '../core/chosen.js' */
/** @import { Field } from './action_dialog.js' */

/** What the server takes at once. */
const TOPICS_MAX = 1_000;
const PAGE = 1_000;
const NAMED = 5;

/** @typedef {'configs'|'partitions'|'records'|'delete'} Name */
/**
 * @typedef {{title: (topics: string) => string, verb: string, button: string, role: 'operator'|'admin', route: string, isDanger?: boolean,
 *   lead?: string, fields: (count: number) => Field[], body: (values: Record<string, string>) => object}} Change
 */
const confirm = (/** @type {number} */ count) => [{ name: 'confirm', title: texts.manyTopics.confirm(count) }];
/** @type {Record<Name, Change>} */
const CHANGES = {
  configs: {
    ...texts.manyTopics.configs,
    role: 'operator',
    route: '/api/actions/alter-configs-of-topics',
    fields: () => [
      { name: 'name', title: texts.words.setting, hint: texts.manyTopics.settingHint },
      { name: 'value', title: texts.manyTopicsPart.newValue, hint: texts.manyTopics.valueHint },
    ],
    body: ({ name = '', value = '' }) => ({ set: value === '' ? {} : { [name]: value }, remove: value === '' && name ? [name] : [] }),
  },
  partitions: {
    ...texts.manyTopics.partitions,
    role: 'operator',
    route: '/api/actions/add-partitions-to-topics',
    fields: () => [{ name: 'partitions', title: texts.words.partitionsInTotal, type: 'number', value: '', hint: texts.manyTopics.partitionsHint }],
    body: ({ partitions }) => ({ partitions: Number(partitions) }),
  },
  records: {
    ...texts.manyTopics.records,
    role: 'admin',
    route: '/api/actions/delete-records-of-topics',
    isDanger: true,
    fields: confirm,
    body: ({ confirm: text }) => ({ confirm: text }),
  },
  delete: {
    ...texts.manyTopics.delete,
    role: 'admin',
    route: '/api/actions/delete-topics',
    isDanger: true,
    fields: confirm,
    body: ({ confirm: text }) => ({ confirm: text }),
  },
};

/** The line above the list while topics are chosen. @param {{chosen: Chosen}} props */
export function ChosenBar({ chosen }) {
  return html`<div class="tools chosen-bar" role="group" aria-label=${texts.chosen.label}>
    <strong role="status">${texts.chosen.count(plural(chosen.count, texts.nouns.topic))}</strong>
    ${Object.entries(CHANGES).map(
      ([name, { button, role }]) => can(role) && html`<button key=${name} onClick=${() => setParams({ do: name })}>${button}</button>`,
    )}
    <span class="grow"></span>
    <button onClick=${() => chooseAll(false)}>${texts.chosen.none}</button></div>`;
}

/** The dialog of the change that the address names. @param {{chosen: Chosen, filters: Record<string, string>, onDone: () => void}} props */
export function ManyTopicsDialog({ chosen, filters, onDone }) {
  const name = param('do') ?? '';
  const change = Object.hasOwn(CHANGES, name) ? CHANGES[/** @type {Name} */ (name)] : null;
  if (!change || !can(change.role) || chosen.count === 0) return null;
  return html`<${Change} key=${name} change=${change} chosen=${chosen} filters=${filters} onDone=${onDone} />`;
}

/** @param {{change: Change, chosen: Chosen, filters: Record<string, string>, onDone: () => void}} props */
function Change({ change, chosen, filters, onDone }) {
  const [names, setNames] = useState(/** @type {string[]|null} */ (chosen.isAll ? null : [...chosen.names]));
  const [problem, setProblem] = useState('');
  // The topics of the dialog are those at its beginning: what it shows is what it does.
  useEffect(() => {
    const abort = new AbortController();
    void namesOf(chosen, filters, abort.signal)
      .then(setNames)
      .catch((error) => !abort.signal.aborted && setProblem(asApiError(error).message));
    return () => abort.abort();
  }, []);
  const close = () => setParams({ do: null }, { replace: true });
  const count = names?.length ?? chosen.count;
  const title = change.title(plural(count, texts.nouns.topic));
  if (!names || count > TOPICS_MAX) {
    const text = problem || (names ? texts.manyTopics.tooMany(plural(TOPICS_MAX, texts.nouns.topic)) : texts.manyTopics.waiting);
    return html`<${Dialog} title=${title} onClose=${close}><p role="status">${text}</p>
      <div class="form-buttons"><button onClick=${close}>${texts.words.close}</button></div><//>`;
  }
  const more = count > NAMED ? texts.manyTopics.more(count - NAMED) : '';
  return html`<${ActionDialog} title=${title} verb=${change.verb} isDanger=${change.isDanger ?? false} onClose=${close} fields=${change.fields(count)}
    lead=${html`${change.lead} <span class="code wrap">${names.slice(0, NAMED).join(', ')}</span>${more}`}
    act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post(change.route, { topics: names, ...change.body(values), dry_run: isDry })}
    onDone=${(/** @type {{subject: string, ok: boolean}[]} */ results) => {
      chooseOnly(results.filter((each) => !each.ok).map((each) => each.subject));
      onDone();
    }} />`;
}

/**
 * Returns the names of the chosen topics; at most one more than the server takes.
 * @param {Chosen} chosen
 * @param {Record<string, string>} filters
 * @param {AbortSignal} signal
 */
async function namesOf({ isAll, names }, filters, signal) {
  if (!isAll) return [...names];
  /** @type {string[]} */
  const found = [];
  for (let offset = 0; found.length <= TOPICS_MAX; offset += PAGE) {
    const { data } = await get('/api/topics', { ...filters, offset, limit: PAGE }, { signal });
    const { rows, matched } = /** @type {{rows: {topic: string}[], matched: number}} */ (data ?? { rows: [], matched: 0 });
    found.push(...rows.map((each) => each.topic).filter((each) => !names.has(each)));
    if (offset + PAGE >= matched) break;
  }
  return found;
}
