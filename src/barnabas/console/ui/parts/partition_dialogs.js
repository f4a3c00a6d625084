// The changes of one partition: its leader, its replicas, its oldest records, and a transaction that hangs.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
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
  const kinds = [['preferred', `preferred: broker ${data.preferred}`]];
  if (can('admin')) kinds.push(['unclean', 'unclean: a replica out of sync can lead, records can be lost']);
  return html`<select class="button" aria-label="Actions" value="" onChange=${(/** @type {any} */ event) => {
      setShown(event.currentTarget.value);
      event.currentTarget.value = '';
    }}>
      <option value="">Actions …</option><option value="elect">Elect a leader</option>
      ${can('admin') && html`<option value="move">Move its replicas</option><option value="records">Delete records up to an offset</option>`}</select>
    ${shown === 'elect' && html`<${ActionDialog} title=${`Elect a leader of ${name}`} verb="Elect" onClose=${close} onDone=${reload} fields=${[{ name: 'kind', title: 'Election', value: 'preferred', choices: kinds }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/elect', { kind: values.kind, partitions: keys, dry_run: isDry })} />`}
    ${shown === 'move' && html`<${ActionDialog} title=${`Move the replicas of ${name}`} verb="Begin the move" isDanger onClose=${close} onDone=${reload} fields=${[
      { name: 'replicas', title: 'Replicas then', value: data.replicas.join(','), hint: 'Ids of brokers, the preferred leader first' },
      { name: 'throttle', title: 'Throttle, in bytes a second at each broker', type: 'number', value: '', hint: 'Empty: without a limit' },
    ]} act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/reassign', {
      partitions: [{ topic, partition, replicas: values.replicas.split(',').map((/** @type {string} */ each) => Number(each.trim() || Number.NaN)) }],
      throttle: values.throttle === '' ? null : Number(values.throttle),
      dry_run: isDry,
    })} />`}
    ${shown === 'records' && html`<${ActionDialog} title=${`Delete records of ${name}`} verb="Delete the records" isDanger onClose=${close} onDone=${reload}
      fields=${[{ name: 'offset', title: 'Delete all records before offset', type: 'number', value: data.high_watermark ?? '', hint: `The log has offsets ${count(data.start_offset)} to ${count(data.high_watermark)}.` }]}
      act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/delete-records', { topic, partitions: { [partition]: Number(values.offset || Number.NaN) }, dry_run: isDry })} />`}`;
}

/** A button that aborts the open transaction of a producer. @param {{topic: string, partition: number, producer: Producer, reload: () => void}} props */
export function AbortTransaction({ topic, partition, producer, reload }) {
  const [isOpen, setOpen] = useState(false);
  if (producer.open_txn_from === null || !can('admin')) return null;
  return html` <button class="small" aria-label=${`Abort the transaction of producer ${producer.producer_id}`} onClick=${() => setOpen(true)}>Abort</button>
    ${isOpen && html`<${ActionDialog} title=${`Abort the transaction of producer ${producer.producer_id}`} verb="Abort the transaction" isDanger onClose=${() => setOpen(false)} onDone=${reload} fields=${[]}
      lead="For a transaction that hangs: its producer and its coordinator do not end it any more, and readers wait for it."
      act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) => post('/api/actions/abort-transaction', { topic, partition, producer_id: producer.producer_id, dry_run: isDry })} />`}`;
}
