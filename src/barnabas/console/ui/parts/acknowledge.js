// Acknowledgement: somebody has seen what is unwell, and takes care of it until its state changes.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { can, canAll, post } from '../core/api.js';
import { clock } from '../core/format.js';
import { ActionDialog } from './action_dialog.js';
/** @import { Partition } from '../core/types.js' */

/** Who has acknowledged a partition. @param {{row: Partition}} props */
export function Seen({ row }) {
  const found = row.acknowledged;
  if (!found) return null;
  return html`<span class="chip plain">${texts.acknowledge.seenBy} ${found.user} ${texts.words.at} ${clock(found.time_ms)}${found.note && `: ${found.note}`}</span>`;
}

/** The button to acknowledge a partition, or to take it back. @param {{row: Partition}} props */
export function Acknowledge({ row }) {
  const [isOpen, setOpen] = useState(false);
  const found = row.acknowledged;
  const name = `${row.topic}-${row.partition}`;
  return html`${can('operator') && html`<button class="small" aria-label=${`${found ? texts.acknowledge.withdrawTheAcknowledgementOf : texts.acknowledge.acknowledge} ${name}`} onClick=${() => setOpen(true)}>${found ? texts.acknowledge.withdraw : texts.acknowledge.acknowledge}</button>`}
    ${isOpen && html`<${AcknowledgeDialog} title=${name} partitions=${[{ topic: row.topic, partition: row.partition }]} isBack=${Boolean(found)} onClose=${() => setOpen(false)} />`}`;
}

/** The button for all partitions that are unwell. @param {{unwell: number}} props */
export function AcknowledgeAll({ unwell }) {
  const [isOpen, setOpen] = useState(false);
  if (!canAll('operator') || unwell === 0) return null;
  return html`<button onClick=${() => setOpen(true)}>${texts.acknowledge.acknowledgeAll}</button>
    ${isOpen && html`<${AcknowledgeDialog} title=${texts.acknowledge.allThatIsUnwell} partitions=${null} onClose=${() => setOpen(false)} />`}`;
}

/** @param {{title: string, partitions: {topic: string, partition: number}[]|null, isBack?: boolean, onClose: () => void}} props */
function AcknowledgeDialog({ title, partitions, isBack = false, onClose }) {
  return html`<${ActionDialog} title=${isBack ? texts.acknowledge.withdrawTheAcknowledgementOf2(title) : texts.acknowledge.acknowledgeOf(title)} verb=${isBack ? texts.acknowledge.withdraw : texts.acknowledge.acknowledge} onClose=${onClose}
    fields=${isBack ? [] : [{ name: 'note', title: texts.acknowledge.noteForTheOthers }]}
    act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/acknowledge', { partitions, note: values.note ?? '', withdraw: isBack, dry_run: isDry })} />`;
}
