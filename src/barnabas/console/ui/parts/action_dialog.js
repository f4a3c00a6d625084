// A change: what is asked, what it will do, and then what it did.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { asApiError } from '../core/data.js';
import { Dialog } from './dialog.js';
import { say } from './toasts.js';

/** @typedef {{name: string, title: string, value?: string|number, type?: string, choices?: [string, string][], hint?: string, rows?: number}} Field */

/**
 * @param {{title: string, verb: string, fields: Field[], onClose: () => void, isDanger?: boolean, lead?: any,
 *   act: (values: Record<string, string>, isDry: boolean) => Promise<any>, onDone?: () => void}} props
 */
export function ActionDialog({ title, verb, fields, onClose, act, isDanger = false, lead, onDone }) {
  const [values, setValues] = useState(Object.fromEntries(fields.map((each) => [each.name, String(each.value ?? '')])));
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState('');
  const [isBusy, setBusy] = useState(false);
  const run = async (/** @type {boolean} */ isDry) => {
    setBusy(true);
    setProblem('');
    try {
      const answer = await act(values, isDry);
      if (isDry) setPlan(answer);
      else {
        const bad = (answer.results ?? []).filter((/** @type {any} */ each) => !each.ok);
        say(bad.length ? `${bad[0].subject}: ${bad[0].text}${bad.length > 1 ? ` (and ${bad.length - 1} more)` : ''}` : (answer.text ?? 'Done'), bad.length ? 'bad' : 'ok');
        onDone?.();
        onClose();
      }
    } catch (error) {
      setProblem(asApiError(error).message);
    }
    setBusy(false);
  };
  const set = (/** @type {string} */ name, /** @type {string} */ value) => {
    setValues((old) => ({ ...old, [name]: value }));
    setPlan(null);
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form class="form" onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      void run(plan === null);
    }}>
      ${lead && html`<p>${lead}</p>`}
      ${fields.map(
        (each) => html`<label key=${each.name}>${each.title}
          ${each.choices
            ? html`<select value=${values[each.name]} onChange=${(/** @type {any} */ event) => set(each.name, event.currentTarget.value)}>
                ${each.choices.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}</select>`
            : each.rows
              ? html`<textarea rows=${each.rows} class="code" value=${values[each.name]} spellcheck=${false} onInput=${(/** @type {any} */ event) => set(each.name, event.currentTarget.value)} />`
              : html`<input type=${each.type ?? 'text'} value=${values[each.name]} spellcheck=${false} autocomplete="off"
                onInput=${(/** @type {any} */ event) => set(each.name, event.currentTarget.value)} />`}
          ${each.hint && html`<small>${each.hint}</small>`}</label>`,
      )}
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      ${plan && html`<div class="plan" role="status" tabindex="0"><h3>What it will do</h3>
        <ul>${(plan.plan ?? []).map((/** @type {string} */ line) => html`<li key=${line}>${line}</li>`)}
          ${(plan.preview ?? []).slice(0, 30).map((/** @type {any} */ row) => html`<li key=${`${row.topic}-${row.partition}`}>${row.topic}-${row.partition}: ${row.before ?? 'none'} → ${row.after}</li>`)}
          ${(plan.warnings ?? []).map((/** @type {string} */ line) => html`<li key=${line} class="bad">${line}</li>`)}</ul></div>`}
      <div class="form-buttons"><button type="button" onClick=${onClose}>Cancel</button>
        <button class=${isDanger && plan ? 'danger' : 'primary'} disabled=${isBusy}>${isBusy ? '…' : plan ? verb : 'Show what it does'}</button></div>
    </form>
  <//>`;
}
