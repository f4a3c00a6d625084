// The link matrix: who fetches from whom, both ways, and what brokers reported about themselves and their links.
import { html } from '../core/html.js';
import { useNow, useRoute } from '../core/data.js';
import { atMs, href } from '../core/url.js';
import { count, moment, plural } from '../core/format.js';
import { texts } from '../core/texts.js';
/** @import { Link, Links } from '../core/types.js' */

const TURN_MS = 2_000;
/** Brokers up to which every pair has a cell; of more, only the pairs that are not well are listed. */
const MATRIX_MAX = 24;
/** A mark for each state, so that it is not a colour alone. @type {Record<string, string>} */
const MARKS = { ok: '✓', behind: '≠', silent: '?', lost: '×', 'was lost': '!' };
/** @type {Record<string, string>} */
const WORDS = { ok: texts.links.fetchesInSync, behind: texts.links.fetchesBehind, silent: texts.links.oneOfTheTwoDoes, lost: texts.links.getsNoAnswer, 'was lost': texts.links.gotNoAnswerAMoment };

export function LinksPanel() {
  const turn = Math.floor(useNow(TURN_MS) / TURN_MS);
  const answer = useRoute('/api/links', atMs() === null ? { turn } : {}, {});
  const data = /** @type {Links|null} */ (answer.data);
  if (!data) {
    const why = answer.error?.message ?? (answer.envelope ? texts.linksUnknown : '');
    return html`<section class="panel" aria-label=${texts.links.links}><h2>${texts.links.linksBetweenBrokers}</h2>${why && html`<p class="empty">${why}</p>`}</section>`;
  }
  const of = new Map(data.cells.map((each) => [`${each.from} ${each.to}`, each]));
  const bad = data.cells.filter((each) => each.state !== 'ok');
  return html`<section class="panel" aria-label=${texts.links.links}><h2>${texts.links.linksBetweenBrokers}</h2>
    <p class="hint">${texts.links.aRowFetchesFromA}</p>
    ${data.cells.length === 0
      ? html`<p class="empty">${texts.links.noBrokerFollowsAnother}</p>`
      : data.brokers.length <= MATRIX_MAX
        ? html`<div class="table-box" role="region" tabindex="0" aria-label=${texts.links.linkMatrix}><table class="links">
            <thead><tr><th scope="col">${texts.links.fetchesFrom}</th>${data.brokers.map((each) => html`<th key=${each} scope="col" class="end">${each}</th>`)}</tr></thead>
            <tbody>${data.brokers.map((from) => html`<tr key=${from}><th scope="row"><a href=${href('/broker', { id: from })}>${texts.words.broker} ${from}</a></th>
              ${data.brokers.map((to) => html`<${Cell} key=${to} from=${from} to=${to} link=${of.get(`${from} ${to}`)} />`)}</tr>`)}</tbody></table></div>
            <p class="legend">${Object.entries(WORDS).map(([state, text]) => html`<span key=${state}>${MARKS[state]} ${text}</span>`)}</p>`
        : html`<p class="facts">${plural(data.cells.length - bad.length, texts.nouns.link)} ${texts.words.inSync}${bad.length ? '' : texts.links.allOfThem}</p>`}
    ${data.brokers.length > MATRIX_MAX && bad.length > 0 && html`<ul>${bad.slice(0, 50).map((each) => html`<li key=${`${each.from} ${each.to}`}>${texts.words.broker} ${each.from} ${texts.links.from} ${each.to}: ${WORDS[each.state]}</li>`)}</ul>`}
    <h3>${texts.links.whatBrokersReported}</h3>
    ${data.reports.length === 0
      ? html`<p class="empty">${data.has_reports ? texts.links.noBrokerReportedAPause : texts.links.thisClusterKeepsNoJournal}</p>`
      : html`<ul class="explanation">${data.reports.slice(0, 20).map((each) => html`<li key=${`${each.broker} ${each.kind} ${each.begin_ms}`}><span class="muted">${moment(each.begin_ms)}</span> <span class="chip plain">${each.kind}</span> ${each.text}${each.end_ms === null ? texts.links.itLasts : ''}</li>`)}</ul>`}
  </section>`;
}

/** @param {{from: number, to: number, link?: Link}} props */
function Cell({ from, to, link }) {
  if (from === to) return html`<td class="end muted">·</td>`;
  if (!link) return html`<td class="end nothing" title=${texts.links.brokerFollowsNoPartitionOf(from, to)}>–</td>`;
  const lag = link.lag ? texts.links.upToRecordsBehind(count(link.lag)) : '';
  const title = link.report ?? texts.links.brokerFollowsOfOutOf(from, plural(link.partitions, texts.nouns.partition), to, link.out_of_sync, lag);
  return html`<td class="end" data-link=${link.state} title=${title}><span aria-hidden="true">${MARKS[link.state]}</span> ${count(link.partitions)}${
    link.out_of_sync ? html` <span class="bad">${texts.links.behind(count(link.out_of_sync))}</span>` : ''
  }<span class="spoken"> ${WORDS[link.state]}</span></td>`;
}
