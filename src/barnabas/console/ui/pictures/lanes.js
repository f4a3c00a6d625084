// Swim lanes: who led, and who was in sync, over time. A colour and a number for each leader, thickness for the ISR,
// hatching where there was no leader.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { hasHistory } from '../core/api.js';
import { atMs, go, setParams } from '../core/url.js';
import { clock, clockMs, day, duration, brokers as listed } from '../core/format.js';
import { colour } from '../core/theme.js';
import { hatch } from './stamps.js';
import { timeTicks, useCanvas } from './canvas.js';
/** @import { Lane } from '../core/types.js' */

const ROW = 30;
const FOOT = 22;
const SERIES = 7;

/** @typedef {{name: string, href?: string, lanes: Lane[]}} LaneRow */
/** @typedef {{from: number, to: number, kind: 'leader'|'follower'|'out'|'none', broker: number, share: number, text: string}} Segment */

/** Returns the colour of a broker, the same in every picture. */
function brokerColour(/** @type {number} */ broker) {
  return colour(`series-${((broker % SERIES) + SERIES) % SERIES}`);
}

/**
 * The lanes of one partition, by broker: a thick bar where it led, a thin one where it was in sync.
 * @param {Lane[]} lanes
 * @param {number[]} brokers
 * @param {number} to
 */
function segmentsByBroker(lanes, brokers, to) {
  return brokers.map((broker) =>
    merged(
      lanes.flatMap((lane, index) => {
        const until = lanes[index + 1]?.time_ms ?? to;
        const isLeader = lane.leader === broker;
        const isIn = lane.isr.includes(broker);
        if (lane.replicas && !lane.replicas.includes(broker) && !isIn && !isLeader) return [];
        /** @type {Segment['kind']} */
        const kind = isLeader ? 'leader' : isIn ? 'follower' : 'out';
        const text = { leader: texts.lanesPicture.brokerLedOf(broker), follower: texts.lanesPicture.brokerInSync(broker), out: texts.lanesPicture.brokerOutOfSync(broker) }[kind];
        return [{ from: lane.time_ms, to: until, kind, broker, share: isLeader ? 1 : isIn ? 0.4 : 0.4, text }];
      }),
    ),
  );
}

/**
 * The lane of each of several partitions: colour and number for the leader, thickness for the size of the ISR.
 * @param {LaneRow} row
 * @param {number} to
 */
function segmentsOfPartition(row, to) {
  const most = Math.max(1, ...row.lanes.map((lane) => lane.replicas?.length ?? lane.isr.length));
  return merged(
    row.lanes.map((lane, index) => ({
      from: lane.time_ms,
      to: row.lanes[index + 1]?.time_ms ?? to,
      kind: /** @type {Segment['kind']} */ (lane.leader < 0 ? 'none' : 'leader'),
      broker: lane.leader,
      share: lane.leader < 0 ? 1 : 0.25 + (0.75 * lane.isr.length) / most,
      text: texts.lanesPicture.inSyncOf(row.name, lane.leader < 0 ? texts.words.noLeader : texts.words.leaderOf(lane.leader), listed(lane.isr)),
    })),
  );
}

/**
 * Returns the begin of a picture: the first change has a quarter of the time before it, as far as lanes are known then.
 * @param {LaneRow[]} rows
 * @param {number} known
 * @param {number} end
 */
export function beginOf(rows, known, end) {
  const changes = rows.flatMap((row) => row.lanes.filter((lane) => lane.is_change !== false).map((lane) => lane.time_ms));
  const first = Math.min(end, ...changes);
  return Math.min(changes.length ? Math.max(known, first - (end - first) / 3) : known, end - 1000);
}

/** @param {Segment[]} segments */
function merged(segments) {
  /** @type {Segment[]} */
  const found = [];
  for (const each of segments) {
    const last = found.at(-1);
    if (last && last.kind === each.kind && last.broker === each.broker && last.share === each.share && last.text === each.text && last.to === each.from) last.to = each.to;
    else found.push({ ...each });
  }
  return found;
}

