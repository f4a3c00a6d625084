// Events as a list: when, what, and because of what.
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { hasHistory } from '../core/api.js';
import { atMs, changed, href } from '../core/url.js';
import { clockMs, count, day, moment } from '../core/format.js';
import { Mark, PartitionLink } from './badges.js';
/** @import { Event as ClusterEvent } from '../core/types.js' */

/** @param {{events: ClusterEvent[], empty: string, hasSubject?: boolean}} props */
export function EventList({ events, empty, hasSubject = true }) {
  const ordered = [...events].sort((one, other) => other.time_ms - one.time_ms || Number(other.id) - Number(one.id));
  if (!events.length) return html`<p class="empty">${empty}</p>`;
  const shownAt = atMs();
  let last = '';
  return html`<ol class="events">${ordered.map((each) => {
    const date = day(each.time_ms);
    const isNewDay = date !== last;
    last = date;
    return html`<li key=${each.id} class="event" data-severity=${each.severity} data-shown=${each.time_ms === shownAt}>
      <span class="event-time">${isNewDay && html`<small>${date} </small>`}${
        hasHistory()
          ? html`<a href=${changed({ at: each.time_ms })} title=${texts.events.showTheClusterAsIt(moment(each.time_ms))}>${clockMs(each.time_ms)}</a>`
          : clockMs(each.time_ms)
      }</span>
      <${Mark} severity=${each.severity} />
      <span class="event-body"><span class="event-kind">${each.kind}</span>
        ${hasSubject && html`<span class="event-subject"><${Subject} event=${each} /></span>`}
        <span class="event-text">${each.text}</span>
        ${each.cause && !each.text.includes(each.cause) && html`<span class="cause">${each.cause}</span>`}</span></li>`;
  })}</ol>`;
}

/** @param {{event: ClusterEvent}} props */
function Subject({ event }) {
  if (event.count > 1) {
    const sample = (event.sample ?? []).map((each) => `${each.topic}-${each.partition}`).join(', ');
    return html`<span title=${sample}>${event.topic ? html`<${PartitionLink} topic=${event.topic} /> ` : ''}${
      event.subject || texts.events.partitionsOf(count(event.count))
    }</span>`;
  }
  if (event.topic) return html`<${PartitionLink} topic=${event.topic} partition=${event.partition} />`;
  if (event.broker !== null && event.broker >= 0) {
    return html`<a href=${href('/broker', { id: event.broker })}>${texts.words.brokerLower} ${event.broker}</a>`;
  }
  return event.subject;
}
