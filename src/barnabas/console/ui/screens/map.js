// Map: where is it wrong? All replicas of the cluster in one picture.
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { get, getBytes } from '../core/api.js';
import { asApiError, note } from '../core/data.js';
import { openStream, status } from '../core/live.js';
import { atMs, go, href, param, setParams } from '../core/url.js';
import { GROUPINGS, groupsOf } from '../core/map_groups.js';
import { MapTable } from '../core/map_table.js';
import { brokers as listed, plural } from '../core/format.js';
import { texts } from '../core/texts.js';
import { theme } from '../core/theme.js';
import { useSize } from '../pictures/canvas.js';
import { HEAD, cellAt, drawMap, layOut, lookOf, placeOf } from '../pictures/map.js';
import { cursorAt, followed, moved, reveal } from '../pictures/map_cursor.js';
import { looks } from '../pictures/stamps.js';
import { MapTableView } from '../parts/map_as_table.js';
import { Legend } from '../parts/map_legend.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { Fill } from '../pictures/stamps.js' */
/** @import { Groups } from '../core/map_groups.js' */
/** @import { Layout } from '../pictures/map.js' */
/** @import { Cursor } from '../pictures/map_cursor.js' */
/** @import { Severity } from '../core/types.js' */

const FILLS = /** @type {const} */ ([
  ['state', texts.mapScreen.stateOfTheReplica],
  ['severity', texts.mapScreen.stateOfThePartition],
  ['leader', 'leader'],
  ['size', 'size'],
  ['lag', 'lag'],
]);
/** @type {Severity[]} */
const RANK = ['ok', 'notice', 'warning', 'error', 'critical'];
const VOLUMES_MS = 5_000;

/** @param {Fill} fill */
function useMap(fill) {
  const at = atMs();
  const question = supposed();
  const volumes = fill === 'size' || fill === 'lag' ? fill : null;
  const key = JSON.stringify([at, volumes, param('cluster'), question]);
  const [state, setState] = useState({ table: /** @type {MapTable|null} */ (null), drawn: 0, error: /** @type {any} */ (null) });
  const kept = useRef(/** @type {MapTable|null} */ (null));

  useLayoutEffect(() => {
    const abort = new AbortController();
    /** @type {(() => void)|undefined} */
    let close;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    let timer;
    /** The number of the last request, and what the stream has sent while it is under way. */
    let sent = 0;
    /** @type {any[]|null} */
    let since = null;
    const load = async () => {
      clearTimeout(timer);
      const number = (sent += 1);
      since = [];
      try {
        const before = question ? null : kept.current;
        const bytes = await getBytes('/api/map', { at, fill: volumes, layout: before?.header.layout }, abort.signal);
        if (number !== sent) return;
        const table = new MapTable(bytes, before);
        // The stream is faster than a large answer: what it sent meanwhile is not in an answer of an earlier state.
        for (const cells of since ?? []) if (cells.version >= table.header.version) table.apply(cells);
        since = null;
        note({ ...table.header, data: null });
        if (question && table.isFilled) await suppose(table, question, at, abort.signal);
        kept.current = question ? null : table;
        setState((old) => ({ table, drawn: old.drawn + 1, error: null }));
        if (!table.isFilled) timer = setTimeout(load, 1000);
        else if (at === null && !question) {
          close ??= openStream('map', {}, `${table.header.boot}.${table.header.version}`, { onCells, onReload: load, onStale: load });
          if (volumes) timer = setTimeout(load, VOLUMES_MS);
        }
      } catch (error) {
        if (abort.signal.aborted || number !== sent) return;
        setState((old) => ({ ...old, error: asApiError(error) }));
        timer = setTimeout(load, 1000);
      }
    };
    const onCells = (/** @type {any} */ cells) => {
      since?.push(cells);
      if (!kept.current?.apply(cells)) void load();
      else setState((old) => ({ ...old, drawn: old.drawn + 1 }));
    };
    void load();
    return () => {
      abort.abort();
      clearTimeout(timer);
      close?.();
    };
  }, [key]);
  return state;
}

/** @typedef {{ask: string, broker: string|null, rack: string|null, path: string|null, topic: string|null, value: string|null}} Question */

/** Returns the question whose answer the map shows, of the address; null for none. @returns {Question|null} */
function supposed() {
  const ask = param('ask');
  if (ask === null) return null;
  return { ask, broker: param('broker'), rack: param('rack'), path: param('path'), topic: param('topic'), value: param('value') };
}

