// The lanes of a topic's partitions, the most disturbed first.
import { html } from '../core/html.js';
import { serverNow, useNow, useRoute } from '../core/data.js';
import { atMs, href } from '../core/url.js';
import { texts } from '../core/texts.js';
import { beginOf, Lanes, LanesTable } from '../pictures/lanes.js';
import { Waiting } from './state_of_answer.js';
/** @import { Lane, Topic } from '../core/types.js' */

/** @param {{topic: Topic}} props */
export function TopicLanes({ topic: { topic, partitions } }) {
  // The page of the topic is live: the last change of a partition is the end of its lane.
  const turn = partitions.map((each) => `${each.leader_epoch} ${each.isr.join()} ${each.cause?.time_ms}`).join(';');
  const answer = useRoute('/api/lanes', { topic, limit: 50 }, { isStill: true, turn });
  const now = useNow(2000);
  const data = /** @type {{lanes: {partition: number, changes: number, lanes: Lane[]}[], from_ms: number, to_ms: number, gap: boolean}|null} */ (answer.data);
  if (!data) return html`<${Waiting} ...${answer} />`;
  if (!data.lanes.length) return html`<p class="empty">${texts.empty.lanes}</p>`;
  const rows = data.lanes.map((each) => ({ name: `${topic}-${each.partition}`, href: href('/partition', { topic, partition: each.partition }), lanes: each.lanes }));
  const end = atMs() ?? Math.max(serverNow(), now);
  return html`<section class="panel" aria-label=${texts.topicLanes.leadersOverTime}>
    <${Lanes} rows=${rows} from=${beginOf(rows, data.from_ms, end)} to=${end} isByPartition />
    <${LanesTable} rows=${rows} /></section>`;
}
