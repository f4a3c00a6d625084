// What the cells of the map mean, and how many there are of each.
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { count } from '../core/format.js';
import { theme } from '../core/theme.js';
import { lookOf } from '../pictures/map.js';
import { looks, paint } from '../pictures/stamps.js';
/** @import { MapTable } from '../core/map_table.js' */
/** @import { Fill, Look } from '../pictures/stamps.js' */

const SIDE = 18;

/** @param {{table: MapTable, fill: Fill, drawn: number}} props */
export function Legend({ table, fill, drawn }) {
  const shade = theme.value;
  const all = useMemo(() => looks(fill), [fill, shade]);
  const sums = useMemo(() => counted(table, fill, all.length), [table, fill, drawn, all.length]);
  const isScale = fill === 'size' || fill === 'lag';
  return html`<ul class="legend map-legend" aria-label=${texts.mapLegend.cellsByWhatTheyShow}>${all.map((look, index) =>
    isScale && !sums[index] ? null : html`<li key=${`${look.name} ${index}`} data-look=${look.name} data-count=${sums[index]}><${Swatch} look=${look} shade=${shade} />
      <span>${isScale && index > 0 ? `${look.name || look.letter}` : look.name}</span> <strong>${count(sums[index] ?? 0)}</strong></li>`,
  )}</ul>`;
}

/** @param {{look: Look, shade: string}} props */
function Swatch({ look, shade }) {
  const canvas = useRef(/** @type {HTMLCanvasElement|null} */ (null));
  useEffect(() => {
    const context = canvas.current?.getContext('2d');
    if (!context) return;
    context.clearRect(0, 0, SIDE * 2, SIDE * 2);
    paint(context, look, SIDE * 2);
  }, [look, shade]);
  return html`<canvas ref=${canvas} class="swatch" width=${SIDE * 2} height=${SIDE * 2} aria-hidden="true"></canvas>`;
}

/** @param {MapTable} table @param {Fill} fill @param {number} kinds */
function counted(table, fill, kinds) {
  const found = new Array(kinds).fill(0);
  const look = lookOf(table, fill);
  for (let position = 0; position < table.count; position += 1) {
    const replicas = table.replicasOf(position);
    for (let place = 0; place < replicas.length; place += 1) {
      found[look(position, place, replicas[place] ?? -1)] += 1;
    }
  }
  return found;
}
