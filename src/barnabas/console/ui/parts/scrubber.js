// The scrubber under every screen: it sets the moment that all screens show.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { get, hasHistory, loadSession, session } from '../core/api.js';
import { clocks, serverNow, useNow } from '../core/data.js';
import { stepper } from '../core/keys.js';
import { atMs, param, place, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { clock, day, moment, plural } from '../core/format.js';
import { colour } from '../core/theme.js';
import { timeTicks, useCanvas } from '../pictures/canvas.js';
/** @import { Event as ClusterEvent, History } from '../core/types.js' */

const MINUTE = 60_000;
const WINDOWS = /** @type {const} */ ([
  [MINUTE, '1 min'],
  [5 * MINUTE, '5 min'],
  [15 * MINUTE, '15 min'],
  [60 * MINUTE, '1 h'],
  [6 * 60 * MINUTE, '6 h'],
  [24 * 60 * MINUTE, '1 day'],
  [7 * 24 * 60 * MINUTE, '7 days'],
]);
const LOOK_MS = 3_000;
const EVENTS_MAX = 400;
/** The height of the line under minutes in which partitions were under min ISR or offline. */
const FOOT = 3;

export function Scrubber() {
  const at = atMs();
  const now = useNow(1000) + clocks.value.ahead;
  const [history, setHistory] = useState(/** @type {History|null} */ (null));
  const [isAsked, setAsked] = useState(false);
  const [events, setEvents] = useState(/** @type {ClusterEvent[]} */ ([]));
  const asked = Number(param('window'));
  const span = WINDOWS.find(([ms]) => ms === asked)?.[0] ?? fitting(history, now);
  const isPast = at !== null;
  const end = isPast && at < now - span ? Math.min(now, at + span / 2) : now;
  const start = end - span;
  const cluster = place.value.params.get('cluster');
  const shownEnd = isPast ? Math.round(end / LOOK_MS) : 0;

  useEffect(() => {
    // The history of another cluster is not this one's.
    setHistory(null);
    setAsked(false);
    setEvents([]);
  }, [cluster]);
  useEffect(() => {
    const abort = new AbortController();
    const look = async () => {
      if (document.visibilityState === 'hidden' || !hasHistory()) return;
      const until = isPast ? end : serverNow();
      const options = { signal: abort.signal };
      try {
        const [told, line] = await Promise.all([
          get('/api/history', { from: Math.round(until - span) }, options),
          get('/api/timeline', { from: Math.round(until - span), to: Math.round(until), limit: EVENTS_MAX }, options),
        ]);
        const known = /** @type {History|null} */ (told.data);
        setHistory(known);
        setAsked(true);
        // The recording has begun after the page.
        if (known?.first_ms && !session.value?.history) void loadSession().catch(() => {});
        setEvents(/** @type {any} */ (line.data)?.events ?? []);
      } catch {
        // The screens say that the console does not answer.
      }
    };
    void look();
    // What is new is less than a bar of a long span.
    const timer = setInterval(look, isPast || span > 6 * 60 * MINUTE ? 10 * LOOK_MS : LOOK_MS);
    return () => {
      abort.abort();
      clearInterval(timer);
    };
  }, [span, isPast, cluster, shownEnd, hasHistory()]);

  stepper.step = (direction) => {
    const from = at ?? now;
    const times = events.map((each) => each.time_ms).sort((one, other) => one - other);
    const target = direction < 0 ? times.filter((each) => each < from - 1).at(-1) : times.find((each) => each > from);
    if (target !== undefined) setParams({ at: target });
    else if (direction > 0) setParams({ at: null });
  };
  if (!hasHistory()) return html`<footer class="scrubber off" aria-label=${texts.words.time}><p>${texts.waiting.noHistory}</p></footer>`;
  if (!history?.first_ms) {
    return html`<footer class="scrubber off" aria-label=${texts.words.time}><p>${isAsked ? (history?.problem ?? texts.scrubber.notBegun) : ''}</p></footer>`;
  }
  return html`<footer class="scrubber" aria-label=${texts.words.time}>
    <div class="scrubber-buttons">
      <button class="icon" onClick=${() => stepper.step(-1)} aria-label=${texts.scrubberPart.theEventBefore} title=${texts.scrubberPart.theEventBefore2}>‹</button>
      <button class="icon" onClick=${() => stepper.step(1)} aria-label=${texts.scrubberPart.theEventAfter} title=${texts.scrubberPart.theEventAfter2}>›</button>
      <button class="now" aria-pressed=${!isPast} onClick=${() => setParams({ at: null })} title=${`${texts.backToLive} (n)`}>
        <span class="dot" aria-hidden="true"></span>${texts.scrubberPart.now}</button>
    </div>
    <${Track} start=${start} end=${end} at=${at} events=${events} history=${history} />
    <label class="window"><span class="spoken">${texts.scrubberPart.spanOfTheTimeLine}</span>
      <select value=${span} onChange=${(/** @type {any} */ event) => setParams({ window: event.currentTarget.value }, { replace: true })}>
        ${WINDOWS.map(([ms, title]) => html`<option key=${ms} value=${ms}>${title}</option>`)}
      </select></label>
    ${history.problem && html`<p class="scrubber-problem" title=${history.problem}>${texts.scrubberPart.notRecording} ${history.problem}</p>`}
  </footer>`;
}

/** @param {History|null} history @param {number} now */
function fitting(history, now) {
  const kept = history?.first_ms ? now - history.first_ms : 0;
  return (WINDOWS.slice(0, 5).find(([ms]) => ms >= kept) ?? WINDOWS[4])[0];
}

/** @param {{start: number, end: number, at: number|null, events: ClusterEvent[], history: History}} props */
function Track({ start, end, at, events, history }) {
  const isDragged = useRef(false);
  const sums = useMemo(() => binned(events, history, start, end), [events, history, Math.round(start / 1000), end - start]);
  const { canvas, size } = useCanvas(
    (context, width, height) => drawTrack(context, width, height, { start, end, at, sums, first: history.first_ms }),
    [sums, at, Math.round(start / 500)],
  );
  const momentAt = (/** @type {number} */ x) => {
    const box = canvas.current?.getBoundingClientRect();
    const share = box ? Math.max(0, Math.min(1, (x - box.left) / box.width)) : 1;
    return Math.round(start + share * (end - start));
  };
  /** @param {number} value @param {boolean} isReplaced */
  const set = (value, isReplaced) => {
    const clamped = Math.max(history.first_ms, value);
    const target = clamped >= end - 500 && end >= serverNow() - 2000 ? null : clamped;
    // The step from the present into the past is an entry of the browser's history, however it is made.
    setParams({ at: target }, { replace: isReplaced && atMs() !== null });
  };
  const onPointerDown = (/** @type {PointerEvent} */ event) => {
    if (event.button !== 0) return;
    canvas.current?.setPointerCapture(event.pointerId);
    isDragged.current = true;
    set(momentAt(event.clientX), false);
  };
  const onPointerMove = (/** @type {PointerEvent} */ event) => {
    if (isDragged.current) set(momentAt(event.clientX), true);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const step = ((end - start) / 100) * (event.shiftKey ? 10 : 1);
    const from = at ?? end;
    /** @type {Record<string, number>} */
    const targets = { ArrowLeft: from - step, ArrowRight: from + step, Home: Math.max(start, history.first_ms), End: end + 1000 };
    const target = targets[event.key];
    if (target === undefined) return;
    event.preventDefault();
    set(Math.round(target), true);
  };
  const value = Math.round(at ?? end);
  const critical = events.filter((each) => each.severity === 'critical' || each.severity === 'error').length;
  const troubled = history.minutes.filter(([minute, , partitions]) => partitions > 0 && minute + MINUTE > start && minute < end).length;
  return html`<div class="track">
    <canvas ref=${canvas} role="slider" tabindex="0" aria-label=${texts.scrubber.label(plural(events.length, texts.nouns.event), critical, plural(troubled, texts.nouns.minute))}
      aria-valuemin=${Math.round(history.first_ms)} aria-valuemax=${Math.round(Math.max(end, value))} aria-valuenow=${value}
      aria-valuetext=${at === null ? texts.scrubberPart.thePresent : moment(at)} title=${texts.scrubber.title}
      onPointerDown=${onPointerDown} onPointerMove=${onPointerMove} onPointerUp=${() => (isDragged.current = false)}
      onPointerCancel=${() => (isDragged.current = false)} onKeyDown=${onKeyDown} data-width=${size.width}></canvas>
  </div>`;
}

const BINS = 200;

/**
 * Returns the events of each bar, those of them that are grave, and whether partitions were under min ISR or offline
 * then, whether anything happened or not.
 * @param {ClusterEvent[]} events
 * @param {History} history
 * @param {number} start
 * @param {number} end
 */
function binned(events, history, start, end) {
  const all = new Float64Array(BINS);
  const grave = new Float64Array(BINS);
  const isTroubled = new Uint8Array(BINS);
  const add = (/** @type {number} */ time, /** @type {number} */ count, /** @type {number} */ critical) => {
    const bin = Math.floor(((time - start) / (end - start)) * BINS);
    if (bin < 0 || bin >= BINS) return;
    all[bin] = (all[bin] ?? 0) + count;
    grave[bin] = (grave[bin] ?? 0) + critical;
  };
  const isLong = end - start > 2 * 60 * MINUTE;
  for (const [minute, count, partitions] of history.minutes) {
    if (isLong) add(minute, count, 0);
    if (!partitions) continue;
    const first = Math.floor(((minute - start) / (end - start)) * BINS);
    const last = Math.floor(((Math.min(end, minute + MINUTE) - start) / (end - start)) * BINS);
    isTroubled.fill(1, Math.max(0, first), Math.max(0, last, first + 1));
  }
  if (!isLong) {
    for (const event of events) {
      const isGrave = event.severity === 'critical' || event.severity === 'error' || event.severity === 'warning';
      add(event.time_ms, event.count || 1, isGrave ? event.count || 1 : 0);
    }
  }
  return { all, grave, isTroubled };
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} width
 * @param {number} height
 * @param {{start: number, end: number, at: number|null, sums: {all: Float64Array, grave: Float64Array, isTroubled: Uint8Array}, first: number}} what
 */
function drawTrack(context, width, height, { start, end, at, sums, first }) {
  const base = height - 14;
  const x = (/** @type {number} */ time) => ((time - start) / (end - start)) * width;
  context.fillStyle = colour('track');
  context.fillRect(0, 2, width, base - 2);
  if (first > start) {
    context.fillStyle = colour('track-empty');
    context.fillRect(0, 2, x(first), base - 2);
  }
  const bar = width / BINS;
  for (let bin = 0; bin < BINS; bin += 1) {
    const [all, grave] = [sums.all[bin] ?? 0, sums.grave[bin] ?? 0];
    if (sums.isTroubled[bin]) {
      context.fillStyle = colour('critical');
      context.fillRect(bin * bar, base - FOOT, bar + 0.5, FOOT);
    }
    if (!all) continue;
    const high = Math.min(base - 4, 5 + Math.log2(1 + all) * 3);
    context.fillStyle = colour('event');
    context.fillRect(bin * bar, base - high, Math.max(2, bar - 1), high);
    if (!grave) continue;
    const part = Math.max(4, (high * grave) / all);
    context.fillStyle = colour('critical');
    context.fillRect(bin * bar, base - part, Math.max(2, bar - 1), part);
  }
  const { ticks, isByDay, hasSeconds } = timeTicks(start, end, width / 110);
  context.font = '10.5px system-ui, sans-serif';
  context.fillStyle = colour('muted');
  context.textAlign = 'center';
  for (const tick of ticks) {
    const text = isByDay ? day(tick).slice(5) : clock(tick).slice(0, hasSeconds ? 8 : 5);
    if (x(tick) > 24 && x(tick) < width - 24) context.fillText(text, x(tick), height - 2);
    context.fillRect(x(tick), base, 1, 3);
  }
  context.fillStyle = colour('accent');
  const place_ = at === null ? width - 2 : Math.max(0, Math.min(width - 2, x(at)));
  context.fillRect(place_ - 0.5, 0, 2.5, base + 2);
  context.beginPath();
  context.arc(Math.max(5, Math.min(width - 5, place_ + 0.5)), 5, 4.5, 0, 7);
  context.fill();
}
