// The state of the page is its address: the path is the screen, the parameters are all that was chosen on it.
import { signal } from '@preact/signals';

/** @typedef {{path: string, params: URLSearchParams, key: number}} Place */

let steps = 0;

/** @returns {Place} */
function read() {
  return { path: window.location.pathname, params: new URLSearchParams(window.location.search), key: ++steps };
}

/** The present address. */
export const place = signal(read());
/** The parameters that stay when the screen changes. */
const KEPT = ['cluster', 'at'];

/**
 * Returns the address of a screen, at the same cluster and moment.
 * @param {string} path
 * @param {Record<string, string|number|null|undefined>} [params]
 */
export function href(path, params = {}) {
  const query = new URLSearchParams();
  for (const name of KEPT) {
    const value = place.value.params.get(name);
    if (value !== null) query.set(name, value);
  }
  return withQuery(path, query, params);
}

/**
 * @param {string} path
 * @param {URLSearchParams} query
 * @param {Record<string, string|number|null|undefined>} changes
 */
function withQuery(path, query, changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === '') query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/**
 * Returns the address of this screen with some parameters changed; null removes one.
 * @param {Record<string, string|number|null|undefined>} changes
 */
export function changed(changes) {
  return withQuery(place.value.path, new URLSearchParams(place.value.params), changes);
}

/**
 * @param {string} address
 * @param {{replace?: boolean}} [options]
 */
export function go(address, { replace = false } = {}) {
  if (address === window.location.pathname + window.location.search) return;
  if (replace) window.history.replaceState(null, '', address);
  else window.history.pushState(null, '', address);
  place.value = read();
}

/**
 * Changes parameters of this screen. What is typed or dragged replaces the entry of the browser's history.
 * @param {Record<string, string|number|null|undefined>} changes
 * @param {{replace?: boolean}} [options]
 */
export function setParams(changes, options) {
  go(changed(changes), options);
}

/** @param {string} name */
export function param(name) {
  return place.value.params.get(name);
}

/** Returns the moment that is shown, in ms, or null for the present. */
export function atMs() {
  const text = place.value.params.get('at');
  const value = text === null ? Number.NaN : Number(text);
  return Number.isFinite(value) ? value : null;
}

/** Follows the browser's history and clicks on links of this page. */
export function startRouter() {
  window.addEventListener('popstate', () => {
    place.value = read();
  });
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    const address = link?.getAttribute('href');
    if (!link || !address || link.target || link.hasAttribute('download')) return;
    if (!address.startsWith('/') || address.startsWith('/api/') || address.startsWith('//')) return;
    event.preventDefault();
    const isOtherScreen = address.split('?')[0] !== place.value.path;
    go(address);
    if (isOtherScreen) window.scrollTo(0, 0);
  });
}
