// Who may what: ACLs, SCRAM users and quotas, as lists with their changes.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { address, can, post } from '../core/api.js';
import { useRoute } from '../core/data.js';
import { texts } from '../core/texts.js';
import { ActionDialog } from './action_dialog.js';
import { Table } from './table.js';
/** @import { Acl, Quota, ScramUser } from '../core/types.js' */
/** @import { Field } from './action_dialog.js' */

const OPERATIONS = ['read', 'write', 'create', 'delete', 'alter', 'describe', 'describe-configs', 'alter-configs', 'cluster-action', 'idempotent-write', 'all'];
const RESOURCES = ['topic', 'group', 'cluster', 'transactional-id', 'delegation-token', 'user'];
const MECHANISMS = ['SCRAM-SHA-256', 'SCRAM-SHA-512'];
const QUOTAS = ['producer_byte_rate', 'consumer_byte_rate', 'request_percentage', 'controller_mutation_rate', 'connection_creation_rate'];

/** The files of a list, by the format that the server knows. */
const FILES = /** @type {const} */ ([['json-file', texts.words.json], ['csv', texts.words.csv]]);

/** @param {string[]} names @returns {[string, string][]} */
const choices = (names) => names.map((each) => [each, each]);

/**
 * A list, and the dialog that adds to it. `remove` is the dialog of a row.
 * @param {{title: string, route: string, columns: any[], keyOf: (row: any) => string, empty: string, add: string,
 *   fields: Field[], lead?: string, act: (values: any, isDry: boolean) => Promise<any>,
 *   remove: (row: any, isDry: boolean) => Promise<any>, named: (row: any) => string}} props
 */
function Rights({ title, route, columns, keyOf, empty, add, fields, lead, act, remove, named }) {
  const answer = useRoute(route, {}, { isStill: true });
  const data = /** @type {{rows: any[]|null, problem: string|null}|null} */ (answer.data);
  const [isAdding, setAdding] = useState(false);
  const [gone, setGone] = useState(/** @type {any} */ (null));
  const rows = data?.rows ?? [];
  const mayEdit = can('admin') && data?.rows !== null;
  const edit = { key: 'remove', title: texts.words.change, width: 90, align: 'end', cell: (/** @type {any} */ row) => html`<button class="small" aria-label=${texts.rights.removeOf(named(row))} onClick=${() => setGone(row)}>${texts.rights.remove}</button>` };
  return html`<section class="panel" aria-label=${title}><h2>${title} ${mayEdit && data && html`<button class="small" onClick=${() => setAdding(true)}>${add}</button>`}</h2>
    ${data?.rows && html`<p class="tools"><span class="grow"></span>${FILES.map(
      ([format, name]) => html`<a key=${format} class="button" href=${address(route, { format })} download aria-label=${texts.files.of(title, name)}>${name}</a>`,
    )}</p>`}
    ${answer.error && html`<p class="empty">${answer.error.message}</p>`}
    ${data?.problem && html`<p class="empty">${data.problem}</p>`}
    ${data?.rows && html`<${Table} label=${texts.rights.scrollableOf(title)} count=${rows.length} row=${(/** @type {number} */ index) => rows[index] ?? null} keyOf=${keyOf} isTall=${rows.length > 30}
      empty=${empty} columns=${mayEdit ? [...columns, edit] : columns} />`}
    ${isAdding && html`<${ActionDialog} title=${add} verb=${texts.words.set} fields=${fields} lead=${lead} act=${act} onDone=${answer.reload} onClose=${() => setAdding(false)} />`}
    ${gone && html`<${ActionDialog} title=${texts.rights.removeOf(named(gone))} verb=${texts.rights.remove} isDanger fields=${[]} act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) => remove(gone, isDry)} onDone=${answer.reload} onClose=${() => setGone(null)} />`}
  </section>`;
}