/** @param {MapTable} table @param {Question} question @param {number|null} at @param {AbortSignal} signal */
async function suppose(table, question, at, signal) {
  const { data } = await get('/api/whatif', { ...question, at, states: 1 }, { signal });
  const found = /** @type {any} */ (data);
  if (!found) return;
  /** @type {number[]} */
  let lost = [];
  if (question.ask === 'lose-broker' || question.ask === 'restart') lost = (question.broker ?? '').split(',').map(Number);
  if (question.ask === 'lose-rack') lost = table.header.brokers.filter((each) => (question.rack ?? '').split(',').includes(each.rack ?? '')).map((each) => each.broker);
  table.supposed = table.suppose(found.states, lost);
}

/** @param {Question} question */
function questionText({ ask, broker, rack, path, topic, value }) {
  /** @type {Record<string, string>} */
  const known = {
    restart: texts.mapScreen.brokerWereRestarted(broker),
    'restart-all': texts.mapScreen.allBrokersWereRestartedOne,
    'lose-broker': texts.mapScreen.brokerDiedOf(broker),
    'lose-rack': texts.mapScreen.rackWereLost(rack),
    'lose-disk': texts.mapScreen.theDiskOfBrokerWere(path, broker),
    drain: texts.mapScreen.brokerWereDrained(broker),
    'min-isr': texts.mapScreen.minInsyncReplicasOfWere(topic, value),
  };
  return known[ask] ?? ask;
}

export function MapScreen() {
  const fill = FILLS.find(([name]) => name === param('fill'))?.[0] ?? 'state';
  const by = GROUPINGS.find(([name]) => name === param('group'))?.[0] ?? null;
  const { table, drawn, error } = useMap(fill);
  const groups = useMemo(() => (table?.isFilled && by ? groupsOf(table, by) : null), [table, by, by === 'topic' ? 0 : drawn]);
  const isTable = param('as') === 'table';
  const question = supposed();
  return html`
    ${question && html`<p class="warning past" role="status"><strong>${texts.mapScreen.whatIf} ${questionText(question)}?</strong> ${texts.mapScreen.theMapShowsItAs}${' '}
      <a href=${href('/whatif', question)}>${texts.mapScreen.theAnswer}</a> · <a href=${href('/map')}>${texts.mapScreen.asItIs}</a></p>`}
    <div class="tools">
      <label>${texts.mapScreen.fillBy} <select value=${fill} onChange=${(/** @type {any} */ event) => setParams({ fill: event.currentTarget.value === 'state' ? null : event.currentTarget.value })}>
        ${FILLS.map(([name, title]) => html`<option key=${name} value=${name}>${title}</option>`)}</select></label>
      <label>${texts.map.group} <select value=${by ?? ''} onChange=${(/** @type {any} */ event) => setParams({ group: event.currentTarget.value })}>
        <option value="">${texts.map.ungrouped}</option>${GROUPINGS.map(([name, title]) => html`<option key=${name} value=${name}>${title}</option>`)}</select></label>
      <input type="search" class="filter short-filter" aria-label=${texts.mapScreen.highlightTopics} placeholder=${texts.mapScreen.highlightTopics} value=${param('q') ?? ''} spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setParams({ q: event.currentTarget.value }, { replace: true })} />
      <label>${texts.words.stateLower} <select value=${param('state') ?? ''} onChange=${(/** @type {any} */ event) => setParams({ state: event.currentTarget.value })}>
        <option value="">${texts.words.any}</option>${[...RANK].reverse().map((each) => html`<option key=${each} value=${each}>${texts.severity[each]}</option>`)}</select></label>
      <span class="grow"></span>
      <span class="choices" role="group" aria-label=${texts.mapScreen.sizeOfTheCells}>
        <button class="choice" aria-label=${texts.mapScreen.smallerCells} onClick=${() => setParams({ zoom: zoomed(-1) }, { replace: true })}>−</button>
        <button class="choice" aria-label=${texts.mapScreen.largerCells} onClick=${() => setParams({ zoom: zoomed(1) }, { replace: true })}>+</button></span>
      <button aria-pressed=${isTable} onClick=${() => setParams({ as: isTable ? null : 'table' })}>${texts.words.asATable}</button>
    </div>
    ${!table?.isFilled
      ? html`<${Waiting} error=${error} envelope=${table ? { ...table.header } : null} />`
      : isTable
        ? html`<${MapTableView} table=${table} drawn=${drawn} groups=${groups} />`
        : html`<${Picture} table=${table} drawn=${drawn} fill=${fill} groups=${groups} />`}`;
}

