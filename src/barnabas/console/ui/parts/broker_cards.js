// Each broker in a few words.
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { clocks, useNow } from '../core/data.js';
import { atMs, href } from '../core/url.js';
import { bytes, count, duration, plural } from '../core/format.js';
/** @import { Broker } from '../core/types.js' */

/** @param {{brokers: Broker[]}} props */
export function BrokerCards({ brokers }) {
  const now = useNow(1000) + clocks.value.ahead;
  const isPast = atMs() !== null;
  return html`<ul class="brokers">${brokers.map((each) => {
    const age = each.answered_ms !== null ? now - each.answered_ms : each.age_ms;
    return html`<li key=${each.broker} class="broker" data-up=${each.problem === null}>
      <a class="broker-name" href=${href('/broker', { id: each.broker })}>${texts.words.broker} ${each.broker}</a>
      ${each.is_controller && html`<span class="chip">${texts.words.controller}</span>`}
      ${each.rack && html`<span class="chip plain" title=${texts.words.rack}>${each.rack}</span>`}
      <span class="broker-address" title=${`${each.host}:${each.port}`}>${each.host}:${each.port}</span>
      <span class="broker-facts">${count(each.leaders)} ${texts.brokerCards.led} ${each.replicas === null ? '?' : plural(each.replicas, texts.nouns.replica)}
        ${each.out_of_sync ? html`<strong class="bad"> · ${count(each.out_of_sync)} ${texts.words.outOfSync}</strong>` : ''}
        ${each.size_bytes !== null && ` · ${bytes(each.size_bytes)}`}</span>
      ${each.problem !== null && html`<span class="broker-problem">${isPast || age === null ? 'silent' : texts.words.silentForOf(duration(age))}: ${each.problem}</span>`}
    </li>`;
  })}</ul>`;
}
