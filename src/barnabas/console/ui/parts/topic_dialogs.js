// The changes of topics: create, clone, elect, more partitions or replicas, delete records, recreate, delete.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { can, post } from '../core/api.js';
import { go, href } from '../core/url.js';
import { ActionDialog } from './action_dialog.js';
/** @import { Topic } from '../core/types.js' */

/** @param {{onClose: () => void}} props */
export function CreateTopic({ onClose }) {
  const [name, setName] = useState('');
  return html`<${ActionDialog} title=${texts.words.newTopic} verb=${texts.topicDialogs.create} onClose=${onClose} onDone=${() => name && go(href('/topic', { name }))}
    fields=${[
      { name: 'name', title: texts.words.name },
      { name: 'partitions', title: texts.words.partitions, type: 'number', value: 3 },
      { name: 'replication', title: texts.words.replicationFactor, type: 'number', value: 3 },
      { name: 'configs', title: texts.topicDialogs.settings, hint: texts.topicDialogs.nameValueSeparatedBySpaces },
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
  return html`<select class="button" aria-label=${texts.words.actions} value="" onChange=${(/** @type {any} */ event) => {
      setShown(event.currentTarget.value);
      event.currentTarget.value = '';
    }}>
      <option value="">${texts.words.actions2}</option>
      <option value="elect">${texts.topicDialogs.electPreferredLeadersOf(off.length)}</option>
      <option value="partitions">${texts.topicDialogs.addPartitions}</option>
      <option value="clone">${texts.topicDialogs.clone}</option>
      ${can('admin') && html`<option value="factor">${texts.topicDialogs.changeTheReplicationFactor}</option><option value="records">${texts.topicDialogs.deleteRecords}</option>
        <option value="recreate">${texts.topicDialogs.deleteAndCreateAgain}</option><option value="delete">${texts.topicDialogs.deleteTheTopic}</option>`}
    </select>
    ${shown === 'elect' && html`<${ActionDialog} title=${texts.topicDialogs.electPreferredLeaders} verb=${texts.words.elect} onClose=${close} fields=${[
      { name: 'kind', title: texts.words.election, choices: can('admin') ? [['preferred', 'preferred'], ['unclean', texts.words.uncleanAReplicaOutOfLower]] : [['preferred', 'preferred']] },
    ]} act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) =>
      post('/api/actions/elect', { kind: values.kind, partitions: numbers.map((partition) => ({ topic: name, partition })), dry_run: isDry })} />`}
    ${shown === 'partitions' && html`<${ActionDialog} title=${texts.topicDialogs.addPartitionsTo(name)} verb=${texts.topicDialogs.add} onClose=${close} fields=${[
      { name: 'partitions', title: texts.words.partitionsInTotal, type: 'number', value: topic.total + 1, hint: texts.topicDialogs.keysGoToOtherPartitions },
    ]} act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/add-partitions', { name, partitions: Number(values.partitions), dry_run: isDry })} />`}
    ${shown === 'clone' && html`<${ActionDialog} title=${texts.topicDialogs.cloneOf(name)} verb=${texts.topicDialogs.create} onClose=${close}
      lead=${texts.topicDialogs.aTopicWithTheSame}
      fields=${[{ name: 'name', title: texts.topicDialogs.nameOfTheNewTopic, value: '' }]}
      act=${async (/** @type {any} */ values, /** @type {boolean} */ isDry) => {
        const answer = await post('/api/actions/clone-topic', { source: name, name: values.name, dry_run: isDry });
        if (!isDry) go(href('/topic', { name: values.name }));
        return answer;
      }} />`}
    ${shown === 'factor' && html`<${ActionDialog} title=${texts.topicDialogs.replicationFactorOf(name)} verb=${texts.words.beginTheMoves} isDanger onClose=${close} onDone=${() => go(href('/moves'))}
      fields=${[{ name: 'replication', title: texts.topicDialogs.replicasOfEachPartition, type: 'number', value: topic.replication }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/change-replication', { topic: name, replication: Number(values.replication), dry_run: isDry })} />`}
    ${shown === 'recreate' && html`<${ActionDialog} title=${texts.topicDialogs.deleteAndCreateItAgain(name)} verb=${texts.topicDialogs.deleteAndCreate} isDanger onClose=${close}
      lead=${texts.topicDialogs.allRecordsAndTheOffsets}
      fields=${[{ name: 'confirm', title: texts.topicDialogs.typeTheNameOfThe(name) }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/recreate-topic', { name, confirm: values.confirm, dry_run: isDry })} />`}
    ${shown === 'records' && html`<${ActionDialog} title=${texts.words.deleteRecordsOf(name)} verb=${texts.words.deleteTheRecords} isDanger onClose=${close}
      lead=${texts.topicDialogs.theOldestRecordsAreDeleted}
      fields=${[
        { name: 'partition', title: texts.topicDialogs.ofThePartition, choices: [['', texts.topicDialogs.everyPartition], ...numbers.map((each) => [String(each), String(each)])] },
        { name: 'offset', title: texts.topicDialogs.beforeTheOffset, type: 'number', value: '', hint: texts.topicDialogs.emptyAllRecordsUpTo },
      ]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => {
        const offset = values.offset === '' ? -1 : Number(values.offset);
        const chosen = values.partition === '' ? numbers : [values.partition];
        return post('/api/actions/delete-records', { topic: name, partitions: Object.fromEntries(chosen.map((each) => [each, offset])), dry_run: isDry });
      }} />`}
    ${shown === 'delete' && html`<${ActionDialog} title=${texts.words.deleteOf(name)} verb=${texts.topicDialogs.deleteTheTopic} isDanger onClose=${close} onDone=${() => go(href('/topics'))}
      fields=${[{ name: 'confirm', title: texts.topicDialogs.typeTheNameOfThe2(name) }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/delete-topic', { name, confirm: values.confirm, dry_run: isDry })} />`}`;
}
