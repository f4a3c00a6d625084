// A table whose rows are drawn only where they are seen, so that 10,000 rows cost what 40 do.
import { signal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { changed, param } from '../core/url.js';

/**
 * @template R
 * @typedef {{key: string, title: string, hint?: string, width?: number, cell: (row: R) => any, sort?: string,
 *   isFirstDown?: boolean, align?: 'end', isWide?: boolean, isExtra?: boolean}} Column `isWide`: left out on a narrow
 *   screen; `isExtra`: and on one of middle width.
 */

/**
 * How rows are chosen. `all`: whether all are; null for some.
 * @template R
 * @typedef {{has: (row: R) => boolean, set: (rows: R[], isOn: boolean) => void, all: boolean|null,
 *   setAll: (isOn: boolean) => void, allLabel: string, label: (row: R) => string}} Choice
 */

const ROW_PX = 34;
const BOX_PX = 30;
const MARGIN_ROWS = 12;
/** The rows that are drawn before the height of the table is known: those that fit into the window. */
const firstRange = () => ({ from: 0, to: Math.ceil(window.innerHeight / ROW_PX) + MARGIN_ROWS });
const isNarrow = matched('(max-width: 820px)');
const isMiddle = matched('(max-width: 1250px)');

/** Returns whether the window fits a media query, as it is now and becomes. @param {string} query */
function matched(query) {
  const found = window.matchMedia(query);
  const state = signal(found.matches);
  found.addEventListener('change', () => (state.value = found.matches));
  return state;
}

/**
 * @template R
 * @param {{label: string, columns: Column<R>[], count: number, row: (index: number) => R|null, keyOf: (row: R) => string,
 *   sort?: string, isDown?: boolean, empty?: any, onRange?: (from: number, to: number) => void, isTall?: boolean,
 *   markOf?: (row: R) => string, minWidth?: number, choice?: Choice<R>}} props
 * `isTall`: the table has a scroll bar of its own and fills the screen. `choice`: rows can be chosen.
 */
export function Table(props) {
  const { label, count, row, keyOf, empty, onRange, isTall, markOf, minWidth = 0, choice } = props;
  const [narrow, middle] = [isNarrow.value, isMiddle.value];
  const columns = props.columns.filter((column) => !(narrow && column.isWide) && !(middle && column.isExtra));
  const box = useRef(/** @type {HTMLDivElement|null} */ (null));
  /** The row that was chosen last: with Shift, those from there on are. */
  const anchor = useRef(0);
  const [range, setRange] = useState(firstRange);
  const shownFrom = isTall ? Math.max(0, Math.min(range.from, count)) : 0;
  const shownTo = isTall ? Math.min(count, range.to) : count;

  const measure = () => {
    const found = box.current;
    if (!found || !isTall) return;
    const first = Math.floor(found.scrollTop / ROW_PX);
    const last = Math.ceil((found.scrollTop + found.clientHeight) / ROW_PX);
    // What is drawn stays while it reaches far enough over both edges: few of the steps of a scroll draw anything.
    setRange((old) => {
      const isEnough = old.from <= Math.max(0, first - MARGIN_ROWS / 2) && old.to >= Math.min(count, last + MARGIN_ROWS / 2);
      if (isEnough && old.to - old.from <= last - first + 3 * MARGIN_ROWS) return old;
      return { from: Math.max(0, first - MARGIN_ROWS), to: last + MARGIN_ROWS };
    });
  };
  useLayoutEffect(measure, [count, isTall]);
  /** The one of the last rendering: another one knows another number of rows. */
  const measuring = useRef(measure);
  measuring.current = measure;
  useEffect(() => {
    if (!isTall) return undefined;
    const watcher = new ResizeObserver(() => measuring.current());
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, [isTall]);
  useLayoutEffect(() => {
    onRange?.(shownFrom, shownTo);
  }, [shownFrom, shownTo, onRange]);

  const onChoose = (/** @type {number} */ index, /** @type {boolean} */ isOn, /** @type {boolean} */ isRange) => {
    const from = isRange ? Math.min(index, anchor.current) : index;
    const to = isRange ? Math.max(index, anchor.current) : index;
    anchor.current = index;
    const found = [];
    for (let each = from; each <= to; each += 1) found.push(row(each));
    choice?.set(/** @type {any[]} */ (found.filter((each) => each !== null)), isOn);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (!choice || !chooseByKey(event, box.current, choice, row, onChoose)) moveFocus(event, box.current);
  };

  const rows = [];
  for (let index = shownFrom; index < shownTo; index += 1) {
    const value = row(index);
    rows.push(html`<${Row} key=${value ? keyOf(value) : `empty ${index}`} index=${index} value=${value}
      columns=${columns} mark=${value && markOf ? markOf(value) : ''} choice=${choice} onChoose=${onChoose} />`);
  }
  const places = columns.length + (choice ? 1 : 0);
  const fixed = columns.reduce((sum, column) => sum + (column.width ?? 140), 0);
  return html`<div class=${isTall ? 'table-box tall' : 'table-box'} ref=${box} role="region" aria-label=${label}
      tabindex="0" onScroll=${measure} onKeyDown=${onKeyDown}>
    <table aria-rowcount=${count + 1} style=${{ minWidth: `${Math.max(minWidth, Math.min(fixed, 640))}px` }}>
      <colgroup>${choice && html`<col style=${{ width: `${BOX_PX}px` }} />`}${columns.map(
        (column) => html`<col key=${column.key} style=${column.width ? { width: `${column.width}px` } : {}} />`,
      )}</colgroup>
      <thead><tr aria-rowindex="1">${choice && html`<td class="box"><input type="checkbox" aria-label=${choice.allLabel} checked=${choice.all === true} indeterminate=${choice.all === null}
        onChange=${(/** @type {any} */ event) => choice.setAll(event.currentTarget.checked)} /></td>`}${columns.map((column) => html`<${Head} key=${column.key} column=${column} ...${props} />`)}</tr></thead>
      <tbody>
        ${shownFrom > 0 && html`<tr class="space" aria-hidden="true"><td colspan=${places} style=${{ height: `${shownFrom * ROW_PX}px` }}></td></tr>`}
        ${rows}
        ${shownTo < count && html`<tr class="space" aria-hidden="true"><td colspan=${places} style=${{ height: `${(count - shownTo) * ROW_PX}px` }}></td></tr>`}
      </tbody>
    </table>
    ${count === 0 && empty ? html`<p class="empty">${empty}</p>` : null}
  </div>`;
}

/** @param {{column: Column<any>, sort?: string, isDown?: boolean}} props */
function Head({ column, sort, isDown }) {
  const names = column.align === 'end' ? 'end' : '';
  if (!column.sort) return html`<th scope="col" class=${names} title=${column.hint}>${column.title}</th>`;
  const isSorted = sort === column.sort;
  const next = isSorted ? !isDown : (column.isFirstDown ?? false);
  const address = changed({ sort: column.sort, desc: next ? 1 : 0 });
  return html`<th scope="col" class=${names} title=${column.hint}
    aria-sort=${isSorted ? (isDown ? 'descending' : 'ascending') : 'none'}>
    <a class="sorter" href=${address}>${column.title}<span aria-hidden="true">${isSorted ? (isDown ? ' ↓' : ' ↑') : ''}</span></a>
  </th>`;
}

/**
 * @param {{index: number, value: any, columns: Column<any>[], mark: string, choice?: Choice<any>,
 *   onChoose: (index: number, isOn: boolean, isRange: boolean) => void}} props
 */
function Row({ index, value, columns, mark, choice, onChoose }) {
  const before = useRef(mark);
  const [isFresh, setFresh] = useState(false);
  useEffect(() => {
    if (before.current === mark) return undefined;
    before.current = mark;
    setFresh(true);
    const timer = setTimeout(() => setFresh(false), 2500);
    return () => clearTimeout(timer);
  }, [mark]);
  const isChosen = Boolean(choice && value && choice.has(value));
  return html`<tr aria-rowindex=${index + 2} class=${isFresh ? 'fresh' : ''} data-index=${index} data-chosen=${choice ? isChosen : undefined}>
    ${choice && html`<td class="box">${value && html`<input type="checkbox" aria-label=${choice.label(value)} checked=${isChosen}
      onClick=${(/** @type {any} */ event) => onChoose(index, event.currentTarget.checked, event.shiftKey)} />`}</td>`}
    ${columns.map((column, place) => {
      const names = column.align === 'end' ? 'end' : '';
      const content = value ? column.cell(value) : place === 0 ? '…' : '';
      return place === 0
        ? html`<th scope="row" key=${column.key} class=${names}>${content}</th>`
        : html`<td key=${column.key} class=${names}>${content}</td>`;
    })}
  </tr>`;
}

/** Returns the row that has the focus. @param {HTMLElement|null} box */
function focusedRow(box) {
  const found = document.activeElement?.closest('tr[data-index]');
  return found instanceof HTMLElement && box?.contains(found) ? found : null;
}

/**
 * Chooses rows by keys: the one with the focus, it and its neighbour, or all. Returns whether the key has done all it does.
 * @template R
 * @param {KeyboardEvent} event
 * @param {HTMLElement|null} box
 * @param {Choice<R>} choice
 * @param {(index: number) => R|null} row
 * @param {(index: number, isOn: boolean, isRange: boolean) => void} onChoose
 */
function chooseByKey(event, box, choice, row, onChoose) {
  const isBox = event.target instanceof HTMLInputElement;
  if ((event.ctrlKey || event.metaKey) && event.key === 'a') {
    event.preventDefault();
    choice.setAll(true);
    return true;
  }
  const present = focusedRow(box);
  const value = present ? row(Number(present.dataset.index)) : null;
  if (!present || value === null || event.ctrlKey || event.metaKey || event.altKey) return false;
  const index = Number(present.dataset.index);
  if (event.key === 'x' || (event.key === ' ' && !isBox)) {
    event.preventDefault();
    onChoose(index, !choice.has(value), false);
    return true;
  }
  if (event.shiftKey && (event.key === 'ArrowDown' || event.key === 'ArrowUp')) {
    onChoose(index, true, false);
    onChoose(Math.max(0, index + (event.key === 'ArrowDown' ? 1 : -1)), true, true);
  }
  return false;
}

/**
 * Moves the focus between the first links of rows, or between their boxes.
 * @param {KeyboardEvent} event
 * @param {HTMLElement|null} box
 */
function moveFocus(event, box) {
  if (event.target instanceof HTMLElement && event.target.closest('input:not([type=checkbox]), select, textarea')) return;
  const wantedKind = event.target instanceof HTMLInputElement ? 'input' : 'a, button';
  const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 15, PageUp: -15 };
  const step = steps[/** @type {keyof typeof steps} */ (event.key)];
  if (!box || step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  const present = focusedRow(box);
  const last = Number(box.querySelector('table')?.getAttribute('aria-rowcount')) - 2;
  const index = present ? Number(present.dataset.index) + step : 0;
  const wanted = Math.max(0, Math.min(last, index));
  event.preventDefault();
  const focus = () => {
    const row = box.querySelector(`tr[data-index="${wanted}"]`);
    const link = row?.querySelector(wantedKind);
    if (link instanceof HTMLElement) {
      link.focus();
      link.closest('tr')?.scrollIntoView({ block: 'nearest' });
    }
    return link instanceof HTMLElement;
  };
  if (!focus()) {
    box.scrollTop = wanted * ROW_PX;
    requestAnimationFrame(() => requestAnimationFrame(focus));
  }
}

/**
 * Sorts rows by the address's `sort` and `desc`; rows without a value come last.
 * @template R
 * @param {R[]} rows
 * @param {Record<string, (row: R) => number|string|null>} values
 * @param {string} first the order if the address names none
 * @param {boolean} [isFirstDown]
 */
export function sorted(rows, values, first, isFirstDown = false) {
  const asked = param('sort');
  const sort = asked && values[asked] ? asked : first;
  const isDown = asked && values[asked] ? param('desc') === '1' : isFirstDown;
  const value = values[sort];
  if (!value) return { rows, sort, isDown };
  const found = rows.map((row) => ({ row, value: value(row) }));
  const sign = isDown ? -1 : 1;
  found.sort((one, other) => {
    if (one.value === null || other.value === null) return Number(one.value === null) - Number(other.value === null);
    if (typeof one.value === 'string') return sign * one.value.localeCompare(String(other.value), 'en', { numeric: true });
    return sign * (one.value - Number(other.value));
  });
  return { rows: found.map((each) => each.row), sort, isDown };
}
