// Small marks: states, brokers, replicas. A state has a colour, a shape and a word.
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { href } from '../core/url.js';
/** @import { Severity, Partition } from '../core/types.js' */

/** The outline of each severity's mark, in a box of 12. @type {Record<Severity, string>} */
const SHAPES = {
  ok: 'M2 6.5 5 9.5 10.5 3',
  notice: 'M6 1.2a4.8 4.8 0 1 0 0 9.6z',
  warning: 'M6 1 11.3 10.6H.7z',
  error: 'M6 .6 11.4 6 6 11.4 .6 6z',
  critical: 'M2 2 10 10M10 2 2 10',
};

/** @param {{severity: Severity}} props */
export function Mark({ severity }) {
  const isLine = severity === 'ok' || severity === 'critical';
  return html`<svg class="mark" viewBox="0 0 12 12" aria-hidden="true" data-severity=${severity}>
    <path d=${SHAPES[severity] ?? SHAPES.critical} class=${isLine ? 'line' : 'area'} />
  </svg>`;
}

/** @param {{severity: Severity, text?: string|null}} props */
export function State({ severity, text }) {
  return html`<span class="state" data-severity=${severity} title=${texts.severityHelp[severity]}>
    <${Mark} severity=${severity} /><span class="state-text">${text ?? texts.severity[severity]}</span>
  </span>`;
}

/** @param {{id: number|null|undefined, isPreferred?: boolean}} props */
export function BrokerLink({ id, isPreferred }) {
  if (id === null || id === undefined || id < 0) return html`<span class="no-leader">${texts.badges.none}</span>`;
  const title = isPreferred === false ? texts.badges.brokerWhichIsNotThe(id) : texts.words.brokerOf2(id);
  return html`<a class="broker-link" href=${href('/broker', { id })} title=${title}>${id}</a>${
    isPreferred === false ? html`<span class="not-preferred" title=${texts.badges.notThePreferredLeader}>${texts.badges.preferred}</span>` : null
  }`;
}

/**
 * One replica's state: leader, follower (in sync), out (of sync), silent.
 * @param {Partition} partition
 * @param {number} broker
 */
export function replicaState(partition, broker) {
  const isSilent =
    partition.offline?.includes(broker) || partition.details?.find((each) => each.broker === broker)?.is_silent;
  if (isSilent) return 'silent';
  if (partition.leader === broker) return 'leader';
  return partition.isr.includes(broker) ? 'follower' : 'out';
}

/** @param {{partition: Partition}} props */
export function Replicas({ partition }) {
  return html`<span class="replicas">
    ${partition.replicas.map((broker) => {
      const state = replicaState(partition, broker);
      return html`<span key=${broker} class="replica" data-replica=${state}
        title=${texts.badges.brokerOf(broker, texts.replica[state])}>${broker}</span>`;
    })}
  </span>`;
}

/** @param {{brokers: number[]|null|undefined, tone?: 'bad'|'plain'}} props */
export function BrokerList({ brokers, tone = 'plain' }) {
  if (brokers === null || brokers === undefined) {
    return html`<span class="unknown" title=${texts.badges.thisClusterDoesNotTell}>?</span>`;
  }
  if (!brokers.length) return html`<span class="nothing">–</span>`;
  return html`<span class=${tone === 'bad' ? 'list bad' : 'list'}>${brokers.join(', ')}</span>`;
}

/** @param {{topic: string, partition?: number|null}} props */
export function PartitionLink({ topic, partition }) {
  if (partition === null || partition === undefined) {
    return html`<a class="name" href=${href('/topic', { name: topic })} title=${topic}>${topic}</a>`;
  }
  return html`<a class="name" href=${href('/partition', { topic, partition })} title=${`${topic}-${partition}`}>
    <span class="name-topic">${topic}</span><span class="name-number">-${partition}</span></a>`;
}