/** @param {-1|1} direction */
function zoomed(direction) {
  const zoom = Math.max(0.5, Math.min(8, (Number(param('zoom')) || 1) * (direction > 0 ? 1.5 : 1 / 1.5)));
  return Math.abs(zoom - 1) < 0.05 ? null : zoom.toFixed(2);
}

/** @param {MapTable} table @param {number} drawn */
function useDim(table, drawn) {
  const [text, state] = [(param('q') ?? '').toLowerCase(), param('state') ?? ''];
  return useMemo(() => {
    if (!text && !state) return table.supposed ? (/** @type {number} */ position) => !table.supposed?.[position] : null;
    const rank = RANK.indexOf(/** @type {Severity} */ (state));
    const hits = new Uint8Array(table.count);
    table.topics.names.forEach((name, index) => {
      if (text && !name.toLowerCase().includes(text)) return;
      const from = table.starts[index] ?? 0;
      hits.fill(1, from, from + (table.topics.counts[index] ?? 0));
    });
    return (/** @type {number} */ position) => !hits[position] || (rank >= 0 && table.severity[position] !== rank);
  }, [table, text, state, drawn]);
}

/** @param {{table: MapTable, drawn: number, fill: Fill, groups: Groups|null}} props */
function Picture({ table, drawn, fill, groups }) {
  const box = useRef(/** @type {HTMLDivElement|null} */ (null));
  const canvas = useRef(/** @type {HTMLCanvasElement|null} */ (null));
  const size = useSize(box);
  const [top, setTop] = useState(0);
  const [kept, setCursor] = useState(/** @type {Cursor|null} */ (null));
  const [pointed, setPointed] = useState(/** @type {{column: number, index: number, x: number, y: number}|null} */ (null));
  const zoom = Number(param('zoom')) || 1;
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const shade = theme.value;
  const problems = (status.value?.silent ?? []).map((each) => each.broker).join();
  const layout = useMemo(() => layOut(table, groups, size.width, size.height, zoom), [table, drawn, groups, size, zoom]);
  const cursor = useMemo(() => followed(layout, kept), [layout, kept]);
  for (const column of layout.columns) column.problem = table.silent.has(column.broker) ? (column.problem ?? 'silent') : null;
  const isDim = useDim(table, drawn);

  useLayoutEffect(() => {
    const element = canvas.current;
    if (!element || !size.width || !size.height) return;
    element.width = Math.round(size.width * ratio);
    element.height = Math.round(size.height * ratio);
    const context = element.getContext('2d');
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawMap(context, table, layout, { fill, top, width: size.width, height: size.height, ratio, isDim, cursor });
    element.dataset.drawn = `${table.header.boot}.${table.header.version}.${table.header.at_ms ?? 'now'}`;
  }, [table, drawn, layout, fill, top, size, isDim, cursor, shade, problems]);

  const cellOf = (/** @type {MouseEvent} */ event) => {
    const found = canvas.current?.getBoundingClientRect();
    return found ? cellAt(layout, event.clientX - found.left, event.clientY - found.top + top, ratio) : null;
  };
  const openCell = (/** @type {{column: number, index: number}|null} */ cell) => {
    const position = cell ? layout.columns[cell.column]?.positions[cell.index] : undefined;
    if (position !== undefined) go(href('/partition', table.nameOf(position)));
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Enter' && cursor) openCell(cursor);
    else if (event.key === '+' || event.key === '-') setParams({ zoom: zoomed(event.key === '+' ? 1 : -1) }, { replace: true });
    else {
      const next = moved(layout, cursor, event.key);
      if (!next) return;
      setCursor(cursorAt(layout, next));
      reveal(box.current, layout, next);
    }
    event.preventDefault();
  };
  const spoken = cursor ? sentence(table, layout, cursor) : '';
  return html`
    <${Legend} table=${table} fill=${fill} drawn=${drawn} />
    <div class="map" ref=${box} onScroll=${() => setTop(box.current?.scrollTop ?? 0)}>
      <div class="map-content" style=${{ height: `${layout.height}px` }}>
        <canvas ref=${canvas} class="map-canvas" tabindex="0" role="application" aria-roledescription=${texts.mapScreen.replicaMap}
          aria-label=${groups ? texts.map.labelGrouped : texts.map.label} aria-describedby="map-spoken"
          style=${{ height: `${size.height}px` }} onKeyDown=${onKeyDown} onBlur=${() => setCursor(null)}
          onClick=${(/** @type {MouseEvent} */ event) => openCell(cellOf(event))}
          onMouseMove=${(/** @type {MouseEvent} */ event) => {
            const cell = cellOf(event);
            setPointed(cell && { ...cell, x: event.clientX, y: event.clientY });
          }}
          onMouseLeave=${() => setPointed(null)}></canvas>
        ${layout.columns.map(
          (each) => html`<div key=${each.broker} class="map-head" data-up=${each.problem === null}
            style=${{ left: `${each.x}px`, top: `${each.y}px`, width: `${each.width}px`, height: `${HEAD - 6}px` }}>
            <a href=${href('/broker', { id: each.broker })}>${texts.words.broker} ${each.broker}</a>
            ${table.header.controller === each.broker && html`<span class="chip">${texts.words.controllerLower}</span>`}
            ${each.problem !== null && html`<span class="chip bad-chip">${texts.mapScreen.silent}</span>`}
            <small>${each.rack ? texts.mapScreen.rackOf(each.rack) : ''}${plural(each.positions.length, texts.nouns.replica)}</small></div>`,
        )}
      </div>
    </div>
    <p id="map-spoken" class="map-spoken" aria-live="polite">${spoken || (pointed ? sentence(table, layout, pointed) : texts.map.hint)}</p>
    ${pointed && html`<${Tip} table=${table} layout=${layout} cell=${pointed} fill=${fill} />`}`;
}

