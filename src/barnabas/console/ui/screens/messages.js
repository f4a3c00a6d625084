// Messages: what is in it?
import { useEffect, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { address, get } from '../core/api.js';
import { asApiError, useRoute } from '../core/data.js';
import { changed, href, param, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { bytes, clockMs, count, day, plural } from '../core/format.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { Messages, RecordRow, Value } from '../core/types.js' */

const FROM = /** @type {const} */ ([
  ['end', 'the last'],
  ['start', 'the first'],
  ['offset', 'from an offset'],
  ['time', 'from a time'],
]);
const LIMITS = ['20', '50', '200', '500'];
const FORMS = ['auto', 'text', 'json', 'hex'];

export function MessagesScreen() {
  const topic = param('topic') ?? '';
  const asked = {
    topic,
    partition: param('partition'),
    from: param('from') ?? 'end',
    value: param('value'),
    limit: param('limit') ?? '50',
    q: param('q'),
    filter: param('filter'),
    key: param('key'),
    body: param('body'),
  };
  const answer = useRoute('/api/messages', asked, { isStill: true });
  const data = /** @type {Messages|null} */ (answer.data);
  const [more, setMore] = useState(/** @type {{key: string, records: RecordRow[], last: Messages|null}} */ ({ key: '', records: [], last: null }));
  const [problem, setProblem] = useState('');
  const key = JSON.stringify(asked);
  const isMore = more.key === key;
  const records = [...(data?.records ?? []), ...(isMore ? more.records : [])];
  const open = param('record');
  const last = isMore ? more.last : data;
  const isBack = Boolean(last?.before);
  const places = Object.entries(last?.before ?? last?.next ?? {});
  const loadMore = async () => {
    const value = places.map(([partition, offset]) => `${partition}:${offset}`).join(',');
    try {
      const found = /** @type {Messages|null} */ ((await get('/api/messages', { ...asked, from: isBack ? 'before' : 'next', value })).data);
      setMore({ key, records: [...(isMore ? more.records : []), ...(found?.records ?? [])], last: found });
      setProblem('');
    } catch (error) {
      setProblem(asApiError(error).message);
    }
  };
  return html`
    <${Form} asked=${asked} error=${answer.error} onAgain=${answer.reload} />
    ${!data
      ? answer.error?.code === 'filter' ? null : html`<${Waiting} ...${answer} />`
      : html`<p class="facts" role="status">${plural(records.length, 'record')} of ${count(data.searched.records)} read (${bytes(data.searched.bytes)}, ${count(data.searched.ms)} ms)${
            data.searched.skipped ? `, ${count(data.searched.skipped)} skipped` : ''
          }${data.is_complete ? '' : `; the search stopped${data.stopped ? ` at its limit of ${data.stopped}` : ''}`}.</p>
          ${data.filter_failure && html`<p class="warning">The filter failed for ${plural(data.searched.filter_failures, 'record')}: ${data.filter_failure}</p>`}
          ${data.problems.map((each) => html`<p key=${each.partition} class="warning">Partition ${each.partition}: ${each.text}</p>`)}
          ${records.length === 0 ? html`<p class="empty">${texts.empty.messages}</p>` : html`<${Records} records=${records} />`}
          ${problem && html`<p class="problem" role="alert">${problem}</p>`}
          ${places.length > 0 && html`<p><button onClick=${loadMore}>${isBack ? 'Earlier records' : 'Later records'}</button></p>`}`}
    ${open !== null && html`<${OneRecord} topic=${topic} id=${open} />`}`;
}

/** @param {{asked: Record<string, string|null>, error: any, onAgain: () => void}} props */
function Form({ asked, error, onAgain }) {
  const onSubmit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const fields = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    const text = (/** @type {string} */ name) => String(fields.get(name) ?? '').trim();
    let value = text('value');
    if (text('from') === 'time' && value && !/^\d+$/.test(value)) value = String(Date.parse(value));
    const before = window.location.search;
    setParams({
      partition: text('partition'),
      from: text('from') === 'end' ? null : text('from'),
      value: text('from') === 'offset' || text('from') === 'time' ? value : null,
      limit: text('limit') === '50' ? null : text('limit'),
      q: text('q'),
      filter: text('filter'),
      body: text('body') === 'auto' ? null : text('body'),
      record: null,
    });
    if (before === window.location.search) onAgain();
  };
  return html`<form class="tools" onSubmit=${onSubmit}>
    <label>read <select name="from" value=${asked.from}>${FROM.map(([value, title]) => html`<option key=${value} value=${value}>${title}</option>`)}</select></label>
    <label>at <input name="value" class="short" value=${asked.value ?? ''} placeholder="offset or time" spellcheck=${false} /></label>
    <label>partition <input name="partition" class="short" value=${asked.partition ?? ''} placeholder="all" inputmode="numeric" /></label>
    <label>at most <select name="limit" value=${asked.limit}>${LIMITS.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
    <label>as <select name="body" value=${asked.body ?? 'auto'}>${FORMS.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
    <label>contains <input name="q" class="short" value=${asked.q ?? ''} spellcheck=${false} /></label>
    <label class="grow">filter <input name="filter" class="filter code" value=${asked.filter ?? ''} placeholder="CEL, such as  value.amount > 100 && partition == 2" spellcheck=${false} aria-invalid=${error?.code === 'filter'} /></label>
    <button class="primary">Read</button>
    <a class="button" href=${address('/api/messages', { ...asked, format: 'jsonl' })} download>JSONL</a>
    ${error?.code === 'filter' && html`<p class="problem" role="alert">${error.message}${error.where ? ` (line ${error.where[0]}, column ${error.where[1]})` : ''}</p>`}
  </form>`;
}

/** @param {{records: RecordRow[]}} props */
function Records({ records }) {
  return html`<div class="table-box" role="region" tabindex="0" aria-label="Records"><table class="records">
    <colgroup><col class="c-offset" /><col class="c-time" /><col class="c-key" /><col /></colgroup>
    <thead><tr><th scope="col">Partition and offset</th><th scope="col">Time</th><th scope="col">Key</th><th scope="col">Value</th></tr></thead>
    <tbody>${records.map(
      (each) => html`<tr key=${`${each.partition} ${each.offset}`}>
        <th scope="row"><a class="name" href=${changed({ record: `${each.partition}:${each.offset}` })}>${each.partition} : ${count(each.offset)}</a></th>
        <td>${each.time_ms === null || each.time_ms < 0 ? '–' : html`${day(each.time_ms)} ${clockMs(each.time_ms)}`}</td>
        <td><${Short} value=${each.key} /></td>
        <td><${Short} value=${each.value} />${each.headers.length > 0 && html` <span class="chip plain">${plural(each.headers.length, 'header')}</span>`}</td></tr>`,
    )}</tbody></table></div>`;
}

/** @param {{value: Value|null}} props */
function Short({ value }) {
  if (!value || value.kind === 'null') return html`<span class="nothing">null</span>`;
  return html`<span class="code record-text">${(value.text ?? '').slice(0, 300)}</span>${value.is_cut || (value.text ?? '').length > 300 ? '…' : ''}`;
}

/** @param {{topic: string, id: string}} props */
function OneRecord({ topic, id }) {
  const [partition, offset] = id.split(':').map(Number);
  const answer = useRoute('/api/message', { topic, partition, offset }, { isStill: true });
  const record = /** @type {{record: RecordRow|null}|null} */ (answer.data)?.record ?? null;
  useEffect(() => {
    const onKey = (/** @type {KeyboardEvent} */ event) => event.key === 'Escape' && setParams({ record: null });
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, []);
  return html`<aside class="drawer wide-drawer" aria-label="Record">
    <div class="dialog-head"><h2>${partition} : ${count(offset)}</h2><a class="icon button" href=${changed({ record: null })} aria-label="Close the record">×</a></div>
    ${!answer.data
      ? html`<${Waiting} ...${answer} />`
      : !record
        ? html`<p class="empty">There is no record at this offset: it was deleted, compacted, or is not written yet.</p>`
        : html`<p class="facts"><span>${record.time_ms === null ? 'no time' : `${day(record.time_ms)} ${clockMs(record.time_ms)}`} (${record.time_type})</span> <span>${bytes(record.size)}</span>
              <a href=${href('/partition', { topic, partition })}>partition</a></p>
            <${Whole} title="Key" value=${record.key} /><${Whole} title="Value" value=${record.value} />
            ${record.headers.map((each, index) => html`<${Whole} key=${`${each.name} ${index}`} title=${`Header ${each.name}`} value=${each.value} />`)}`}
  </aside>`;
}

/** @param {{title: string, value: Value|null}} props */
function Whole({ title, value }) {
  const text = value?.kind === 'json' ? pretty(value.text ?? '') : (value?.text ?? '');
  return html`<section><h3>${title} <small class="muted">${value ? `${value.kind}, ${bytes(value.size)}${value.is_cut ? ', cut' : ''}` : 'null'}</small></h3>
    ${value && value.kind !== 'null' && html`<pre class="record-whole" tabindex="0" role="region" aria-label=${title}>${text}</pre>`}</section>`;
}

/** @param {string} text */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
