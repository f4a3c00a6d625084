// The live tail of a topic: what is written, as fast as it can be shown, and how much that left out.
import { useEffect, useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { address } from '../core/api.js';
import { clock, count, plural } from '../core/format.js';
import { texts } from '../core/texts.js';
import { Records } from './records.js';
/** @import { Params } from '../core/api.js' */
/** @import { RecordRow } from '../core/types.js' */

/** Records that the page keeps. */
const KEPT = 500;
const RETRY_MS = 2_000;
const NOTHING = { records: /** @type {RecordRow[]} */ ([]), dropped: 0, searched: 0, problems: /** @type {{partition: number, text: string}[]} */ ([]) };

/** @param {{params: Params}} props */
export function Tail({ params }) {
  const [found, setFound] = useState(NOTHING);
  const [state, setState] = useState('connecting');
  const [problem, setProblem] = useState('');
  /** When the tail was not connected, so that records can be missing: the last time. */
  const [gap, setGap] = useState(/** @type {{from: number, to: number}|null} */ (null));
  const [isPaused, setPaused] = useState(false);
  const paused = useRef(false);
  paused.current = isPaused;
  const key = JSON.stringify(params);

  useEffect(() => {
    /** @type {EventSource|null} */
    let source = null;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    let timer;
    /** What the connections before the present one have read and dropped, and when the last one ended. */
    let before = { dropped: 0, searched: 0 };
    let last = before;
    let [isBegun, endMs] = [false, 0];
    const close = () => {
      clearTimeout(timer);
      if (source && isBegun && !endMs) endMs = Date.now();
      source?.close();
      source = null;
    };
    const open = () => {
      close();
      if (document.visibilityState === 'hidden') return;
      const own = (source = new EventSource(address('/api/tail', params)));
      before = { ...last };
      own.addEventListener('records', (event) => {
        const data = JSON.parse(event.data);
        setState('on');
        setProblem('');
        if (endMs) setGap({ from: endMs, to: Date.now() });
        [isBegun, endMs] = [true, 0];
        // What comes while the tail is paused is dropped as well.
        if (paused.current) before.dropped += data.records.length;
        last = { dropped: before.dropped + data.dropped, searched: before.searched + data.searched };
        const sums = last;
        setFound((old) => ({
          ...sums,
          records: paused.current ? old.records : [...[...data.records].reverse(), ...old.records].slice(0, KEPT),
          problems: data.problems,
        }));
      });
      own.addEventListener('problem', (event) => {
        setProblem(JSON.parse(event.data).text);
        setState('ended');
        close();
      });
      const again = () => {
        if (own !== source) return;
        close();
        setState('reconnecting');
        timer = setTimeout(open, RETRY_MS);
      };
      own.addEventListener('bye', again);
      own.addEventListener('error', again);
    };
    const onVisibility = () => {
      if (document.visibilityState === 'hidden') close();
      else if (!source) open();
    };
    setFound(NOTHING);
    setProblem('');
    setGap(null);
    setState('connecting');
    document.addEventListener('visibilitychange', onVisibility);
    open();
    return () => {
      document.removeEventListener('visibilitychange', onVisibility);
      close();
    };
  }, [key]);

  return html`
    <p class="facts"><span class="tail-state" data-state=${state}>${state === 'on' ? 'live' : state}</span>
      <span>${plural(found.searched, texts.nouns.record)} ${texts.words.read}</span>
      <span class=${found.dropped ? 'bad' : ''}>${count(found.dropped)} ${texts.tail.dropped}</span>
      <span class="muted">${texts.tail.theNewest} ${KEPT} ${texts.tail.areKept}</span>
      <button class="small" aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>${isPaused ? texts.tail.continue : texts.words.pause}</button></p>
    ${gap && html`<p class="warning">${texts.tailGap(clock(gap.from), clock(gap.to))}</p>`}
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${found.problems.map((each) => html`<p key=${each.partition} class="warning">${texts.words.partition} ${each.partition}: ${each.text}</p>`)}
    ${found.records.length === 0 ? html`<p class="empty" role="status">${texts.tail.nothingHasBeenWrittenSince}</p>` : html`<${Records} records=${found.records} />`}`;
}