/** @param {{rows: LaneRow[], from: number, to: number, isByPartition?: boolean, brokers?: number[]}} props */
export function Lanes({ rows, from, to, isByPartition = false, brokers = [] }) {
  const [cursor, setCursor] = useState({ row: 0, segment: -1 });
  const end = Math.max(to, from + 1000);
  const own = rows[0]?.lanes ?? [];
  const all = isByPartition ? rows.map((row) => segmentsOfPartition(row, end)) : segmentsByBroker(own, brokers, end);
  const gaps = isByPartition ? [] : own.flatMap((lane, index) => (lane.leader < 0 ? [{ from: lane.time_ms, to: own[index + 1]?.time_ms ?? end }] : []));
  const names = isByPartition ? rows.map((row) => row.name) : brokers.map((each) => texts.words.brokerOf2(each));
  const at = atMs();
  const { canvas, size } = useCanvas(
    (context, width, height) => drawLanes(context, width, height, { all, gaps, from, end, at, cursor, marks: isByPartition ? [] : own.filter((lane) => lane.is_change !== false) }),
    [rows, brokers, from, end, at, cursor],
  );
  const timeOf = (/** @type {MouseEvent} */ event) => {
    const box = canvas.current?.getBoundingClientRect();
    return box ? Math.round(from + ((event.clientX - box.left) / box.width) * (end - from)) : null;
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const row = all[cursor.row] ?? [];
    /** @type {Record<string, {row: number, segment: number}>} */
    const next = {
      ArrowRight: { row: cursor.row, segment: Math.min(row.length - 1, cursor.segment + 1) },
      ArrowLeft: { row: cursor.row, segment: Math.max(0, cursor.segment - 1) },
      ArrowDown: { row: Math.min(all.length - 1, cursor.row + 1), segment: Math.max(0, cursor.segment) },
      ArrowUp: { row: Math.max(0, cursor.row - 1), segment: Math.max(0, cursor.segment) },
    };
    const target = next[event.key];
    if (target) setCursor({ row: target.row, segment: Math.min(target.segment, (all[target.row]?.length ?? 1) - 1) });
    else if (event.key === 'Enter' && row[cursor.segment] && hasHistory()) setParams({ at: row[cursor.segment]?.from });
    else return;
    event.preventDefault();
  };
  const picked = all[cursor.row]?.[cursor.segment];
  const spoken = picked ? texts.lanesPicture.fromForOf(picked.text, clockMs(picked.from), duration(picked.to - picked.from)) : texts.lanesPicture.theArrowKeysMoveBetween(hasHistory() ? texts.lanesPicture.aClickSetsTheMoment : '');
  const high = `${all.length * ROW + FOOT}px`;
  return html`<div class="lanes">
    <ul class="lanes-names" aria-hidden="true">${names.map(
      (name, index) => html`<li key=${name} style=${{ height: `${ROW}px` }} title=${name}
        onClick=${() => rows[index]?.href && go(rows[index].href)}>${name}</li>`,
    )}</ul>
    <canvas ref=${canvas} class="lanes-canvas" tabindex="0" role="application" aria-roledescription=${texts.lanesPicture.lanes} style=${{ height: high }}
      aria-label=${texts.lanesPicture.leadersAndInSyncReplicas(names.length)} data-width=${size.width}
      onKeyDown=${onKeyDown} onClick=${(/** @type {MouseEvent} */ event) => {
        const time = timeOf(event);
        if (time !== null && hasHistory()) setParams({ at: time });
      }}></canvas>
    <p class="lanes-spoken" aria-live="polite">${spoken}</p></div>`;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} width
 * @param {number} height
 * @param {{all: Segment[][], gaps: {from: number, to: number}[], from: number, end: number, at: number|null,
 *   cursor: {row: number, segment: number}, marks: Lane[]}} what
 */
