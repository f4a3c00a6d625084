// A heat map of minutes: a cell for each minute, its shade the number of events, its foot the partitions in trouble, whether
// or not anything changed. A click chooses the moment.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { hasHistory } from '../core/api.js';
import { serverNow } from '../core/data.js';
import { atMs, setParams } from '../core/url.js';
import { clock, day, plural } from '../core/format.js';
import { colour } from '../core/theme.js';
import { useCanvas } from './canvas.js';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const CELL = 14;
const LEFT = 72;
const ROWS_MAX = 24;

/** @param {{minutes: [number, number, number][]}} props */
export function Minutes({ minutes }) {
  const [cursor, setCursor] = useState(/** @type {number|null} */ (null));
  const by = new Map(minutes.map(([minute, events, troubled]) => [Math.floor(minute / MINUTE) * MINUTE, { events, troubled }]));
  const hours = [...new Set([...by.keys()].map((minute) => Math.floor(minute / HOUR) * HOUR))].sort((one, other) => other - one).slice(0, ROWS_MAX);
  const at = atMs();
  const high = hours.length * CELL + 4;
  const { canvas } = useCanvas(
    (context, width) => {
      const wide = (width - LEFT) / 60;
      context.font = '10.5px system-ui, sans-serif';
      hours.forEach((hour, row) => {
        context.fillStyle = colour('muted');
        context.fillText(`${day(hour).slice(5)} ${clock(hour).slice(0, 5)}`, 0, row * CELL + 11);
        for (let minute = 0; minute < 60; minute += 1) {
          const found = by.get(hour + minute * MINUTE);
          const x = LEFT + minute * wide;
          const step = found?.events ? Math.min(7, 1 + Math.floor(Math.log2(1 + found.events))) : 0;
          context.fillStyle = step ? colour(`scale-${step}`) : colour('track');
          context.fillRect(x, row * CELL + 1, Math.max(1, wide - 1.5), CELL - 2);
          if (found?.troubled) {
            context.fillStyle = colour('critical');
            context.fillRect(x, row * CELL + CELL - 6, Math.max(1, wide - 1.5), 5);
          }
          const moment = hour + minute * MINUTE;
          const isHere = cursor === moment || (at !== null && at >= moment && at < moment + MINUTE);
          if (isHere) {
            context.strokeStyle = colour('text');
            context.lineWidth = 2;
            context.strokeRect(x, row * CELL + 1, Math.max(2, wide - 1.5), CELL - 2);
          }
        }
      });
    },
    [minutes, cursor, at],
  );
  // The last moment of a minute; of the present minute, the present.
  const choose = (/** @type {number} */ minute) => hasHistory() && setParams({ at: minute + MINUTE > serverNow() ? null : minute + MINUTE - 1 });
  const onClick = (/** @type {MouseEvent} */ event) => {
    const box = canvas.current?.getBoundingClientRect();
    const hour = box && hours[Math.floor((event.clientY - box.top) / CELL)];
    if (!box || hour === undefined || event.clientX < box.left + LEFT) return;
    choose(hour + Math.min(59, Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT)) * 60)) * MINUTE);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const steps = { ArrowLeft: -MINUTE, ArrowRight: MINUTE, ArrowUp: HOUR, ArrowDown: -HOUR };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    const [newest, oldest] = [hours[0] ?? 0, hours.at(-1) ?? 0];
    if (step !== undefined) setCursor(cursor === null ? (minutes.at(-1)?.[0] ?? 0) : Math.max(oldest, Math.min(newest + HOUR - MINUTE, cursor + step)));
    else if (event.key === 'Enter' && cursor !== null) choose(cursor);
    else return;
    event.preventDefault();
  };
  const found = cursor === null ? undefined : by.get(Math.floor(cursor / MINUTE) * MINUTE);
  const spoken = cursor === null ? texts.minutesPicture.aCellIsAMinute : texts.minutesPicture.underMinIsrOrOffline(day(cursor), clock(cursor).slice(0, 5), plural(found?.events ?? 0, texts.nouns.event), plural(found?.troubled ?? 0, texts.nouns.partition));
  return html`<canvas ref=${canvas} class="minutes" tabindex="0" role="application" aria-roledescription=${texts.minutesPicture.heatMap} style=${{ height: `${high}px` }}
      aria-label=${texts.minutesPicture.eventsByMinuteTheArrow} onClick=${onClick} onKeyDown=${onKeyDown}></canvas>
    <p class="lanes-spoken" aria-live="polite">${spoken}</p>
    <details class="behind"><summary>${texts.words.asATable}</summary><div class="table-box short" role="region" tabindex="0" aria-label=${texts.minutesPicture.minutesAsATable}><table>
      <thead><tr><th scope="col">${texts.minutesPicture.minute}</th><th scope="col" class="end">${texts.words.events}</th><th scope="col" class="end">${texts.minutesPicture.partitionsUnderMinIsrOr}</th></tr></thead>
      <tbody>${[...minutes].reverse().slice(0, 500).map(([minute, events, troubled]) => html`<tr key=${minute}><th scope="row">${day(minute)} ${clock(minute).slice(0, 5)}</th><td class="end">${events}</td><td class="end">${troubled}</td></tr>`)}</tbody></table></div></details>`;
}
