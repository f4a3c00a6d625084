// The assignment of a consumer group as a picture, and the same as a table of members.
import { useMemo, useRef, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { assignmentOf, ranges } from '../core/assignment.js';
import { count, plural } from '../core/format.js';
import { texts } from '../core/texts.js';
import { go, href, param, setParams } from '../core/url.js';
import { drawAssignment, layOutAssignment, readerColour } from '../pictures/assignment.js';
import { useCanvas, useSize } from '../pictures/canvas.js';
import { cellAt } from '../pictures/map.js';
import { moved, reveal } from '../pictures/map_cursor.js';
import { theme } from '../core/theme.js';
import { Table } from './table.js';
/** @import { Assignment, Cell, Reader } from '../core/assignment.js' */
/** @import { GroupPage } from '../core/types.js' */

const HEIGHT_MAX = 380;
/** In the address, what nobody reads. No member id of a client is that short. */
const NOBODY = '-';

/** @param {{group: GroupPage}} props */
export function AssignmentOf({ group }) {
  const key = JSON.stringify([group.members, group.partitions, group.assigned]);
  const assignment = useMemo(() => assignmentOf(group), [key]);
  if (group.members.length === 0) return html`<p class="empty">${group.problem ?? texts.empty.members}</p>`;
  return html`${assignment.cells.length > 0 && html`<${Picture} assignment=${assignment} />`}
    <${Readers} assignment=${assignment} />`;
}

/** @param {{assignment: Assignment}} props */
function Picture({ assignment }) {
  const box = useRef(/** @type {HTMLDivElement|null} */ (null));
  const [top, setTop] = useState(0);
  /** The partition under the cursor, and the one that is pointed at. */
  const [kept, setCursor] = useState(/** @type {string|null} */ (null));
  const [pointed, setPointed] = useState(/** @type {number|null} */ (null));
  const member = param('member');
  const isDim = (/** @type {Cell} */ cell) => member !== null && (cell.reader?.member ?? NOBODY) !== member;
  const cursor = useMemo(() => {
    const index = kept === null ? -1 : assignment.cells.findIndex((each) => nameOf(each) === kept);
    return index < 0 ? null : index;
  }, [assignment, kept]);
  const { width } = useSize(box);
  const layout = useMemo(() => layOutAssignment(assignment, width), [assignment, width]);
  const height = Math.min(layout.height, HEIGHT_MAX);
  const { canvas } = useCanvas(
    (context, _wide, high) => drawAssignment(context, assignment, layout, { top, height: high, isDim, cursor }),
    [assignment, layout, top, cursor, member],
  );

  const indexAt = (/** @type {MouseEvent} */ event) => {
    const found = canvas.current?.getBoundingClientRect();
    return found ? (cellAt(layout, event.clientX - found.left, event.clientY - found.top + top, 1)?.index ?? null) : null;
  };
  const open = (/** @type {number|null} */ index) => {
    const cell = index === null ? undefined : assignment.cells[index];
    if (cell) go(href('/partition', { topic: cell.topic, partition: cell.partition }));
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Enter') open(cursor);
    else {
      const next = moved(layout, cursor === null ? null : { column: 0, index: cursor }, event.key);
      const cell = next && assignment.cells[next.index];
      if (!cell) return;
      setCursor(nameOf(cell));
      reveal(box.current, layout, next);
    }
    event.preventDefault();
  };
  const shown = assignment.cells[cursor ?? pointed ?? -1];
  return html`<div class="assignment" ref=${box} style=${{ height: `${height + 2}px` }} onScroll=${() => setTop(box.current?.scrollTop ?? 0)}>
      <div style=${{ height: `${layout.height}px` }}>
        <canvas ref=${canvas} class="map-canvas" tabindex="0" role="application" aria-roledescription=${texts.assignmentPart.assignment} aria-label=${texts.assignment.label}
          aria-describedby="assignment-spoken" style=${{ height: `${height}px` }} onKeyDown=${onKeyDown} onBlur=${() => setCursor(null)}
          onClick=${(/** @type {MouseEvent} */ event) => open(indexAt(event))} onMouseMove=${(/** @type {MouseEvent} */ event) => setPointed(indexAt(event))}
          onMouseLeave=${() => setPointed(null)}></canvas></div></div>
    <p id="assignment-spoken" class="map-spoken" aria-live="polite">${shown ? sentence(shown) : texts.assignment.hint}</p>`;
}

/** @param {Cell} cell */
function nameOf({ topic, partition }) {
  return `${topic}-${partition}`;
}

/** @param {Cell} cell */
function sentence(cell) {
  const { reader, lag, committed } = cell;
  const who = reader ? texts.assignment.readBy(reader.number, reader.name, reader.host) : texts.assignment.unread;
  const behind = committed === null ? texts.assignment.uncommitted : lag === null ? '' : texts.assignment.behind(plural(lag, texts.nouns.record));
  return `${nameOf(cell)}: ${[who, behind].filter(Boolean).join('; ')}`;
}

/** The table of members in the order of their numbers, and at last what nobody reads. @param {{assignment: Assignment}} props */
function Readers({ assignment }) {
  const { readers, nobody } = assignment;
  const rows = nobody.partitions.length ? [...readers, nobody] : readers;
  const member = param('member');
  const keyOf = (/** @type {Reader} */ row) => (row.number ? row.member : NOBODY);
  const mark = (/** @type {Reader} */ row) => html`<button class="reader-mark" aria-pressed=${member === keyOf(row)} aria-label=${row.number ? texts.assignment.only(row.number) : texts.assignment.onlyNobody}
    style=${row.number ? { background: readerColour(row.number), color: 'var(--series-ink)' } : {}} data-shade=${theme.value}
    onClick=${() => setParams({ member: member === keyOf(row) ? null : keyOf(row) })}>${row.number || '×'}</button>`;
  return html`<${Table} label=${texts.assignment.table} count=${rows.length} isTall=${rows.length > 40} row=${(/** @type {number} */ index) => rows[index] ?? null}
    keyOf=${keyOf} columns=${[
      { key: 'name', title: texts.words.member, width: 230, cell: (/** @type {Reader} */ row) => html`${mark(row)} <span title=${row.name}>${row.number ? row.name : html`<span class="muted">${texts.assignment.nobody}</span>`}</span>` },
      { key: 'partitions', title: texts.words.partitions, width: 98, align: /** @type {const} */ ('end'), cell: (/** @type {Reader} */ row) => count(row.partitions.length) },
      { key: 'lag', title: texts.words.lag, width: 90, align: /** @type {const} */ ('end'), cell: (/** @type {Reader} */ row) => (row.lag === null ? html`<span class="nothing">–</span>` : count(row.lag)) },
      { key: 'which', title: texts.assignmentPart.which, cell: (/** @type {Reader} */ row) => html`<span title=${ranges(row.partitions)}>${ranges(row.partitions) || texts.none}</span>` },
      { key: 'host', title: texts.assignmentPart.host, width: 120, isWide: true, cell: (/** @type {Reader} */ row) => row.host || texts.none },
      { key: 'id', title: texts.assignmentPart.memberId, width: 200, isWide: true, cell: (/** @type {Reader} */ row) => html`<span class="code" title=${row.member}>${row.member || texts.none}</span>` },
    ]} />`;
}
