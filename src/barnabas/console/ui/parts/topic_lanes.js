// The lanes of a topic's partitions, the most disturbed first.
import { html } from '../core/html.js';
import { useRoute } from '../core/data.js';
import { href } from '../core/url.js';
import { texts } from '../core/texts.js';
import { Lanes, LanesTable } from '../pictures/lanes.js';
import { Waiting } from './state_of_answer.js';
/** @import { Lane } from '../core/types.js' */

/** @param {{topic: string}} props */
export function TopicLanes({ topic }) {
  const answer = useRoute('/api/lanes', { topic, limit: 50 }, { isStill: true });
  const data = /** @type {{lanes: {partition: number, changes: number, lanes: Lane[]}[], from_ms: number, to_ms: number, gap: boolean}|null} */ (answer.data);
  if (!data) return html`<${Waiting} ...${answer} />`;
  if (!data.lanes.length) return html`<p class="empty">${texts.empty.lanes}</p>`;
  const rows = data.lanes.map((each) => ({ name: `${topic}-${each.partition}`, href: href('/partition', { topic, partition: each.partition }), lanes: each.lanes }));
  return html`<section class="panel" aria-label="Leaders over time">
    <${Lanes} rows=${rows} from=${data.from_ms} to=${data.to_ms} isByPartition />
    <${LanesTable} rows=${rows} /></section>`;
}
