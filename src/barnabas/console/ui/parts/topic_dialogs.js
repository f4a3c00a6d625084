// The changes of topics: create, clone, elect, more partitions or replicas, delete records, recreate, delete.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { can, post } from '../core/api.js';
import { go, href } from '../core/url.js';
import { ActionDialog } from './action_dialog.js';
/** @import { Topic } from '../core/types.js' */

/** @param {{onClose: () => void}} props */
export function CreateTopic({ onClose }) {
  const [name, setName] = useState('');
  return html`<${ActionDialog} title="New topic" verb="Create" onClose=${onClose} onDone=${() => name && go(href('/topic', { name }))}
    fields=${[
      { name: 'name', title: 'Name' },
      { name: 'partitions', title: 'Partitions', type: 'number', value: 3 },
      { name: 'replication', title: 'Replication factor', type: 'number', value: 3 },
      { name: 'configs', title: 'Settings', hint: 'name=value, separated by spaces; none is needed' },
    ]}
    act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => {
      setName(values.name);
      return post('/api/actions/create-topic', {
        name: values.name,
        partitions: Number(values.partitions),
        replication: Number(values.replication),
        configs: Object.fromEntries(values.configs.split(/\s+/).filter(Boolean).map((/** @type {string} */ each) => [each.split('=')[0], each.slice(each.indexOf('=') + 1)])),
        dry_run: isDry,
      });
    }} />`;
}

/** @typedef {'elect'|'partitions'|'clone'|'factor'|'records'|'recreate'|'delete'} ActionName */

/** Returns the numbers of all partitions, also of those of a large topic that are not shown. @param {Topic} topic */
function numbersOf({ partitions, total }) {
  const shown = partitions.map((each) => each.partition);
  const next = (shown.at(-1) ?? -1) + 1;
  return [...shown, ...Array.from({ length: Math.max(0, total - shown.length) }, (_, place) => next + place)];
}

/** @param {{topic: Topic}} props */
export function TopicActions({ topic }) {
  const [shown, setShown] = useState(/** @type {ActionName|''} */ (''));
  const name = topic.topic;
  const close = () => setShown('');
  const numbers = numbersOf(topic);
  const off = topic.partitions.filter((each) => each.leader !== each.preferred);
  return html`<select class="button" aria-label="Actions" value="" onChange=${(/** @type {any} */ event) => {
      setShown(event.currentTarget.value);
      event.currentTarget.value = '';
    }}>
      <option value="">Actions …</option>
      <option value="elect">Elect preferred leaders (${off.length})</option>
      <option value="partitions">Add partitions</option>
      <option value="clone">Clone</option>
      ${can('admin') && html`<option value="factor">Change the replication factor</option><option value="records">Delete records</option>
        <option value="recreate">Delete and create again</option><option value="delete">Delete the topic</option>`}
    </select>
    ${shown === 'elect' && html`<${ActionDialog} title="Elect preferred leaders" verb="Elect" onClose=${close} fields=${[
      { name: 'kind', title: 'Election', choices: can('admin') ? [['preferred', 'preferred'], ['unclean', 'unclean: a replica out of sync can lead, records can be lost']] : [['preferred', 'preferred']] },
    ]} act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) =>
      post('/api/actions/elect', { kind: values.kind, partitions: numbers.map((partition) => ({ topic: name, partition })), dry_run: isDry })} />`}
    ${shown === 'partitions' && html`<${ActionDialog} title=${`Add partitions to ${name}`} verb="Add" onClose=${close} fields=${[
      { name: 'partitions', title: 'Partitions in total', type: 'number', value: topic.total + 1, hint: 'Keys go to other partitions after that.' },
    ]} act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/add-partitions', { name, partitions: Number(values.partitions), dry_run: isDry })} />`}
    ${shown === 'clone' && html`<${ActionDialog} title=${`Clone ${name}`} verb="Create" onClose=${close}
      lead="A topic with the same partitions, replication factor and settings. Records are not copied."
      fields=${[{ name: 'name', title: 'Name of the new topic', value: '' }]}
      act=${async (/** @type {any} */ values, /** @type {boolean} */ isDry) => {
        const answer = await post('/api/actions/clone-topic', { source: name, name: values.name, dry_run: isDry });
        if (!isDry) go(href('/topic', { name: values.name }));
        return answer;
      }} />`}
    ${shown === 'factor' && html`<${ActionDialog} title=${`Replication factor of ${name}`} verb="Begin the moves" isDanger onClose=${close} onDone=${() => go(href('/moves'))}
      fields=${[{ name: 'replication', title: 'Replicas of each partition', type: 'number', value: topic.replication }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/change-replication', { topic: name, replication: Number(values.replication), dry_run: isDry })} />`}
    ${shown === 'recreate' && html`<${ActionDialog} title=${`Delete ${name} and create it again`} verb="Delete and create" isDanger onClose=${close}
      lead="All records and the offsets of groups are lost. Partitions, replication factor and settings stay."
      fields=${[{ name: 'confirm', title: `Type the name of the topic to recreate it: ${name}` }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/recreate-topic', { name, confirm: values.confirm, dry_run: isDry })} />`}
    ${shown === 'records' && html`<${ActionDialog} title=${`Delete records of ${name}`} verb="Delete the records" isDanger onClose=${close}
      lead="The oldest records are deleted, up to an offset or up to the high watermark. That cannot be undone."
      fields=${[
        { name: 'partition', title: 'Of the partition', choices: [['', 'every partition'], ...numbers.map((each) => [String(each), String(each)])] },
        { name: 'offset', title: 'Before the offset', type: 'number', value: '', hint: 'Empty: all records up to the high watermark' },
      ]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => {
        const offset = values.offset === '' ? -1 : Number(values.offset);
        const chosen = values.partition === '' ? numbers : [values.partition];
        return post('/api/actions/delete-records', { topic: name, partitions: Object.fromEntries(chosen.map((each) => [each, offset])), dry_run: isDry });
      }} />`}
    ${shown === 'delete' && html`<${ActionDialog} title=${`Delete ${name}`} verb="Delete the topic" isDanger onClose=${close} onDone=${() => go(href('/topics'))}
      fields=${[{ name: 'confirm', title: `Type the name of the topic to delete it: ${name}` }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/delete-topic', { name, confirm: values.confirm, dry_run: isDry })} />`}`;
}
