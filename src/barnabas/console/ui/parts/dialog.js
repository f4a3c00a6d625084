// A dialog over the screen: the browser's own, so that the focus stays inside and Escape closes it.
import { useLayoutEffect, useRef } from 'preact/hooks';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';

/** @param {{title: string, onClose: () => void, kind?: string, children?: any}} props */
export function Dialog({ title, onClose, kind = '', children }) {
  const box = useRef(/** @type {HTMLDialogElement|null} */ (null));
  // The next key belongs to the dialog already, so it does not wait for the next frame.
  useLayoutEffect(() => {
    const dialog = box.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => dialog?.close();
  }, []);
  return html`<dialog class=${`dialog ${kind}`} ref=${box} aria-label=${title}
    onCancel=${(/** @type {Event} */ event) => {
      event.preventDefault();
      onClose();
    }}
    onClick=${(/** @type {MouseEvent} */ event) => event.target === box.current && onClose()}>
    <div class="dialog-body">
      <div class="dialog-head"><h2>${title}</h2><button class="icon" onClick=${onClose} aria-label=${texts.words.close}>×</button></div>
      ${children}
    </div>
  </dialog>`;
}