function drawLanes(context, width, height, { all, gaps, from, end, at, cursor, marks }) {
  const x = (/** @type {number} */ time) => Math.max(0, Math.min(width, ((time - from) / (end - from)) * width));
  const base = height - FOOT;
  for (let row = 0; row < all.length; row += 1) {
    context.fillStyle = colour(row % 2 ? 'panel' : 'stripe');
    context.fillRect(0, row * ROW, width, ROW);
  }
  all.forEach((segments, row) => {
    for (const [index, each] of segments.entries()) {
      const [left, right] = [x(each.from), x(each.to)];
      drawSegment(context, each, left, Math.max(1.5, right - left), row * ROW);
      if (cursor.row === row && cursor.segment === index) {
        context.strokeStyle = colour('text');
        context.lineWidth = 2;
        context.strokeRect(left + 1, row * ROW + 2, Math.max(3, right - left - 2), ROW - 4);
      }
    }
  });
  for (const gap of gaps) {
    area(context, x(gap.from), 0, Math.max(2, x(gap.to) - x(gap.from)), base, colour('critical'), 'cross', 0.55);
  }
  context.fillStyle = colour('muted');
  for (const mark of marks) context.fillRect(x(mark.time_ms), base, 1, 5);
  const { ticks, isByDay, hasSeconds } = timeTicks(from, end, width / 110);
  context.font = '10.5px system-ui, sans-serif';
  context.textAlign = 'center';
  for (const tick of ticks) {
    const text = isByDay ? day(tick).slice(5) : clock(tick).slice(0, hasSeconds ? 8 : 5);
    if (x(tick) > 24 && x(tick) < width - 24) context.fillText(text, x(tick), height - 5);
    context.fillRect(x(tick), base, 1, 7);
  }
  if (at !== null) {
    context.fillStyle = colour('accent');
    context.fillRect(x(at) - 1, 0, 2, base + 4);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Segment} segment
 * @param {number} left
 * @param {number} width
 * @param {number} top
 */
function drawSegment(context, segment, left, width, top) {
  const high = (ROW - 8) * segment.share;
  const y = top + (ROW - high) / 2;
  if (segment.kind === 'none') area(context, left, y, width, high, colour('critical'), 'cross', 1);
  else if (segment.kind === 'out') area(context, left, y, width, high, colour('map-out'), 'slash', 1);
  else {
    context.globalAlpha = segment.kind === 'leader' ? 1 : 0.75;
    context.fillStyle = segment.kind === 'leader' ? brokerColour(segment.broker) : colour('map-follower');
    context.fillRect(left, y, width, high);
    context.globalAlpha = 1;
  }
  if (segment.kind === 'leader' && width > 26 && high > 12) {
    const text = width > 70 ? texts.words.leaderOf(segment.broker) : String(segment.broker);
    context.font = '600 11px system-ui, sans-serif';
    context.textAlign = 'left';
    context.fillStyle = colour('series-ink');
    context.fillText(text, left + 6, top + ROW / 2 + 4);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} left
 * @param {number} top
 * @param {number} width
 * @param {number} high
 * @param {string} fill
 * @param {'slash'|'cross'} pattern
 * @param {number} alpha
 */
function area(context, left, top, width, high, fill, pattern, alpha) {
  context.save();
  context.globalAlpha = alpha;
  context.fillStyle = fill;
  context.fillRect(left, top, width, high);
  context.beginPath();
  context.rect(left, top, width, high);
  context.clip();
  context.strokeStyle = colour('hatch');
  context.translate(left, top);
  for (let shift = 0; shift < width; shift += 18) {
    hatch(context, pattern, 18);
    context.translate(18, 0);
  }
  context.restore();
}

/** The table behind the lanes. @param {{rows: LaneRow[]}} props */
export function LanesTable({ rows }) {
  const isMany = rows.length > 1;
  return html`<details class="behind"><summary>${texts.words.asATable}</summary>
    <div class="table-box" role="region" tabindex="0" aria-label=${texts.lanesPicture.changesAsATable}><table>
      <thead><tr>${isMany && html`<th scope="col">${texts.words.partition}</th>`}<th scope="col">${texts.words.since}</th><th scope="col">${texts.words.leader}</th><th scope="col">${texts.words.epoch}</th><th scope="col">${texts.words.isr}</th><th scope="col">${texts.lanesPicture.because}</th></tr></thead>
      <tbody>${rows.flatMap((row) =>
        row.lanes.map(
          (lane) => html`<tr key=${`${row.name} ${lane.time_ms} ${lane.leader_epoch}`}>${isMany && html`<th scope="row">${row.href ? html`<a href=${row.href}>${row.name}</a>` : row.name}</th>`}
            <td>${day(lane.time_ms)} ${clockMs(lane.time_ms)}</td><td>${lane.leader < 0 ? 'none' : lane.leader}</td><td>${lane.leader_epoch ?? '?'}</td>
            <td>${listed(lane.isr)}</td><td class="wrap">${lane.cause ?? '–'}</td></tr>`,
        ),
      )}</tbody></table></div></details>`;
}
