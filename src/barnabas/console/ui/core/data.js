// What a screen shows: fetched once, then kept fresh by the live stream of the tab.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { get } from './api.js';
import { openStream } from './live.js';
import { atMs } from './url.js';
/** @import { Envelope } from './types.js' */
/** @import { Params, ApiError } from './api.js' */
/** @import { Handlers } from './live.js' */

/** The envelope of the screen that is shown, without its data: who is silent, how old it is. */
export const shown = signal(/** @type {Envelope<unknown>|null} */ (null));
/** When the answer that is shown came, by this browser's clock, and how far the server's clock is from it. */
export const clocks = signal({ came: 0, ahead: 0 });
const RETRY_MS = 1_000;

/** @param {Envelope<any>} envelope */
export function note(envelope) {
  shown.value = envelope;
  if (envelope.at_ms === null) clocks.value = { came: Date.now(), ahead: envelope.now_ms - Date.now() };
}

/** Returns the present by the server's clock. */
export function serverNow() {
  return Date.now() + clocks.value.ahead;
}

/** @typedef {{screen?: string, live?: Params, isStill?: boolean, isOfStates?: boolean}} Options */

/**
 * Fetches a route, and again when it changes. An old answer stays until the new one is there.
 * @template T
 * @param {string} route
 * @param {Params} params
 * @param {Options} [options] screen: the live stream to open. Without one nothing is live. isOfStates: other sizes and
 *   offsets are no reason to fetch again.
 */
export function useRoute(route, params, options = {}) {
  const at = atMs();
  const all = at === null ? params : { ...params, at };
  const key = `${route} ${JSON.stringify(all)}`;
  // What is asked for; `turn` only asks for it again.
  const subject = `${route} ${JSON.stringify({ ...all, turn: null })}`;
  const [answer, setAnswer] = useState(
    /** @type {{key: string, subject: string, envelope: Envelope<T>|null, error: ApiError|null}} */ ({ key, subject, envelope: null, error: null }),
  );
  const present = useRef(key);
  present.current = key;
  const [turn, setTurn] = useState(0);
  const screen = at === null && !options.isStill ? options.screen : undefined;

  // The request does not wait for the paint of the frame without its answer, as it would in `useEffect`.
  useLayoutEffect(() => {
    const abort = new AbortController();
    /** @type {(() => void)|undefined} */
    let close;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    let timer;
    /** @param {Envelope<T>} envelope */
    const keep = (envelope) => {
      if (abort.signal.aborted) return;
      note(envelope);
      setAnswer({ key, subject, envelope, error: null });
    };
    const load = async () => {
      clearTimeout(timer);
      try {
        const envelope = await get(route, all, { signal: abort.signal });
        keep(/** @type {Envelope<T>} */ (envelope));
        if (screen && !close) close = follow(envelope);
        if (!envelope.is_filled) timer = setTimeout(load, RETRY_MS);
      } catch (error) {
        if (abort.signal.aborted) return;
        setAnswer((old) => ({ key, subject, envelope: old.subject === subject ? old.envelope : null, error: asApiError(error) }));
        if (isPassing(error)) timer = setTimeout(load, RETRY_MS);
      }
    };
    /** @param {Envelope<T>} envelope */
    const follow = (envelope) => {
      const again = throttled(load);
      return openStream(screen ?? '', { ...params, ...options.live }, `${envelope.boot}.${envelope.version}.${envelope.event}`, {
        onData: keep,
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
  return {
    data: answer.envelope?.data ?? null,
    envelope: answer.envelope,
    error: isOld ? null : answer.error,
    isOld,
    reload: () => setTurn((value) => value + 1),
  };
}

/** @param {unknown} error @returns {ApiError} */
export function asApiError(error) {
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') {
    return /** @type {ApiError} */ (error);
  }
  const text = error instanceof DOMException && error.name === 'TimeoutError' ? 'no answer within 15 s' : String(error);
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
