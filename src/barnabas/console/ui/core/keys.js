// Keys of the whole page. A key that is typed into a field belongs to the field.
import { signal } from '@preact/signals';
import { atMs, go, href, setParams } from './url.js';
import { toggleTheme } from './theme.js';

/** Which layer is open over the screen. */
export const open = signal(/** @type {'none'|'palette'|'keys'|'lab'} */ ('none'));
/** Set by the scrubber: goes to the event before (-1) or after (1) the shown moment. */
export const stepper = { step: (/** @type {-1|1} */ _direction) => {} };

const JUMPS = new Map([
  ['o', '/'],
  ['m', '/map'],
  ['t', '/topics'],
  ['b', '/brokers'],
  ['g', '/groups'],
  ['l', '/timeline'],
  ['v', '/moves'],
]);
const JUMP_MS = 1_500;
let jumpUntil = 0;

/** @param {EventTarget|null} target */
function isField(target) {
  return target instanceof HTMLElement && target.closest('input, textarea, select, [contenteditable]') !== null;
}

/** Returns whether a dialog has the keys: what lies under it must not change meanwhile. */
function isUnderDialog() {
  return document.querySelector('dialog[open]') !== null;
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
    event.preventDefault();
    if (open.value !== 'palette' && isUnderDialog()) return;
    open.value = open.value === 'palette' ? 'none' : 'palette';
    return;
  }
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isField(event.target)) return;
  if (isUnderDialog()) return;
  const jump = performance.now() < jumpUntil ? JUMPS.get(event.key) : undefined;
  jumpUntil = 0;
  if (jump !== undefined) {
    go(href(jump));
    return;
  }
  /** @type {Record<string, () => void>} */
  const acts = {
    '/': () => (open.value = 'palette'),
    '?': () => (open.value = 'keys'),
    l: () => (open.value = open.value === 'lab' ? 'none' : 'lab'),
    t: toggleTheme,
    n: () => atMs() !== null && setParams({ at: null }),
    '[': () => stepper.step(-1),
    ']': () => stepper.step(1),
    g: () => (jumpUntil = performance.now() + JUMP_MS),
  };
  const act = acts[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
}

export function startKeys() {
  document.addEventListener('keydown', onKey);
}
