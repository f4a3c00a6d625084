// The live tail of a topic: what is written, as fast as it can be shown, and how much that left out.
import { useEffect, useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { address } from '../core/api.js';
import { count, plural } from '../core/format.js';
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
  const [isPaused, setPaused] = useState(false);
  const paused = useRef(false);
  paused.current = isPaused;
  const key = JSON.stringify(params);

  useEffect(() => {
    /** @type {EventSource|null} */
    let source = null;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    let timer;
    const close = () => {
      clearTimeout(timer);
      source?.close();
      source = null;
    };
    const open = () => {
      close();
      if (document.visibilityState === 'hidden') return;
      const own = (source = new EventSource(address('/api/tail', params)));
      own.addEventListener('records', (event) => {
        const data = JSON.parse(event.data);
        setState('on');
        setFound((old) => ({
          records: paused.current ? old.records : [...[...data.records].reverse(), ...old.records].slice(0, KEPT),
          dropped: data.dropped,
          searched: data.searched,
          problems: data.problems,
        }));
      });
      own.addEventListener('problem', (event) => {
        setProblem(JSON.parse(event.data).text);
        setState('ended');
        close();
      });
      own.addEventListener('bye', close);
      own.addEventListener('error', () => {
        if (own !== source) return;
        close();
        setState('reconnecting');
        timer = setTimeout(open, RETRY_MS);
      });
    };
    const onVisibility = () => (document.visibilityState === 'hidden' ? close() : open());
    setFound(NOTHING);
    setProblem('');
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
      <span>${plural(found.searched, 'record')} read</span>
      <span class=${found.dropped ? 'bad' : ''}>${count(found.dropped)} dropped</span>
      <span class="muted">the newest ${KEPT} are kept</span>
      <button class="small" aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>${isPaused ? 'Continue' : 'Pause'}</button></p>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${found.problems.map((each) => html`<p key=${each.partition} class="warning">Partition ${each.partition}: ${each.text}</p>`)}
    ${found.records.length === 0 ? html`<p class="empty" role="status">Nothing has been written since the tail began.</p>` : html`<${Records} records=${found.records} />`}`;
}
