// The list of keys.
import { html } from '../core/html.js';
import { open } from '../core/keys.js';
import { texts } from '../core/texts.js';
import { Dialog } from './dialog.js';

export function KeysDialog() {
  return html`<${Dialog} title=${texts.words.keys} onClose=${() => (open.value = 'none')}>
    <dl class="keys">${texts.keys.map(([keys, text]) => html`<div key=${keys}><dt>${keys}</dt><dd>${text}</dd></div>`)}</dl>
  <//>`;
}
