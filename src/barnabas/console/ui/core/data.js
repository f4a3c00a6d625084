// What a screen shows: fetched once, then kept fresh by the live stream of the tab.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { get } from './api.js';
import { openStream } from './live.js';
import { atMs, param } from './url.js';
import { texts } from './texts.js';
/** @import { Envelope } from './types.js' */
/** @import { Params, ApiError } from './api.js' */
/** @import { Handlers } from './live.js' */

/** The envelope of the screen that is shown, without its data: who is silent, how old it is. */
export const shown = signal(/** @type {Envelope<unknown>|null} */ (null));
/** When the answer that is shown came, by this browser's clock, and how far the server's clock is from it. */
export const clocks = signal({ came: 0, ahead: 0 });
const RETRY_MS = 1_000;
/** The pause after which a route is asked again for what its stream does not send. */
const AGAIN_MS = 10_000;

/** @param {Envelope<any>} envelope */
export function note(envelope) {
  shown.value = envelope;
  if (envelope.at_ms === null) clocks.value = { came: Date.now(), ahead: envelope.now_ms - Date.now() };
}

/** Returns the present by the server's clock. */
export function serverNow() {
  return Date.now() + clocks.value.ahead;
}

/** @typedef {{screen?: string, live?: Params, isStill?: boolean, isOfStates?: boolean, turn?: string,
 *   merge?: (old: any, streamed: any) => any}} Options */

/**
 * Fetches a route, and again when it changes. An old answer stays until the new one is there; that of another cluster
 * does not.
 * @template T
 * @param {string} route
 * @param {Params} params
 * @param {Options} [options] screen: the live stream to open. Without one nothing is live. isOfStates: other sizes and
 *   offsets are no reason to fetch again. turn: another one is. merge: returns what is shown after the stream has sent data that lack what
 *   only the route answers; while data come, the route is then asked again from time to time.
 */
export function useRoute(route, params, options = {}) {
  const at = atMs();
  const all = at === null ? params : { ...params, at };
  const cluster = param('cluster');
  const key = `${route} ${JSON.stringify([cluster, all, options.turn])}`;
  // What is asked for; `turn` only asks for it again.
  const subject = `${route} ${JSON.stringify([cluster, { ...all, turn: null }])}`;
  const [answer, setAnswer] = useState(
    /** @type {{key: string, subject: string, cluster: string|null, envelope: Envelope<T>|null, error: ApiError|null}} */ ({ key, subject, cluster, envelope: null, error: null }),
  );
  const [turn, setTurn] = useState(0);
  const screen = at === null && !options.isStill ? options.screen : undefined;

  // The request does not wait for the paint of the frame without its answer, as it would in `useEffect`.
  useLayoutEffect(() => {
    const abort = new AbortController();
    /** @type {(() => void)|undefined} */
    let close;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    let timer;
    /** What is shown; the number of the last request, and of the one whose answer is shown. @type {Envelope<T>|null} */
    let present = null;
    let [sent, kept, sentMs] = [0, 0, 0];
    /** @param {Envelope<T>} envelope */
    const keep = (envelope) => {
      if (abort.signal.aborted) return;
      present = envelope;
      note(envelope);
      setAnswer({ key, subject, cluster, envelope, error: null });
    };
    const load = async () => {
      clearTimeout(timer);
      const number = (sent += 1);
      sentMs = performance.now();
      try {
        const envelope = /** @type {Envelope<T>} */ (await get(route, all, { signal: abort.signal }));
        // The answer to a later request, or the stream, can be faster.
        if (number < kept) return;
        kept = number;
        keep(present && isOlder(envelope, present) ? merged(envelope, present, options.merge) : envelope);
        if (screen && !close) close = follow(envelope);
        if (!envelope.is_filled) timer = setTimeout(load, RETRY_MS);
      } catch (error) {
        if (abort.signal.aborted) return;
        if (number < kept) return;
        setAnswer((old) => ({ key, subject, cluster, envelope: old.subject === subject ? old.envelope : null, error: asApiError(error) }));
        if (isPassing(error)) timer = setTimeout(load, RETRY_MS);
      }
    };
    /** @param {Envelope<T>} envelope */
    const follow = (envelope) => {
      const again = throttled(load);
      return openStream(screen ?? '', { ...params, ...options.live }, `${envelope.boot}.${envelope.version}.${envelope.event}`, {
        onData: (/** @type {Envelope<T>} */ envelope) => {
          keep(present ? merged(present, envelope, options.merge) : envelope);
          if (options.merge && performance.now() - sentMs > AGAIN_MS) again();
        },
        onStale: (what) => (options.isOfStates && what.volumes ? undefined : again()),
        onReload: load,
        onEvents: again,
      });
    };
    void load();
    return () => {
      abort.abort();
      clearTimeout(timer);
      close?.();
    };
  }, [key, screen, turn]);

  const isOld = answer.key !== key;
  const envelope = answer.cluster === cluster ? answer.envelope : null;
  return {
    data: envelope?.data ?? null,
    envelope,
    error: isOld ? null : answer.error,
    isOld,
    reload: () => setTurn((value) => value + 1),
  };
}

/** Whether an answer is of an earlier state than another one. @param {Envelope<any>} one @param {Envelope<any>} other */
function isOlder(one, other) {
  return one.boot === other.boot && one.version < other.version;
}

/**
 * Returns an answer with newer data laid over it.
 * @param {Envelope<any>} old
 * @param {Envelope<any>} newer
 * @param {((old: any, newer: any) => any)} [merge]
 */
function merged(old, newer, merge) {
  return merge && old.data && newer.data ? { ...newer, data: merge(old.data, newer.data) } : newer;
}

/** @param {unknown} error @returns {ApiError} */
export function asApiError(error) {
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') {
    return /** @type {ApiError} */ (error);
  }
  const text = error instanceof SyntaxError ? texts.notJson(error.message) : error instanceof Error ? error.message : String(error);
  return /** @type {ApiError} */ (Object.assign(new Error(text), { code: 'internal' }));
}

/** Returns whether the same request can succeed later. */
function isPassing(/** @type {unknown} */ error) {
  const { code } = asApiError(error);
  return code === 'console' || code === 'timeout' || code === 'unreachable' || code === 'internal';
}

/**
 * Returns a function that runs `act` now, and once more after a pause if it was called meanwhile.
 * @param {() => void} act
 */
export function throttled(act, pauseMs = 400) {
  let isWaiting = false;
  let isAsked = false;
  const run = () => {
    if (isWaiting) {
      isAsked = true;
      return;
    }
    isWaiting = true;
    act();
    setTimeout(() => {
      isWaiting = false;
      if (isAsked) {
        isAsked = false;
        run();
      }
    }, pauseMs);
  };
  return run;
}

/**
 * Keeps the state of the brokers live on a screen whose own data do not change by themselves.
 * @param {string} screen
 */
export function useStatus(screen) {
  const at = atMs();
  useEffect(() => (at === null ? openStream(screen, {}, null, {}) : undefined), [screen, at]);
}

/** Returns the time, again every `ms`, so that ages grow while nothing arrives. */
export function useNow(ms = 1000) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), ms);
    return () => clearInterval(timer);
  }, [ms]);
  return now;
}