/** @param {MapTable} table @param {Layout} layout @param {{column: number, index: number}} cell */
function facts(table, layout, cell) {
  const column = layout.columns[cell.column];
  const position = column?.positions[cell.index];
  if (!column || position === undefined) return null;
  const place = column.places[cell.index] ?? 0;
  const replicas = table.replicasOf(position);
  const state = ['follower', 'leader', 'out', 'silent', 'leaderless'][table.stateOf(position, place, column.broker)] ?? 'out';
  return {
    ...table.nameOf(position),
    broker: column.broker,
    state: texts.replica[/** @type {keyof typeof texts.replica} */ (state)],
    severity: RANK[table.severity[position] ?? 0] ?? 'ok',
    leader: table.leaderOf(position),
    replicas,
    isr: replicas.filter((_, index) => ((table.isr[position] ?? 0) >> index) & 1),
    position,
    place,
    group: layout.groups?.all[placeOf(layout, column, cell.index).group] ?? null,
  };
}

/** @param {MapTable} table @param {Layout} layout @param {{column: number, index: number}} cell */
function sentence(table, layout, cell) {
  const found = facts(table, layout, cell);
  if (!found) return '';
  const leader = found.leader < 0 ? texts.words.noLeaderLower : texts.words.leaderOf(found.leader);
  const group = found.group ? `${found.group.name}, ${plural(found.group.partitions, texts.nouns.partition)}: ` : '';
  return texts.mapScreen.onBrokerReplicasInSync(group, found.topic, found.partition, found.broker, found.state, leader, listed(found.replicas), listed(found.isr), texts.severity[found.severity]);
}

/** @param {{table: MapTable, layout: Layout, cell: {column: number, index: number, x: number, y: number}, fill: Fill}} props */
function Tip({ table, layout, cell, fill }) {
  const found = facts(table, layout, cell);
  if (!found) return null;
  const look = looks(fill)[lookOf(table, fill)(found.position, found.place, found.broker)];
  const isRight = cell.x > window.innerWidth / 2;
  const style = isRight ? { right: `${window.innerWidth - cell.x + 14}px`, top: `${cell.y + 14}px` } : { left: `${cell.x + 14}px`, top: `${cell.y + 14}px` };
  return html`<div class="tip" style=${style} aria-hidden="true"><strong>${found.topic}-${found.partition}</strong>
    <span>${texts.words.brokerLower} ${found.broker}: ${found.state}</span>
    <span>${texts.words.leaderLower} ${found.leader < 0 ? 'none' : found.leader}${texts.mapScreen.replicas} ${listed(found.replicas)}${texts.mapScreen.inSync} ${listed(found.isr)}</span>
    <span>${texts.severity[found.severity]}${(fill === 'size' || fill === 'lag') && look?.name ? `, ${fill} ${look.name}` : ''}</span></div>`;
}
