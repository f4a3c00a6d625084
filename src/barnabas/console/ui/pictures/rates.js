// How fast a topic is written, since the page was opened. The only module that knows uPlot.
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { serverNow, useNow } from '../core/data.js';
import { shownCluster } from '../core/api.js';
import { stream } from '../core/live.js';
import { clock, rate } from '../core/format.js';
import { colour, theme } from '../core/theme.js';

const POINTS_MAX = 600;
const HEIGHT = 120;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];

/** @typedef {{times: number[], rates: (number|null)[], below: number[], last: {time: number, end: number}|null}} Series */
/** What was measured stays while the page is open, by cluster and topic. @type {Map<string, Series>} */
const kept = new Map();

/** @param {{subject: string, end: number|null, below: number, isPast: boolean}} props */
export function RateChart({ subject, end, below, isPast }) {
  useNow(1000);
  const box = useRef(/** @type {HTMLDivElement|null} */ (null));
  const plot = useRef(/** @type {uPlot|null} */ (null));
  const [isOpen, setOpen] = useState(true);
  const key = `${shownCluster()} ${subject}`;
  const series = kept.get(key) ?? { times: [], rates: [], below: [], last: null };
  kept.set(key, series);
  if (!isPast && end !== null && stream.value.state === 'on') add(series, serverNow() / 1000, end, below);
  const shade = theme.value;
  const points = series.times.length;

  useEffect(() => {
    const element = box.current;
    if (!element || points < 2 || !isOpen || isPast) return undefined;
    const made = new uPlot(options(element.clientWidth), [series.times, series.rates, series.below], element);
    plot.current = made;
    const watcher = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [key, shade, points >= 2, isOpen, isPast]);
  useEffect(() => plot.current?.setData([series.times, series.rates, series.below]), [points, series.times.at(-1)]);

  if (isPast) return null;
  const last = series.rates.at(-1);
  return html`<details class="panel rates" open=${isOpen} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary>${texts.ratesPicture.recordsWritten} <strong>${last === undefined ? '' : rate(last)}</strong> <small class="muted">${texts.ratesPicture.sinceThisPageWasOpened}</small></summary>
    <div ref=${box} class="plot" data-empty=${points < 2} aria-hidden="true"></div></details>`;
}

/** @param {Series} series @param {number} time @param {number} end @param {number} below */
function add(series, time, end, below) {
  const { last } = series;
  if (last && time - last.time < 0.9) return;
  if (last) {
    series.times.push(time);
    series.rates.push(Math.max(0, (end - last.end) / (time - last.time)));
    series.below.push(below);
    if (series.times.length > POINTS_MAX) {
      series.times.shift();
      series.rates.shift();
      series.below.shift();
    }
  }
  series.last = { time, end };
}

/** @param {number} width @returns {uPlot.Options} */
function options(width) {
  const axis = { stroke: colour('muted'), grid: { stroke: colour('line'), width: 1 }, ticks: { stroke: colour('line'), width: 1 }, font: '11px system-ui, sans-serif' };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    axes: [
      { ...axis, space: 90, incrs: STEPS_S, values: (_plot, splits) => splits.map((each) => clock(each * 1000)) },
      { ...axis, size: 56 },
      { ...axis, side: 1, scale: 'n', grid: { show: false }, size: 34, incrs: [1, 2, 5, 10, 50, 100, 1000] },
    ],
    scales: { y: { range: (_plot, _min, max) => [0, Math.max(1, max * 1.1)] }, n: { range: (_plot, _min, max) => [0, Math.max(4, max)] } },
    series: [
      {},
      { label: 'records/s', stroke: colour('accent'), width: 2, fill: colour('accent-area'), points: { show: false } },
      { label: texts.ratesPicture.partitionsNotInSync, stroke: colour('critical'), width: 2, dash: [5, 4], scale: 'n', points: { show: false } },
    ],
  };
}
