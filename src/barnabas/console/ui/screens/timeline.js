// Time line: what happened, in which order, because of what?
import { useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { get, hasHistory } from '../core/api.js';
import { asApiError, serverNow, useRoute } from '../core/data.js';
import { atMs, changed, href, param, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { count, moment, plural } from '../core/format.js';
import { EventList } from '../parts/events.js';
import { Minutes } from '../pictures/minutes.js';
import { SaveIncident } from '../parts/incident.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { Timeline, Event as ClusterEvent } from '../core/types.js' */

const HOURS = /** @type {const} */ ([
  ['', texts.timelineScreen.allThatIsKept],
  ['900000', 'last 15 min'],
  ['3600000', texts.timelineScreen.lastHour],
  ['86400000', texts.timelineScreen.lastDay],
]);
const SEVERITIES = /** @type {const} */ (['critical', 'error', 'warning', 'notice', 'ok']);
const ROUND_MS = 10_000;

export function TimelineScreen() {
  /** All events that are shown, once earlier ones were asked for; the route answers the newest. */
  const kept = useRef(/** @type {{key: string, events: ClusterEvent[]}} */ ({ key: '', events: [] }));
  const [more, setMore] = useState({ isBusy: false, problem: '' });
  const span = param('span') ?? '';
  const until = atMs();
  const filters = {
    q: param('q') ?? '',
    kind: param('kind') ?? '',
    cause: param('cause') ?? '',
    topic: param('topic') ?? '',
    partition: param('partition') ?? '',
    broker: param('broker') ?? '',
    severity: param('severity') ?? '',
    from: param('from') ?? (span ? Math.floor(((until ?? serverNow()) - Number(span)) / ROUND_MS) * ROUND_MS : ''),
    to: param('to') ?? '',
  };
  const answer = useRoute('/api/timeline', { ...filters, limit: 200 }, { screen: 'timeline' });
  const data = /** @type {Timeline|null} */ (answer.data);
  const key = JSON.stringify([filters, until, param('cluster'), answer.envelope?.boot]);
  if (data && kept.current.key === key) kept.current.events = joined(kept.current.events, data.events);
  const events = kept.current.key === key ? kept.current.events : (data?.events ?? []);
  const isFiltered = Object.values(filters).some((each) => each !== '');
  const loadMore = async () => {
    setMore({ isBusy: true, problem: '' });
    try {
      const next = await get('/api/timeline', { ...filters, at: until, limit: 200, before: events.at(-1)?.id });
      const found = /** @type {Timeline|null} */ (next.data)?.events ?? [];
      kept.current = { key, events: [...events, ...found] };
      setMore({ isBusy: false, problem: '' });
    } catch (error) {
      setMore({ isBusy: false, problem: asApiError(error).message });
    }
  };
  const field = (/** @type {string} */ name, /** @type {string} */ title) => html`<input type="text" class="short" aria-label=${title} placeholder=${title} value=${param(name) ?? ''} spellcheck=${false}
    onInput=${(/** @type {any} */ event) => setParams({ [name]: event.currentTarget.value }, { replace: true })} />`;
  return html`
    <div class="tools">
      <input type="search" class="filter short-filter" aria-label=${texts.timelineScreen.filterEvents} placeholder=${texts.timelineScreen.filterByText} value=${filters.q} spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setParams({ q: event.currentTarget.value }, { replace: true })} />
      ${field('topic', 'topic')}${field('broker', 'broker')}
      <label>${texts.timelineScreen.kind} <select class="short" value=${filters.kind} onChange=${(/** @type {any} */ event) => setParams({ kind: event.currentTarget.value })}>
        <option value="">${texts.words.anyLower}</option>${Object.entries(data?.kinds ?? {}).map(([kind, number]) => html`<option key=${kind} value=${kind}>${kind} (${number})</option>`)}
        ${filters.kind && !data?.kinds?.[filters.kind] && html`<option value=${filters.kind}>${filters.kind}</option>`}</select></label>
      <label>${texts.timelineScreen.cause} <select class="short" value=${filters.cause} onChange=${(/** @type {any} */ event) => setParams({ cause: event.currentTarget.value })}>
        <option value="">${texts.words.anyLower}</option>${Object.entries(data?.causes ?? {}).map(([cause, number]) => html`<option key=${cause} value=${cause}>${cause} (${number})</option>`)}
        ${filters.cause && !data?.causes?.[filters.cause] && html`<option value=${filters.cause}>${filters.cause}</option>`}</select></label>
      <label>${texts.timelineScreen.severity} <select value=${filters.severity} onChange=${(/** @type {any} */ event) => setParams({ severity: event.currentTarget.value })}>
        <option value="">${texts.words.anyLower}</option>${SEVERITIES.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
      <label>${texts.timelineScreen.span} <select value=${span} onChange=${(/** @type {any} */ event) => setParams({ span: event.currentTarget.value, from: null, to: null })}>
        ${HOURS.map(([value, title]) => html`<option key=${value} value=${value}>${title}</option>`)}</select></label>
      ${isFiltered && html`<a class="button" href=${changed({ q: null, kind: null, cause: null, topic: null, partition: null, broker: null, severity: null, span: null, from: null, to: null })}>${texts.timelineScreen.clear}</a>`}
      <span class="grow"></span>${hasHistory() && html`<a class="button" href=${href('/compare')}>${texts.timelineScreen.compareTwoMoments}</a>`}<${SaveIncident} />
      <span class="found" role="status">${data ? plural(data.total, texts.nouns.event) : ''}</span>
    </div>
    ${!data
      ? html`<${Waiting} ...${answer} />`
      : html`${data.minutes.length > 0 && html`<section class="panel" aria-label=${texts.timelineScreen.minutes}><h2>${texts.timelineScreen.minutes}</h2><${Minutes} minutes=${data.minutes} /></section>`}
          <section class="panel" aria-label=${texts.words.events}>
            <${EventList} events=${events} empty=${isFiltered ? texts.empty.eventsFilter : texts.empty.events} />
            ${events.length < data.total && html`${more.problem && html`<p class="problem" role="alert">${more.problem}</p>`}
              <p><button disabled=${more.isBusy} onClick=${loadMore}>${texts.timelineScreen.earlierEvents}</button> <span class="muted">${count(events.length)} ${texts.words.ofLower} ${count(data.total)}</span></p>`}
            ${data.oldest_ms !== null && html`<p class="hint">${texts.timelineScreen.theOldestEventThatIs} ${moment(data.oldest_ms)}${data.is_cut ? texts.timelineScreen.earlierOnesAreGone : ''}.</p>`}
          </section>`}`;
}

/**
 * Returns the newest events with the earlier ones that were shown; without those if there can be others between them.
 * @param {ClusterEvent[]} shown
 * @param {ClusterEvent[]} newest
 */
function joined(shown, newest) {
  const last = Number(newest.at(-1)?.id ?? 0);
  if (Number(shown[0]?.id ?? 0) < last) return newest;
  return [...newest, ...shown.filter((each) => Number(each.id) < last)];
}
