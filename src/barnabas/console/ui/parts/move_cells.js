// What the tables of moves share: the expected end, and the cancellation of one move.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { post } from '../core/api.js';
import { clocks } from '../core/data.js';
import { clock, duration } from '../core/format.js';
import { ActionDialog } from './action_dialog.js';

/** @param {{time: number|null, left: number|null, whenDone?: string}} props */
export function End({ time, left, whenDone = 'is in sync soon' }) {
  if (left === 0) return html`<span>${whenDone}</span>`;
  if (time === null) return html`<span class="muted" title="Nothing was copied lately, or it is not known yet">not known</span>`;
  return html`<span title=${clock(time)}>in ${duration(time - Date.now() - clocks.value.ahead)}</span>`;
}

/** @param {{name: string, move: {topic: string, partition: number, broker?: number}, reload: () => void}} props */
export function CancelMove({ name, move, reload }) {
  const [isOpen, setOpen] = useState(false);
  return html`<button class="small" aria-label=${`Cancel the move of ${name}`} onClick=${() => setOpen(true)}>Cancel</button>
    ${isOpen && html`<${ActionDialog} title=${`Cancel the move of ${name}`} verb="Cancel the move" isDanger onClose=${() => setOpen(false)} onDone=${reload} fields=${[]}
      lead="Replicas stay where they are."
      act=${(/** @type {any} */ _values, /** @type {boolean} */ isDry) => post('/api/actions/cancel-moves', { partitions: [move], dry_run: isDry })} />`}`;
}
