// The rows that are chosen in a list, in the address: names, or all that match the filter but some.
import { param, setParams } from './url.js';
import { texts } from './texts.js';
import { say } from '../parts/toasts.js';

const ALL = '*';
/** Longer addresses are too much for servers and for whoever gets the link. */
const CHARS_MAX = 8_000;

/** @typedef {{isAll: boolean, names: Set<string>, count: number, has: (name: string) => boolean}} Chosen
 *   `names`: those that are chosen, or if all are, those that are not */

/** @param {number|null} matched how many rows match the filter @returns {Chosen} */
export function chosenRows(matched) {
  const isAll = param('chosen') === ALL;
  const names = new Set((param(isAll ? 'without' : 'chosen') ?? '').split(',').filter(Boolean));
  const count = isAll ? Math.max(0, (matched ?? 0) - names.size) : names.size;
  return { isAll, names, count, has: (name) => names.has(name) !== isAll };
}

/** Chooses rows, or takes them out. @param {Chosen} chosen @param {string[]} some @param {boolean} isOn */
export function choose({ isAll, names }, some, isOn) {
  const next = new Set(names);
  for (const name of some) {
    if (isOn === isAll) next.delete(name);
    else next.add(name);
  }
  keep(next, isAll);
}

/** Chooses all rows that match the filter, or none. @param {boolean} isOn */
export function chooseAll(isOn) {
  setParams({ chosen: isOn ? ALL : null, without: null }, { replace: true });
}

/** Chooses these rows alone. @param {string[]} names */
export function chooseOnly(names) {
  keep(new Set(names), false);
}

/** @param {Set<string>} names @param {boolean} isAll */
function keep(names, isAll) {
  const text = [...names].join(',');
  if (encodeURIComponent(text).length > CHARS_MAX) say(texts.chosen.tooMany, 'bad');
  else setParams(isAll ? { chosen: ALL, without: text } : { chosen: text, without: null }, { replace: true });
}
