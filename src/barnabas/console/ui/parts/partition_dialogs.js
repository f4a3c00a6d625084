// The changes of one partition: its leader, its replicas, its oldest records, and a transaction that hangs.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { can, post } from '../core/api.js';
import { count } from '../core/format.js';
import { ActionDialog } from './action_dialog.js';
/** @import { PartitionPage, Producer } from '../core/types.js' */

/** @param {{data: PartitionPage, reload: () => void}} props */
export function PartitionActions({ data, reload }) {
  const [shown, setShown] = useState('');
  if (!can('operator')) return null;
  const { topic, partition } = data;
  const [name, keys, close] = [`${topic}-${partition}`, [{ topic, partition }], () => setShown('')];
  const kinds = [['preferred', texts.partitionDialogs.preferredBrokerOf(data.preferred)]];
  if (can('admin')) kinds.push(['unclean', texts.words.uncleanAReplicaOutOf]);
  return html`<select class="button" aria-label=${texts.words.actions} value="" onChange=${(/** @type {any} */ event) => {
      setShown(event.currentTarget.value);
      event.currentTarget.value = '';
    }}>
      <option value="">${texts.words.actions2}</option><option value="elect">${texts.partitionDialogs.electALeader}</option>
      ${can('admin') && html`<option value="move">${texts.words.moveItsReplicas}</option><option value="records">${texts.partitionDialogs.deleteRecordsUpToAn}</option>`}</select>
    ${shown === 'elect' && html`<${ActionDialog} title=${texts.partitionDialogs.electALeaderOf(name)} verb=${texts.words.elect} onClose=${close} onDone=${reload} fields=${[{ name: 'kind', title: texts.words.election, value: 'preferred', choices: kinds }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/elect', { kind: values.kind, partitions: keys, dry_run: isDry })} />`}
    ${shown === 'move' && html`<${ActionDialog} title=${texts.partitionDialogs.moveTheReplicasOf(name)} verb=${texts.partitionDialogs.beginTheMove} isDanger onClose=${close} onDone=${reload} fields=${[
      { name: 'replicas', title: texts.words.replicasThen, value: data.replicas.join(','), hint: texts.partitionDialogs.idsOfBrokersThePreferred },
      { name: 'throttle', title: texts.words.throttleInBytesASecond, type: 'number', value: '', hint: texts.partitionDialogs.emptyWithoutALimit },
    ]} act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/reassign', {
      partitions: [{ topic, partition, replicas: values.replicas.split(',').map((/** @type {string} */ each) => Number(each.trim() || Number.NaN)) }],
      throttle: values.throttle === '' ? null : Number(values.throttle),
      dry_run: isDry,
    })} />`}
    ${shown === 'records' && html`<${ActionDialog} title=${texts.words.deleteRecordsOf(name)} verb=${texts.words.deleteTheRecords} isDanger onClose=${close} onDone=${reload}
      fields=${[{ name: 'offset', title: texts.partitionDialogs.deleteAllRecordsBeforeOffset, type: 'number', value: data.high_watermark ?? '', hint: texts.partitionDialogs.theLogHasOffsetsTo(count(data.start_offset), count(data.high_watermark)) }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/delete-records', { topic, partitions: { [partition]: Number(values.offset || Number.NaN) }, dry_run: isDry })} />`}`;
}

/** A button that aborts the open transaction of a producer. @param {{topic: string, partition: number, producer: Producer, reload: () => void}} props */
export function AbortTransaction({ topic, partition, producer, reload }) {
  const [isOpen, setOpen] = useState(false);
  if (producer.open_txn_from === null || !can('admin')) return null;
  return html` <button class="small" aria-label=${texts.partitionDialogs.abortTheTransactionOfProducer(producer.producer_id)} onClick=${() => setOpen(true)}>${texts.partitionDialogs.abort}</button>
    ${isOpen && html`<${ActionDialog} title=${texts.partitionDialogs.abortTheTransactionOfProducer(producer.producer_id)} verb=${texts.partitionDialogs.abortTheTransaction} isDanger onClose=${() => setOpen(false)} onDone=${reload} fields=${[]}
      lead=${texts.partitionDialogs.forATransactionThatHangs}
      act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) => post('/api/actions/abort-transaction', { topic, partition, producer_id: producer.producer_id, dry_run: isDry })} />`}`;
}
