// A change: what is asked, what it will do, and then what it did.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { asApiError } from '../core/data.js';
import { texts } from '../core/texts.js';
import { Dialog } from './dialog.js';
import { say } from './toasts.js';

/** The rows of a preview that a dialog shows. */
const PREVIEW_MAX = 30;

/** @typedef {{subject: string, ok: boolean, text: string}} Result */
/** @typedef {{name: string, title: string, value?: string|number, type?: string, choices?: [string, string][], hint?: string, rows?: number}} Field */

/**
 * @param {{title: string, verb: string, fields: Field[], onClose: () => void, isDanger?: boolean, lead?: any,
 *   act: (values: Record<string, string>, isDry: boolean) => Promise<any>, onDone?: (results: Result[]) => void}} props
 * `act` does it, or says what it would do. If a part of it fails, the dialog stays and says what became of each part.
 */
export function ActionDialog({ title, verb, fields, onClose, act, isDanger = false, lead, onDone }) {
  const [values, setValues] = useState(Object.fromEntries(fields.map((each) => [each.name, String(each.value ?? each.choices?.[0]?.[0] ?? '')])));
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState('');
  const [results, setResults] = useState(/** @type {Result[]} */ ([]));
  const [isPartial, setPartial] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const run = async (/** @type {boolean} */ isDry) => {
    setBusy(true);
    setProblem('');
    setResults([]);
    try {
      const answer = await act(values, isDry);
      if (isDry) setPlan(answer);
      else {
        const all = /** @type {Result[]} */ (answer.results ?? []);
        const isWhole = all.every((each) => each.ok);
        onDone?.(all);
        if (isWhole) {
          say(answer.text ?? texts.actionDialog.done);
          onClose();
        } else {
          setResults(all);
          setPartial(true);
        }
      }
    } catch (error) {
      const found = asApiError(error);
      setProblem(found.message);
      setResults((found.results?.length ?? 0) > 1 ? (found.results ?? []) : []);
    }
    setBusy(false);
  };
  if (isPartial) {
    return html`<${Dialog} title=${title} onClose=${onClose}>
      <div class="plan" role="status" tabindex="0"><h3>${texts.manyTopics.did}</h3><${Results} rows=${results} /></div>
      <div class="form-buttons"><button class="primary" onClick=${onClose}>${texts.words.close}</button></div><//>`;
  }
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
      ${results.length > 0 && html`<div class="plan" tabindex="0" role="region" aria-label=${texts.manyTopics.notDone}><${Results} rows=${results} /></div>`}
      ${plan && html`<div class="plan" role="status" tabindex="0"><h3>${texts.actionDialog.whatItWillDo}</h3>
        <ul>${(plan.plan ?? []).map((/** @type {string} */ line) => html`<li key=${line}>${line}</li>`)}
          ${(plan.preview ?? []).slice(0, PREVIEW_MAX).map((/** @type {any} */ row) => html`<li key=${`${row.topic}-${row.partition}`}>${row.topic}-${row.partition}: ${row.before ?? 'none'} → ${row.after}</li>`)}
          ${(plan.preview ?? []).length > PREVIEW_MAX && html`<li>${texts.more((plan.preview ?? []).length - PREVIEW_MAX)}</li>`}
          ${(plan.warnings ?? []).map((/** @type {string} */ line) => html`<li key=${line} class="bad">${line}</li>`)}</ul>
        ${plan.results && html`<${Results} rows=${plan.results} />`}</div>`}
      <div class="form-buttons"><button type="button" onClick=${onClose}>${texts.words.cancel}</button>
        <button class=${isDanger && plan ? 'danger' : 'primary'} disabled=${isBusy}>${isBusy ? '…' : plan ? verb : texts.actionDialog.showWhatItDoes}</button></div>
    </form>
  <//>`;
}

/** What is done with each of several subjects, the failures first. @param {{rows: Result[]}} props */
function Results({ rows }) {
  const order = [...rows.filter((each) => !each.ok), ...rows.filter((each) => each.ok)];
  return html`<ul class="results">${order.map(
    (each) => html`<li key=${each.subject} data-ok=${each.ok} class=${each.ok ? '' : 'bad'}><strong class="wrap">${each.subject}</strong>${' '}
      ${each.ok ? each.text || html`<span class="muted">${texts.actionDialog.doneLower}</span>` : `${texts.manyTopics.notDone}: ${each.text}`}</li>`,
  )}</ul>`;
}
