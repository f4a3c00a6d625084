// The lab: stops, kills, pauses and starts the brokers of an embedded cluster.
import { useEffect, useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { get, post, session, shownCluster } from '../core/api.js';
import { asApiError } from '../core/data.js';
import { open } from '../core/keys.js';
import { atMs, setParams } from '../core/url.js';
import { say } from './toasts.js';
/** @import { Lab } from '../core/types.js' */

const ACTS = /** @type {const} */ ({
  running: [
    ['kill', texts.lab.kill, texts.lab.theProcessEndsWithoutA],
    ['stop', texts.lab.stop, texts.lab.aControlledShutdown],
    ['pause', texts.words.pause, texts.lab.sigstopTheProcessStandsStill],
  ],
  paused: [
    ['resume', texts.lab.resume, texts.lab.sigcont],
    ['kill', texts.lab.kill, texts.lab.theProcessEndsWithoutA],
  ],
  stopped: [['start', texts.words.start, texts.lab.theProcessStartsAgain]],
});
const LOOK_MS = 700;

export function LabDrawer() {
  const [lab, setLab] = useState(/** @type {Lab|null} */ (null));
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState('');
  const close = () => (open.value = 'none');

  const looking = useRef(async () => {});
  const cluster = shownCluster();
  useEffect(() => {
    const abort = new AbortController();
    let [sent, shown] = [0, 0];
    const look = async () => {
      if (document.visibilityState === 'hidden') return;
      const number = (sent += 1);
      try {
        const { data } = await get('/api/lab', {}, { signal: abort.signal });
        // A later look, such as that after an action, can be faster.
        if (number < shown) return;
        shown = number;
        setLab(/** @type {Lab|null} */ (data));
        setProblem('');
      } catch (error) {
        if (!abort.signal.aborted) setProblem(asApiError(error).message);
      }
    };
    looking.current = look;
    setLab(null);
    void look();
    const timer = setInterval(look, LOOK_MS);
    const onKey = (/** @type {KeyboardEvent} */ event) => event.key === 'Escape' && !document.querySelector('dialog[open]') && close();
    document.addEventListener('keydown', onKey);
    return () => {
      abort.abort();
      clearInterval(timer);
      document.removeEventListener('keydown', onKey);
    };
  }, [cluster]);

  const act = async (/** @type {string} */ name, /** @type {number} */ broker) => {
    setBusy(`${name} ${broker}`);
    try {
      const answer = await post(`/api/lab/${name}`, { broker });
      say(answer.text ?? texts.lab.brokerDoneOf(name, broker));
    } catch (error) {
      say(asApiError(error).message, 'bad');
    }
    setBusy('');
    await looking.current();
  };
  const isPast = atMs() !== null;
  const reason = problem || (lab && !lab.is_embedded ? (lab.reason ?? texts.lab.thisIsNotAnEmbedded) : '');
  return html`<aside class="drawer" aria-label=${texts.words.lab}>
    <div class="dialog-head"><h2>${texts.words.lab}</h2><button class="icon" aria-label=${texts.lab.closeTheLab} onClick=${close}>×</button></div>
    <p class="hint">${texts.lab.brokersOfThisMachineWatch}</p>
    ${isPast && html`<p class="hint">${texts.lab.offWhileThePastIs} <button class="small" onClick=${() => setParams({ at: null })}>${texts.words.backToThePresent}</button></p>`}
    ${reason && html`<p class="empty">${reason}</p>`}
    ${!session.value?.lab && !reason && html`<p class="empty">${texts.lab.theLabIsForAn}</p>`}
    <ul class="lab">${(lab?.brokers ?? []).map(
      (each) => html`<li key=${each.broker} data-lab=${each.state}>
        <span class="lab-name"><strong>${texts.words.broker} ${each.broker}</strong> <span class="lab-state">${each.state}</span>
          <small>${each.pid ? texts.lab.processOf(each.pid) : ''}</small></span>
        <span class="lab-acts">${(ACTS[/** @type {keyof typeof ACTS} */ (each.state)] ?? []).map(
          ([name, title, hint]) => html`<button key=${name} class=${name === 'kill' ? 'danger' : ''} title=${hint}
            aria-label=${texts.lab.brokerOf(title, each.broker)} disabled=${busy !== '' || isPast} onClick=${() => act(name, each.broker)}>
            ${busy === `${name} ${each.broker}` ? '…' : title}</button>`,
        )}</span></li>`,
    )}</ul>
  </aside>`;
}
