// Incidents: a part of the history as a file, a text for a message, and what an opened file says.
import { useEffect, useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { address, hasHistory, incidentEnd } from '../core/api.js';
import { serverNow, useRoute } from '../core/data.js';
import { atMs } from '../core/url.js';
import { moment, plural } from '../core/format.js';
import { texts } from '../core/texts.js';
import { Mark } from './badges.js';
import { Dialog } from './dialog.js';
import { say } from './toasts.js';
/** @import { Incident, Overview } from '../core/types.js' */

const MINUTES = /** @type {const} */ ([15, 60, 360, 1440]);

/** A button that saves the moments before the shown one. */
export function SaveIncident() {
  const [isOpen, setOpen] = useState(false);
  const [minutes, setMinutes] = useState('60');
  const [note, setNote] = useState('');
  if (!hasHistory() || incidentEnd() !== null) return null;
  const to = atMs() ?? Math.round(serverNow());
  const file = address('/api/incident-file', { from: to - Number(minutes) * 60_000, to: atMs(), note });
  return html`<button onClick=${() => setOpen(true)}>Save incident</button>
    ${isOpen && html`<${Dialog} title="Save an incident" onClose=${() => setOpen(false)}>
      <div class="form">
        <p>One file has the history until ${atMs() === null ? 'now' : moment(to)}, the explanation of the worst partitions, and the brokers.
          <span class="code"> barnabas console --incident FILE</span> opens it on any machine.</p>
        <label>Period <select value=${minutes} onChange=${(/** @type {any} */ event) => setMinutes(event.currentTarget.value)}>
          ${MINUTES.map((each) => html`<option key=${each} value=${each}>the last ${each < 120 ? `${each} min` : `${each / 60} h`}</option>`)}</select></label>
        <label>Note <textarea rows="3" value=${note} onInput=${(/** @type {any} */ event) => setNote(event.currentTarget.value)}></textarea></label>
        <div class="form-buttons"><button type="button" onClick=${() => setOpen(false)}>Cancel</button>
          <a class="button primary" href=${file} download onClick=${() => setTimeout(() => setOpen(false), 0)}>Save the file</a></div>
      </div><//>`}`;
}

/** A button that shows the overview as a text. @param {{data: Overview}} props */
export function CopyText({ data }) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef(/** @type {HTMLTextAreaElement|null} */ (null));
  useEffect(() => {
    if (isOpen) box.current?.select();
  }, [isOpen]);
  const copy = async () => {
    try {
      await window.navigator.clipboard.writeText(box.current?.value ?? '');
      say('Copied');
      setOpen(false);
    } catch {
      box.current?.select();
      say('The browser does not allow that: the text is selected, copy it with Ctrl-C.', 'bad');
    }
  };
  return html`<button onClick=${() => setOpen(true)}>Copy as text</button>
    ${isOpen && html`<${Dialog} title="The overview as text" onClose=${() => setOpen(false)}>
      <div class="form"><textarea ref=${box} class="code" readonly rows="14" cols="76" aria-label="The overview as text" value=${asText(data)}></textarea>
        <div class="form-buttons"><button onClick=${copy} class="primary">Copy</button></div></div><//>`}`;
}

/** @param {Overview} data */
export function asText(data) {
  const silent = data.brokers.filter((each) => each.problem !== null);
  return [
    `Cluster ${data.name} at ${moment(atMs() ?? serverNow())}: ${texts.health[data.severity]}`,
    `${plural(data.topics, 'topic')}, ${plural(data.partitions, 'partition')}, ${plural(data.brokers.length, 'broker')}, controller ${data.controller < 0 ? 'unknown' : data.controller}`,
    data.counts.map((each) => `${each.partitions} ${texts.severity[each.severity]}`).join(', '),
    ...silent.map((each) => `Broker ${each.broker} does not answer: ${each.problem}`),
    ...(data.worst.length ? ['', 'What first:'] : []),
    ...data.worst.map((each) => {
      const seen = each.acknowledged ? ` (acknowledged by ${each.acknowledged.user}${each.acknowledged.note ? `: ${each.acknowledged.note}` : ''})` : '';
      return `- ${each.topic}-${each.partition}: ${each.state}, leader ${each.leader < 0 ? 'none' : each.leader}, ISR ${each.isr.join(',')} of ${each.replicas.join(',')}; ${each.cause?.text ?? 'the cause is not known'}${seen}`;
    }),
    ...(data.changes.length ? ['', 'Last changes:'] : []),
    ...data.changes.map((each) => `- ${moment(each.time_ms)} ${each.subject}: ${each.text}${each.cause && !each.text.includes(each.cause) ? ` (${each.cause})` : ''}`),
  ].join('\n');
}

/** What the opened file says about its incident. */
export function AboutIncident() {
  const answer = useRoute('/api/incident', {}, { isStill: true });
  const data = /** @type {Incident|null} */ (answer.data);
  if (!data) return null;
  return html`<section class="panel" aria-label="Incident"><h2>Incident of ${data.cluster}</h2>
    <p class="facts">From ${moment(data.since_ms)} to ${moment(data.until_ms)}, saved by ${data.user || 'somebody'} <${Mark} severity=${data.severity} /> ${texts.health[data.severity]}</p>
    ${data.note && html`<p class="wrap">${data.note}</p>`}
    <ul class="explanation">${data.worst.flatMap((each) => each.explanation).map((line) => html`<li key=${line}>${line}</li>`)}</ul></section>`;
}