export function Acls() {
  return html`<${Rights} title=${texts.rights.acls} route="/api/acls" add=${texts.rights.addARule} empty=${texts.rights.thereIsNoRule} named=${(/** @type {Acl} */ row) => `${row.permission} ${row.principal} ${row.operation} ${row.resource} ${row.name}`}
    keyOf=${(/** @type {Acl} */ row) => JSON.stringify(row)} columns=${[
      { key: 'permission', title: texts.rights.rule, width: 80, cell: (/** @type {Acl} */ row) => html`<span class=${row.permission === 'deny' ? 'bad' : ''}>${row.permission}</span>` },
      { key: 'principal', title: texts.rights.principal, cell: (/** @type {Acl} */ row) => html`<span class="code" title=${row.principal}>${row.principal}</span>` },
      { key: 'operation', title: texts.rights.operation, width: 150, cell: (/** @type {Acl} */ row) => row.operation },
      { key: 'resource', title: texts.rights.resource, width: 130, cell: (/** @type {Acl} */ row) => row.resource },
      { key: 'name', title: texts.words.name, cell: (/** @type {Acl} */ row) => html`<span class="code" title=${row.name}>${row.name}${row.pattern === 'prefixed' ? '…' : ''}</span>` },
      { key: 'host', title: texts.words.from, width: 110, isWide: true, cell: (/** @type {Acl} */ row) => row.host },
    ]} fields=${[
      { name: 'permission', title: texts.rights.rule, choices: choices(['allow', 'deny']), value: 'allow' },
      { name: 'principal', title: texts.rights.principal, value: 'User:', hint: texts.rights.userIsEverybody },
      { name: 'operation', title: texts.rights.operation, choices: choices(OPERATIONS), value: 'read' },
      { name: 'resource', title: texts.rights.resource, choices: choices(RESOURCES), value: 'topic' },
      { name: 'pattern', title: texts.rights.names, choices: [['literal', texts.rights.thisNameIsEveryName], ['prefixed', texts.rights.allThatBeginWithIt]], value: 'literal' },
      { name: 'name', title: texts.words.name, hint: texts.rights.notNeededForTheCluster },
      { name: 'host', title: texts.rights.fromTheAddress, value: '*' },
    ]} act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/add-acl', { ...values, dry_run: isDry })}
    remove=${(/** @type {Acl} */ row, /** @type {boolean} */ isDry) => post('/api/actions/remove-acl', { ...row, dry_run: isDry })} />`;
}

export function ScramUsers() {
  return html`<${Rights} title=${texts.rights.scramUsers} route="/api/scram-users" add=${texts.rights.setAPassword} empty=${texts.rights.noUserHasAScram} named=${(/** @type {ScramUser} */ row) => `${row.user} ${row.mechanism}`}
    keyOf=${(/** @type {ScramUser} */ row) => `${row.user} ${row.mechanism}`} columns=${[
      { key: 'user', title: texts.words.user, cell: (/** @type {ScramUser} */ row) => html`<span class="code">${row.user}</span>` },
      { key: 'mechanism', title: texts.rights.mechanism, width: 160, cell: (/** @type {ScramUser} */ row) => row.mechanism },
      { key: 'iterations', title: texts.rights.iterations, width: 110, align: 'end', cell: (/** @type {ScramUser} */ row) => row.iterations },
    ]} fields=${[
      { name: 'user', title: texts.words.user },
      { name: 'mechanism', title: texts.rights.mechanism, choices: choices(MECHANISMS), value: MECHANISMS[1] },
      { name: 'password', title: texts.words.password, type: 'password' },
    ]} act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/set-scram-user', { ...values, dry_run: isDry })}
    remove=${(/** @type {ScramUser} */ row, /** @type {boolean} */ isDry) => post('/api/actions/remove-scram-user', { user: row.user, mechanism: row.mechanism, dry_run: isDry })} />`;
}

/** @param {Record<string, string|null>} entity */
function entityText(entity) {
  return Object.entries(entity).map(([kind, name]) => `${kind} ${name ?? texts.rights.default}`).join(', ');
}

export function Quotas() {
  return html`<${Rights} title=${texts.rights.quotas} route="/api/quotas" add=${texts.rights.setAQuota} empty=${texts.rights.thereIsNoQuota} named=${(/** @type {Quota} */ row) => texts.rights.theQuotasOf(entityText(row.entity))}
    keyOf=${(/** @type {Quota} */ row) => JSON.stringify(row.entity)} columns=${[
      { key: 'entity', title: texts.rights.of, width: 280, cell: (/** @type {Quota} */ row) => html`<span title=${entityText(row.entity)}>${entityText(row.entity)}</span>` },
      { key: 'quotas', title: texts.rights.quotas, cell: (/** @type {Quota} */ row) => html`<span class="code">${Object.entries(row.quotas).map(([key, value]) => `${key} ${value}`).join(', ')}</span>` },
    ]} fields=${[
      { name: 'kind', title: texts.rights.of, choices: choices(['user', 'client-id', 'ip']), value: 'user' },
      { name: 'name', title: texts.words.name, hint: texts.rights.emptyAllThatHaveNo },
      { name: 'key', title: texts.rights.quota, choices: choices(QUOTAS), value: QUOTAS[0] },
      { name: 'value', title: texts.words.value, type: 'number', hint: texts.rights.bytesPercentOrChangesPer },
    ]} act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) =>
      post('/api/actions/set-quotas', { entity: { [values.kind]: values.name || null }, quotas: { [values.key]: values.value === '' ? null : Number(values.value) }, dry_run: isDry })}
    remove=${(/** @type {Quota} */ row, /** @type {boolean} */ isDry) =>
      post('/api/actions/set-quotas', { entity: row.entity, quotas: Object.fromEntries(Object.keys(row.quotas).map((key) => [key, null])), dry_run: isDry })} />`;
}
