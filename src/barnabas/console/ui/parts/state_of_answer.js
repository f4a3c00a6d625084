// What stands in place of a screen's data until they are there: never a spinner, always a reason.
import { html } from '../core/html.js';
import { useNow } from '../core/data.js';
import { useState } from 'preact/hooks';
import { texts } from '../core/texts.js';
import { duration } from '../core/format.js';
import { href } from '../core/url.js';

/** @param {{error: any, envelope: any, doing?: string}} props `doing`: what the console does meanwhile */
export function Waiting({ error, envelope, doing = texts.waiting.console }) {
  const [since] = useState(Date.now());
  const now = useNow(500);
  if (error) {
    return html`<div class="notice-box" role="alert"><strong>${title(error.code)}</strong><p>${error.message}</p>
      ${error.hint && html`<p>${error.hint}</p>`}
      ${error.code === 'not-found' && html`<p><a href=${href('/')}>Overview</a> · <a href=${href('/topics')}>Topics</a></p>`}</div>`;
  }
  const waited = now - since;
  if (envelope && !envelope.is_filled) {
    const why = envelope.problem ? `No broker answers: ${envelope.problem}` : `${texts.waiting.cluster} …`;
    return html`<div class="notice-box" role="status"><strong>${why}</strong><p>It is tried again each second, for ${duration(waited)} now.</p></div>`;
  }
  return html`<p class="waiting" role="status">${waited > 700 ? `${doing}, ${duration(waited)}` : ''}</p>`;
}

/** @param {string} code */
function title(code) {
  /** @type {Record<string, string>} */
  const titles = {
    'not-found': 'It is not there',
    role: 'Your role does not allow that',
    unreachable: 'No broker answers',
    timeout: 'There was no answer in time',
    console: 'The console does not answer',
    past: 'Not in the past',
    'unknown-cluster': 'No such cluster',
  };
  return titles[code] ?? 'That failed';
}
