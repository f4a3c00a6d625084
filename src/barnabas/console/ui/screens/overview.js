// Overview: is it well; if not, what first?
import { html } from '../core/html.js';
import { incidentEnd } from '../core/api.js';
import { useRoute } from '../core/data.js';
import { href } from '../core/url.js';
import { texts } from '../core/texts.js';
import { bytes, count, plural } from '../core/format.js';
import { BrokerLink, Mark, PartitionLink, Replicas, State } from '../parts/badges.js';
import { EventList } from '../parts/events.js';
import { BrokerCards } from '../parts/broker_cards.js';
import { Acknowledge, AcknowledgeAll, Seen } from '../parts/acknowledge.js';
import { AboutIncident, CopyText, SaveIncident } from '../parts/incident.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { Overview as OverviewData, Severity } from '../core/types.js' */

export function Overview() {
  const answer = useRoute('/api/overview', {}, { screen: 'overview' });
  const data = /** @type {OverviewData|null} */ (answer.data);
  if (!data) return html`<${Waiting} ...${answer} />`;
  const unwell = data.counts.reduce((sum, each) => sum + (each.severity === 'ok' ? 0 : each.partitions), 0);
  return html`
    <section class="health" data-severity=${data.severity} aria-live="polite">
      <${Mark} severity=${data.severity} /><strong>${texts.health[data.severity]}</strong>
      <span class="facts">${plural(data.topics, texts.nouns.topic)}, ${plural(data.partitions, texts.nouns.partition)},
        ${' '}${plural(data.brokers.length, texts.nouns.broker)}${texts.overviewScreen.controller} ${data.controller < 0 ? 'unknown' : html`<${BrokerLink} id=${data.controller} />`}${data.acknowledged > 0 && texts.overviewScreen.acknowledgedOf(count(data.acknowledged))}</span>
      <span class="grow"></span><span class="health-acts"><${AcknowledgeAll} unwell=${unwell} /><${CopyText} data=${data} /><${SaveIncident} /></span>
    </section>
    ${incidentEnd() !== null && html`<${AboutIncident} />`}
    <section class="ladder" aria-label=${texts.words.partitionsByState}>
      ${data.counts.map(
        (each) => html`<a key=${each.severity} class="rung" data-severity=${each.severity} data-empty=${each.partitions === 0}
          href=${href('/topics', { state: each.severity, internal: 1 })} title=${texts.severityHelp[each.severity]}>
          <span class="rung-count">${count(each.partitions)}</span><span class="rung-name"><${Mark} severity=${each.severity} /> ${texts.severity[each.severity]}</span></a>`,
      )}
      <a class="rung" data-empty=${data.isr_below_2 === 0} href=${href('/map')} title=${texts.overviewScreen.oneMoreLossLosesData}>
        <span class="rung-count">${count(data.isr_below_2)}</span><span class="rung-name">${texts.overviewScreen.withFewerThanInSync}</span></a>
      <a class="rung" data-empty=${data.without_preferred === 0} href=${href('/map', { fill: 'leader' })} title=${texts.overviewScreen.theLeaderIsNotThe}>
        <span class="rung-count">${count(data.without_preferred)}</span><span class="rung-name">${texts.overviewScreen.notLedByThePreferred}</span></a>
    </section>
    <div class="columns">
      <section class="panel first" aria-label=${texts.overviewScreen.worstPartitions}>
        <h2>${texts.overviewScreen.whatFirst}</h2>
        ${data.worst.length === 0
          ? html`<p class="empty">${texts.empty.worst}</p>`
          : html`<ul class="worst">${data.worst.map(
              (each) => html`<li key=${`${each.topic}-${each.partition}`}>
                <${State} severity=${each.severity} text=${each.state} /><${PartitionLink} ...${each} />
                <span class="worst-facts">${texts.words.leaderLower} <${BrokerLink} id=${each.leader} /> <${Replicas} partition=${each} />
                  ${each.size_bytes !== null && html`<span class="muted">${bytes(each.size_bytes)}</span>`}</span>
                <span class="cause">${each.cause ? each.cause.text : texts.words.theCauseIsNotKnownLower} <${Seen} row=${each} /></span>
                <span class="worst-acts"><${Acknowledge} row=${each} /></span></li>`,
            )}</ul>`}
      </section>
      <section class="panel" aria-label=${texts.words.brokers}>
        <h2>${texts.words.brokers}</h2>
        <${BrokerCards} brokers=${data.brokers} />
      </section>
    </div>
    <section class="panel" aria-label=${texts.overviewScreen.lastChanges}>
      <h2>${texts.overviewScreen.lastChanges} <a class="more" href=${href('/timeline')}>${texts.overviewScreen.timeLine}</a></h2>
      <${EventList} events=${data.changes} empty=${texts.empty.events} />
    </section>`;
}
