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
  return html`<button onClick=${() => setOpen(true)}>${texts.incident.saveIncident}</button>
    ${isOpen && html`<${Dialog} title=${texts.incident.saveAnIncident} onClose=${() => setOpen(false)}>
      <div class="form">
        <p>${texts.incident.oneFileHasTheHistory} ${atMs() === null ? 'now' : moment(to)}${texts.incident.theExplanationOfTheWorst}
          <span class="code"> ${texts.incident.barnabasConsoleIncidentFile}</span> ${texts.incident.opensItOnAnyMachine}</p>
        <label>${texts.incident.period} <select value=${minutes} onChange=${(/** @type {any} */ event) => setMinutes(event.currentTarget.value)}>
          ${MINUTES.map((each) => html`<option key=${each} value=${each}>${texts.words.theLast} ${each < 120 ? texts.words.minOf(each) : `${each / 60} h`}</option>`)}</select></label>
        <label>${texts.incident.note} <textarea rows="3" value=${note} onInput=${(/** @type {any} */ event) => setNote(event.currentTarget.value)}></textarea></label>
        <div class="form-buttons"><button type="button" onClick=${() => setOpen(false)}>${texts.words.cancel}</button>
          <a class="button primary" href=${file} download onClick=${() => setTimeout(() => setOpen(false), 0)}>${texts.incident.saveTheFile}</a></div>
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
      say(texts.incident.copied);
      setOpen(false);
    } catch {
      box.current?.select();
      say(texts.incident.theBrowserDoesNotAllow, 'bad');
    }
  };
  return html`<button onClick=${() => setOpen(true)}>${texts.incident.copyAsText}</button>
    ${isOpen && html`<${Dialog} title=${texts.incident.theOverviewAsText} onClose=${() => setOpen(false)}>
      <div class="form"><textarea ref=${box} class="code" readonly rows="14" cols="76" aria-label=${texts.incident.theOverviewAsText} value=${asText(data)}></textarea>
        <div class="form-buttons"><button onClick=${copy} class="primary">${texts.words.copy}</button></div></div><//>`}`;
}

/** @param {Overview} data */
function asText(data) {
  const silent = data.brokers.filter((each) => each.problem !== null);
  return [
    texts.incident.clusterAtOf(data.name, moment(atMs() ?? serverNow()), texts.health[data.severity]),
    texts.incident.controllerOf(plural(data.topics, texts.nouns.topic), plural(data.partitions, texts.nouns.partition), plural(data.brokers.length, texts.nouns.broker), data.controller < 0 ? 'unknown' : data.controller),
    data.counts.map((each) => `${each.partitions} ${texts.severity[each.severity]}`).join(', '),
    ...silent.map((each) => texts.incident.brokerDoesNotAnswer(each.broker, each.problem)),
    ...(data.worst.length ? ['', texts.incident.whatFirst] : []),
    ...data.worst.map((each) => {
      const seen = each.acknowledged ? texts.incident.acknowledgedByOf(each.acknowledged.user, each.acknowledged.note ? `: ${each.acknowledged.note}` : '') : '';
      return texts.incident.leaderIsrOf(each.topic, each.partition, each.state, each.leader < 0 ? 'none' : each.leader, each.isr.join(','), each.replicas.join(','), each.cause?.text ?? texts.words.theCauseIsNotKnown, seen);
    }),
    ...(data.changes.length ? ['', texts.incident.lastChanges] : []),
    ...data.changes.map((each) => `- ${moment(each.time_ms)} ${each.subject}: ${each.text}${each.cause && !each.text.includes(each.cause) ? ` (${each.cause})` : ''}`),
  ].join('\n');
}

/** What the opened file says about its incident. */
export function AboutIncident() {
  const answer = useRoute('/api/incident', {}, { isStill: true });
  const data = /** @type {Incident|null} */ (answer.data);
  if (!data) return null;
  return html`<section class="panel" aria-label=${texts.incident.incident}><h2>${texts.incident.incidentOf} ${data.cluster}</h2>
    <p class="facts">${texts.words.from} ${moment(data.since_ms)} ${texts.incident.to} ${moment(data.until_ms)}${texts.incident.savedBy} ${data.user || 'somebody'} <${Mark} severity=${data.severity} /> ${texts.health[data.severity]}</p>
    ${data.note && html`<p class="wrap">${data.note}</p>`}
    <ul class="explanation">${data.worst.flatMap((each) => each.explanation).map((line) => html`<li key=${line}>${line}</li>`)}</ul></section>`;
}
