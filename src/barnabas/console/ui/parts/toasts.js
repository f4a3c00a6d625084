// Short messages: what an action did.
import { signal } from '@preact/signals';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';

const SHOWN_MS = 8_000;
let number = 0;
const messages = signal(/** @type {{id: number, text: string, tone: 'ok'|'bad'}[]} */ ([]));

/** @param {string} text @param {'ok'|'bad'} [tone] */
export function say(text, tone = 'ok') {
  const id = ++number;
  messages.value = [...messages.value.slice(-3), { id, text, tone }];
  setTimeout(() => drop(id), SHOWN_MS);
}

/** @param {number} id */
function drop(id) {
  messages.value = messages.value.filter((each) => each.id !== id);
}

export function Toasts() {
  return html`<div class="toasts" role="status">${messages.value.map(
    (each) => html`<p key=${each.id} data-tone=${each.tone}>${each.text}
      <button class="icon" aria-label=${texts.words.close} onClick=${() => drop(each.id)}>×</button></p>`,
  )}</div>`;
}
