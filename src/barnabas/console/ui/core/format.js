// Numbers, sizes, ages and moments as texts.
import { texts } from './texts.js';
/** @import { Policy } from './types.js' */

const UNKNOWN = '?';
const number = new Intl.NumberFormat('en-US');
const PATH_SHOWN = 20;
const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

/** @param {number|null|undefined} value */
export function count(value) {
  return value === null || value === undefined ? UNKNOWN : number.format(value);
}

/** @param {number|null|undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  let rest = value;
  let unit = 0;
  while (rest >= 1000 && unit < UNITS.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  return `${unit && rest < 100 ? rest.toFixed(1) : Math.round(rest)} ${UNITS[unit]}`;
}

/** @param {number|null|undefined} value */
export function rate(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return `${value >= 100 ? number.format(Math.round(value)) : Number(value.toFixed(1))}/s`;
}

/** Returns the end of a long path: the directories of a broker differ there. @param {string|null} value */
export function pathEnd(value) {
  if (value === null) return UNKNOWN;
  return value.length <= PATH_SHOWN ? value : `…${value.slice(1 - PATH_SHOWN)}`;
}

/** Returns a number of bytes for each second. @param {number|null|undefined} value */
export function byteRate(value) {
  return value === null || value === undefined ? UNKNOWN : `${bytes(value)}/s`;
}

/** @param {number|null|undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return UNKNOWN;
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return texts.words.minOf(Math.round(seconds / 60));
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

/** @param {number} value @param {number} [digits] */
function two(value, digits = 2) {
  return String(value).padStart(digits, '0');
}

/** @param {number|null|undefined} ms */
export function clock(ms) {
  if (ms === null || ms === undefined) return UNKNOWN;
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** @param {number|null|undefined} ms */
export function clockMs(ms) {
  return ms === null || ms === undefined ? UNKNOWN : `${clock(ms)}.${two(new Date(ms).getMilliseconds(), 3)}`;
}

/** @param {number} ms */
export function day(ms) {
  const date = new Date(ms);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** @param {number|null|undefined} ms */
export function moment(ms) {
  return ms === null || ms === undefined ? UNKNOWN : `${day(ms)} ${clock(ms)}`;
}

/**
 * Returns the time that a text names, in ms: milliseconds, a date with or without a time, or a time of today. Null for
 * anything else.
 * @param {string} text
 */
export function timeOf(text) {
  const given = text.trim();
  if (/^-?\d+$/.test(given)) return Number(given);
  const isTime = /^\d{1,2}:\d{2}/.test(given);
  // A date without a time would be read as one of UTC.
  const isDate = /^\d{4}-\d{2}-\d{2}$/.test(given);
  const found = new Date(isTime ? `${day(Date.now())} ${given}` : isDate ? `${given} 00:00` : given).getTime();
  return Number.isNaN(found) ? null : found;
}

/** Returns what happens to old records of a topic, in short. @param {Policy} policy */
export function policyText({ cleanup, retention_ms: ms, retention_bytes: size }) {
  if (cleanup === null) return UNKNOWN;
  if (cleanup.length === 0) return texts.policy.none;
  const names = cleanup.join(', ');
  if (!cleanup.includes('delete')) return names;
  const limits = [ms === -1 ? null : duration(ms), size === -1 || size === null ? null : bytes(size)].filter(Boolean);
  return `${names} ${limits.join(' / ') || texts.policy.forever}`;
}

/** @param {number[]|null|undefined} brokers */
export function brokers(brokers) {
  if (brokers === null || brokers === undefined) return UNKNOWN;
  return brokers.length ? brokers.join(',') : texts.none;
}

/** @param {number} n @param {string} one @param {string} [many] */
export function plural(n, one, many) {
  return `${count(n)} ${n === 1 ? one : (many ?? `${one}s`)}`;
}
