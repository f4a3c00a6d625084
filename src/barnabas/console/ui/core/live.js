// The live stream: one for each visible tab. A hidden tab has none; it resumes where it was when it is seen again. If the
// browser has many tabs, the server ends some streams at once. This asks for their next turn after a pause, or when a tab
// whose stream stays open tells that something changed.
import { signal } from '@preact/signals';
import { address, loadSession, session } from './api.js';
/** @import { Params } from './api.js' */
/** @import { Silent } from './types.js' */

/** @typedef {{problem: string|null, silent: Silent[], known_ms: number|null, controller: number, version: number,
 *   recording: boolean}} Status */
/** @typedef {{onData?: (envelope: any) => void, onStale?: (what: {volumes: boolean}) => void,
 *   onCells?: (cells: any) => void, onEvents?: () => void, onReload?: () => void}} Handlers */

/** How the stream is: off (the past, or nothing asked), opening, on, or lost since some moment. */
export const stream = signal({ state: 'off', since: Date.now() });
/** The last state of the cluster's brokers that the stream sent. */
export const status = signal(/** @type {Status|null} */ (null));

/** Between the tabs of this browser: the name of a cluster in which something changed. */
const changes = new BroadcastChannel('barnabas-console-changes');
const RETRY_FIRST_MS = 500;
const RETRY_LAST_MS = 5_000;

/** @param {'off'|'opening'|'on'|'lost'} state */
function setState(state) {
  if (stream.value.state !== state) stream.value = { state, since: Date.now() };
}

/**
 * Opens the stream of a screen; the returned function closes it.
 * @param {string} screen
 * @param {Params} params
 * @param {string|null} after the id up to which the page knows everything: boot.version
 * @param {Handlers} handlers
 */
export function openStream(screen, params, after, handlers) {
  /** @type {EventSource|null} */
  let source = null;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  let timer;
  let wait = RETRY_FIRST_MS;
  let last = after;
  /** @type {{turn: string, cluster: string}|null} the turn that this waits for */
  let next = null;
  let isClosed = false;

  /** @param {string} [turn] the name of the stream that continues */
  const open = (turn) => {
    clearTimeout(timer);
    next = null;
    if (isClosed || document.visibilityState === 'hidden') return;
    if (!turn && stream.value.state !== 'lost') setState('opening');
    source = new EventSource(address('/api/live', { ...params, screen, after: last, turn }));
    listen(source);
  };
  const close = () => {
    clearTimeout(timer);
    next = null;
    source?.close();
    source = null;
  };
  const retry = () => {
    close();
    setState('lost');
    timer = setTimeout(() => open(), wait);
    wait = Math.min(RETRY_LAST_MS, wait * 2);
  };
  /** @param {EventSource} from */
  const listen = (from) => {
    /**
     * @param {string} name
     * @param {(data: any) => void} use
     */
    const on = (name, use) =>
      from.addEventListener(name, (event) => {
        if (from !== source) return;
        if (event.lastEventId) last = event.lastEventId;
        wait = RETRY_FIRST_MS;
        setState('on');
        use(event.data ? JSON.parse(event.data) : null);
      });
    on('hello', ({ boot }) => {
      // The console was started again, or shows another cluster: the session, its token and what it offers are others.
      if (boot !== session.value?.boot) void loadSession().catch(() => {});
    });
    on('status', (data) => {
      status.value = data;
    });
    on('data', (data) => handlers.onData?.(data));
    on('stale', (data) => handlers.onStale?.(data));
    on('cells', (data) => handlers.onCells?.(data));
    on('events', () => handlers.onEvents?.());
    on('reload', () => {
      last = null;
      handlers.onReload?.();
    });
    on('others', ({ cluster }) => changes.postMessage(cluster));
    on('turn', ({ turn, pause_ms, cluster }) => {
      close();
      next = { turn, cluster };
      timer = setTimeout(() => open(turn), pause_ms);
    });
    // The session has ended, or the console stops: the session tells which, and the stream is tried again.
    on('bye', () => {
      retry();
      void loadSession().catch(() => {});
    });
    from.addEventListener('error', () => {
      if (from !== source) return;
      // A refusal does not say why; a lost connection is not closed, but would be tried again by the browser.
      if (from.readyState === EventSource.CLOSED) void loadSession().catch(() => {});
      retry();
    });
  };
  /** @param {MessageEvent} event */
  const onChange = (event) => {
    if (next && next.cluster === event.data) open(next.turn);
  };
  const onVisibility = () => {
    if (document.visibilityState === 'hidden') {
      close();
      setState('off');
    } else if (!source) {
      open();
    }
  };
  document.addEventListener('visibilitychange', onVisibility);
  changes.addEventListener('message', onChange);
  open();
  return () => {
    isClosed = true;
    document.removeEventListener('visibilitychange', onVisibility);
    changes.removeEventListener('message', onChange);
    close();
    setState('off');
    status.value = null;
  };
}
