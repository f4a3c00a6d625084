// The bar at the top: which cluster, how it is, whether what is shown is live.
import { html } from '../core/html.js';
import { loadSession, post, session, shownCluster } from '../core/api.js';
import { status, stream } from '../core/live.js';
import { clocks, shown, useNow } from '../core/data.js';
import { open } from '../core/keys.js';
import { atMs, changed, go, href, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { theme, toggleTheme } from '../core/theme.js';
import { duration, moment } from '../core/format.js';

export function Bar() {
  const mine = session.value;
  const cluster = shownCluster();
  const named = mine?.clusters.find((each) => each.name === cluster);
  return html`<header class="bar">
    <a class="brand" href=${href('/')} aria-label=${texts.product}><img src="/icon.svg" alt="" width="22" height="22" /><span>${texts.bar.barnabas}</span></a>
    ${mine && mine.clusters.length > 1
      ? html`<label class="cluster"><span class="spoken">${texts.bar.cluster}</span>
          <select value=${cluster} onChange=${(/** @type {any} */ event) => go(`/?cluster=${encodeURIComponent(event.currentTarget.value)}`)}>
            ${mine.clusters.map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}
          </select></label>`
      : html`<span class="cluster" title=${cluster}>${cluster}</span>`}
    ${named?.production && html`<span class="production">${texts.bar.production}</span>`}
    ${mine?.read_only && html`<span class="production">${texts.bar.readOnly}</span>`}
    <span class="grow"></span>
    <${Live} />
    <button class="search" onClick=${() => (open.value = 'palette')} title=${texts.bar.ctrlK}>
      <svg viewBox="0 0 16 16" aria-hidden="true"><path d="M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10M10.700 10.700 14 14" /></svg>
      <span>${texts.bar.goTo}</span><kbd aria-hidden="true">${texts.bar.ctrlK2}</kbd></button>
    ${mine?.lab && html`<button onClick=${() => (open.value = 'lab')} title=${texts.bar.stopAndStartBrokersL}>${texts.words.lab}</button>`}
    <button class="icon" onClick=${toggleTheme} aria-label=${theme.value === 'dark' ? texts.bar.lightTheme : texts.bar.darkTheme} title=${texts.bar.lightOrDarkT}>
      <svg viewBox="0 0 16 16" aria-hidden="true"><path d=${theme.value === 'dark'
        ? 'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6M8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1.100 1.100M11.900 11.900 13 13M13 3l-1.100 1.100M4.100 11.900 3 13'
        : 'M13.500 9.500A6 6 0 0 1 6.500 2.500a6 6 0 1 0 7 7'} /></svg></button>
    <button class="icon" onClick=${() => (open.value = 'keys')} aria-label=${texts.words.keys} title=${texts.bar.keys}>?</button>
    ${mine?.is_login_needed || mine?.user !== 'local' ? html`<${User} />` : null}
  </header>`;
}

function User() {
  const mine = session.value;
  const leave = async () => {
    await post('/api/logout', {}).catch(() => {});
    await loadSession().catch(() => {});
  };
  return html`<span class="user"><span title=${`Role: ${mine?.role}`}>${mine?.user} <small>${mine?.role}</small></span>
    <button onClick=${leave}>${texts.bar.logOut}</button></span>`;
}

/** Whether the screen is live, and how old its data are. */
function Live() {
  useNow(500);
  const at = atMs();
  if (at !== null) {
    return html`<a class="live" data-live="past" href=${changed({ at: null })} title=${texts.backToLive}
      onClick=${(/** @type {Event} */ event) => {
        event.preventDefault();
        setParams({ at: null });
      }}><span class="dot" aria-hidden="true"></span>${texts.bar.asOf} ${moment(at)} <span class="return">${texts.bar.now}</span></a>`;
  }
  const { state, since } = stream.value;
  const envelope = shown.value;
  const problem = status.value?.problem ?? envelope?.problem;
  const known = Math.max(status.value?.known_ms ?? 0, envelope?.known_ms ?? 0);
  const age = known ? Date.now() + clocks.value.ahead - known : null;
  if (state === 'lost') {
    return html`<span class="live" data-live="lost"><span class="dot" aria-hidden="true"></span>${texts.lost}, ${duration(Date.now() - since)}</span>`;
  }
  if (problem) {
    return html`<span class="live" data-live="lost"><span class="dot" aria-hidden="true"></span>${texts.bar.noBrokerAnswers}${age !== null && texts.bar.oldOf(duration(age))}</span>`;
  }
  const text = state === 'on' ? texts.live : state === 'opening' ? texts.opening : texts.paused;
  return html`<span class="live" data-live=${state}><span class="dot" aria-hidden="true"></span>${text}</span>`;
}
