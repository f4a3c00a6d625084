// What the tables of moves share: the expected end, and the cancellation of one move.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { post } from '../core/api.js';
import { clocks } from '../core/data.js';
import { clock, duration } from '../core/format.js';
import { ActionDialog } from './action_dialog.js';

/** @param {{time: number|null, left: number|null, whenDone?: string}} props */
export function End({ time, left, whenDone = texts.moveCells.isInSyncSoon }) {
  if (left === 0) return html`<span>${whenDone}</span>`;
  if (time === null) return html`<span class="muted" title=${texts.moveCells.nothingWasCopiedLatelyOr}>${texts.moveCells.notKnown}</span>`;
  return html`<span title=${clock(time)}>${texts.moveCells.in} ${duration(time - Date.now() - clocks.value.ahead)}</span>`;
}

/** @param {{name: string, move: {topic: string, partition: number, broker?: number}, reload: () => void}} props */
export function CancelMove({ name, move, reload }) {
  const [isOpen, setOpen] = useState(false);
  return html`<button class="small" aria-label=${texts.moveCells.cancelTheMoveOf(name)} onClick=${() => setOpen(true)}>${texts.words.cancel}</button>
    ${isOpen && html`<${ActionDialog} title=${texts.moveCells.cancelTheMoveOf(name)} verb=${texts.moveCells.cancelTheMove} isDanger onClose=${() => setOpen(false)} onDone=${reload} fields=${[]}
      lead=${texts.moveCells.replicasStayWhereTheyAre}
      act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) => post('/api/actions/cancel-moves', { partitions: [move], dry_run: isDry })} />`}`;
}
