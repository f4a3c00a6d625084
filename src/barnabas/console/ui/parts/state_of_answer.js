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
      ${error.code === 'not-found' && html`<p><a href=${href('/')}>${texts.words.overview}</a> · <a href=${href('/topics')}>${texts.words.topics}</a></p>`}</div>`;
  }
  const waited = now - since;
  if (envelope && !envelope.is_filled) {
    const why = envelope.problem ? texts.stateOfAnswer.noBrokerAnswers(envelope.problem) : `${texts.waiting.cluster} …`;
    return html`<div class="notice-box" role="status"><strong>${why}</strong><p>${texts.stateOfAnswer.itIsTriedAgainEach} ${duration(waited)} ${texts.stateOfAnswer.now}</p></div>`;
  }
  return html`<p class="waiting" role="status">${waited > 700 ? `${doing}, ${duration(waited)}` : ''}</p>`;
}

/** @param {string} code */
function title(code) {
  /** @type {Record<string, string>} */
  const titles = {
    'not-found': texts.stateOfAnswer.itIsNotThere,
    role: texts.stateOfAnswer.yourRoleDoesNotAllow,
    unreachable: texts.stateOfAnswer.noBrokerAnswers2,
    timeout: texts.stateOfAnswer.thereWasNoAnswerIn,
    console: texts.stateOfAnswer.theConsoleDoesNotAnswer,
    past: texts.stateOfAnswer.notInThePast,
    'unknown-cluster': texts.stateOfAnswer.noSuchCluster,
  };
  return titles[code] ?? texts.stateOfAnswer.thatFailed;
}
