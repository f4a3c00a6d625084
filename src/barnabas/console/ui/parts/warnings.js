// What is wrong with the data that are shown: brokers that do not answer, and since when.
import { html } from '../core/html.js';
import { status, stream } from '../core/live.js';
import { clocks, shown, useNow } from '../core/data.js';
import { atMs, changed, href } from '../core/url.js';
import { texts } from '../core/texts.js';
import { duration, moment } from '../core/format.js';

export function Warnings() {
  useNow(1000);
  const at = atMs();
  const envelope = shown.value;
  if (at !== null) {
    return html`<p class="warning past" role="status"><strong>${moment(at)}</strong> ${texts.warnings.shownAsItWasThen}${' '}
      <a href=${changed({ at: null })}>${texts.backToLive}</a></p>`;
  }
  const live = stream.value.state === 'on' ? status.value : null;
  const problem = live ? live.problem : envelope?.problem;
  const silent = live?.silent ?? envelope?.silent ?? [];
  const known = live?.known_ms ?? envelope?.known_ms ?? null;
  const lines = [];
  if (stream.value.state === 'lost') {
    lines.push(html`<p key="lost" class="warning" role="status"><strong>${texts.warnings.theConsoleDoesNotAnswer}</strong> ${texts.warnings.whatIsShownIs} ${duration(Date.now() - clocks.value.came)} ${texts.warnings.oldItReconnectsByItself}</p>`);
  }
  if (problem) {
    const age = known === null ? '' : texts.warnings.whatIsShownIsOld(duration(Date.now() + clocks.value.ahead - known));
    lines.push(html`<p key="problem" class="warning critical" role="status"><strong>${texts.warnings.noBrokerAnswers}</strong> ${problem}. ${age}</p>`);
  } else if (silent.length) {
    lines.push(html`<p key="silent" class="warning" role="status">${silent.map(
      (each) => html`<span key=${each.broker}><a href=${href('/broker', { id: each.broker })}>${texts.words.broker} ${each.broker}</a>${' '}
        ${texts.warnings.hasNotAnswered}${each.age_ms === null ? '' : texts.warnings.forOf(duration(each.age_ms))}: ${each.reason}. </span>`,
    )}</p>`);
  }
  return lines;
}
