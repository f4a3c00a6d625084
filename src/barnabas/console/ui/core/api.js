// Requests to the console's server. Every one ends: with an answer, with an error of the server, or after a limit.
import { signal } from '@preact/signals';
import { place } from './url.js';
import { texts } from './texts.js';
/** @import { Session, Envelope } from './types.js' */

const LIMIT_MS = 15_000;
const CHANGE_LIMIT_MS = 60_000;

/** Who uses the page, and what the server offers. Null before its first answer. */
export const session = signal(/** @type {Session|null} */ (null));

export class ApiError extends Error {
  /**
   * @param {string} code
   * @param {string} text
   * @param {{hint?: string, where?: [number, number], retry_s?: number, results?: {subject: string, ok: boolean, text: string}[]}} [more]
   */
  constructor(code, text, more = {}) {
    super(text);
    this.code = code;
    this.hint = more.hint;
    this.where = more.where;
    this.retryS = more.retry_s;
    /** What became of each part of a change of which every part failed. */
    this.results = more.results;
  }
}

/** @typedef {Record<string, string|number|boolean|null|undefined>} Params */

/**
 * @param {string} route
 * @param {Params} [params]
 */
export function address(route, params = {}) {
  const query = new URLSearchParams();
  const cluster = place.value.params.get('cluster');
  if (cluster !== null) query.set('cluster', cluster);
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== '') query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `${route}?${text}` : route;
}

/**
 * @template T
 * @param {string} url
 * @param {RequestInit} options
 * @param {(answer: Response) => Promise<T>} read
 * @returns {Promise<T>}
 */
async function ask(url, options, read) {
  let answer, told;
  try {
    answer = await fetch(url, { ...options, credentials: 'same-origin', cache: 'no-store' });
    if (answer.ok) return await read(answer);
    told = (await answer.json())?.error ?? {};
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    // Nothing asks for a change again: whether it was made is not known.
    if (options.method === 'POST') throw new ApiError('unknown', texts.changeUnanswered);
    if (error instanceof DOMException && error.name === 'TimeoutError') throw new ApiError('timeout', texts.tooLate);
    if (!answer) throw new ApiError('console', texts.consoleSilent);
    told = {};
  }
  if (answer.status === 401 && told.code === 'login') await loadSession().catch(() => {});
  throw new ApiError(told.code ?? 'internal', told.text ?? `${answer.status} ${answer.statusText}`, told);
}

/**
 * @param {AbortSignal|undefined} signal_
 * @param {number} limitMs
 */
function limited(signal_, limitMs) {
  const limit = AbortSignal.timeout(limitMs);
  return signal_ ? AbortSignal.any([signal_, limit]) : limit;
}

/**
 * @template T
 * @param {string} route
 * @param {Params} [params]
 * @param {{signal?: AbortSignal, limitMs?: number}} [options]
 * @returns {Promise<Envelope<T>>}
 */
export async function get(route, params, { signal: given, limitMs = LIMIT_MS } = {}) {
  return ask(address(route, params), { signal: limited(given, limitMs) }, (answer) => answer.json());
}

/**
 * @param {string} route
 * @param {Params} params
 * @param {AbortSignal} [given]
 */
export async function getBytes(route, params, given) {
  return ask(address(route, params), { signal: limited(given, LIMIT_MS) }, (answer) => answer.arrayBuffer());
}

/** How many changes this page has asked for; the audit log has another entry after each of them. */
export const changes = signal(0);

/**
 * @param {string} route
 * @param {unknown} body
 */
export async function post(route, body) {
  try {
    return await sendChange(route, body);
  } catch (error) {
    // Another tab has begun the session of this browser: with its token, what was refused is asked for again.
    if (!(error instanceof ApiError) || error.code !== 'csrf') throw error;
    await loadSession();
    return await sendChange(route, body);
  } finally {
    changes.value += 1;
  }
}

/** @param {string} route @param {unknown} body */
async function sendChange(route, body) {
  /** @type {Record<string, string>} */
  const headers = { 'Content-Type': 'application/json' };
  const token = session.value?.token;
  if (token) headers['X-Barnabas-Token'] = token;
  const options = { method: 'POST', headers, body: JSON.stringify(body), signal: AbortSignal.timeout(CHANGE_LIMIT_MS) };
  return ask(address(route), options, (answer) => answer.json());
}

/** Returns whether the console keeps a history, so that a moment of the past can be shown. */
export function hasHistory() {
  return session.value?.features?.includes('history') ?? false;
}

/** Returns the last moment of the incident that is shown; null for a cluster that is watched. */
export function incidentEnd() {
  const name = shownCluster();
  return session.value?.clusters?.find((each) => each.name === name)?.incident_ms ?? null;
}

/** Returns the name of the cluster that is shown: that of the address, else the first one. */
export function shownCluster() {
  return place.value.params.get('cluster') ?? session.value?.clusters?.[0]?.name ?? '';
}

/** Takes the session that the server has put into the page. Returns false if it has put none there. */
export function takeSession() {
  const found = JSON.parse(document.getElementById('session')?.textContent ?? 'null');
  if (found) session.value = found;
  return found !== null;
}

/** Asks who uses the page, and what the server offers for the cluster that is shown. */
export async function loadSession() {
  session.value = await ask(address('/api/session'), { signal: limited(undefined, LIMIT_MS) }, (answer) => answer.json());
}

/** @typedef {'viewer'|'operator'|'admin'} RoleName */

/** Returns whether the present user has a role's rights. */
export function has(/** @type {RoleName} */ role) {
  const order = ['viewer', 'operator', 'admin'];
  return order.indexOf(session.value?.role ?? '') >= order.indexOf(role);
}

/** Returns whether the user can also make changes of all that the cluster has, without naming it. */
export function canAll(/** @type {RoleName} */ role) {
  return can(role) && !session.value?.is_restricted;
}

/** Returns whether the present user has a role's rights, and the moment and the server allow changes. */
export function can(/** @type {RoleName} */ role) {
  const mine = session.value;
  return Boolean(mine && !mine.read_only && !place.value.params.has('at') && has(role));
}
