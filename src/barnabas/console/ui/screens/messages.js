// Messages: what is in it?
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { address, can, get } from '../core/api.js';
import { asApiError, useRoute, useStatus } from '../core/data.js';
import { atMs, changed, param, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { bytes, count, moment, plural, timeOf } from '../core/format.js';
import { CopyRecords, WriteRecord } from '../parts/record_dialogs.js';
import { OneRecord, Records } from '../parts/records.js';
import { Tail } from '../parts/tail.js';
import { Waiting } from '../parts/state_of_answer.js';
/** @import { Messages, RecordRow } from '../core/types.js' */

const FROM = /** @type {const} */ ([
  ['end', texts.words.theLastLower],
  ['start', texts.messagesScreen.theFirst],
  ['offset', texts.messagesScreen.fromAnOffset],
  ['time', texts.messagesScreen.fromATime],
]);
const LIMITS = ['20', '50', '200', '500'];
const FORMS = ['auto', 'text', 'json', 'hex'];

/** The records in one file. */
const FILE_LIMIT = 10000;

export function MessagesScreen() {
  const topic = param('topic') ?? '';
  const isLive = param('live') === '1' && atMs() === null;
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
  useStatus('messages');
  if (isLive) {
    return html`<${Form} asked=${asked} error=${null} onAgain=${() => {}} isLive />
      <${Tail} params=${{ topic, partition: asked.partition, q: asked.q, filter: asked.filter, key: asked.key, body: asked.body }} />
      ${param('record') !== null && html`<${OneRecord} topic=${topic} id=${param('record')} />`}`;
  }
  return html`<${Found} topic=${topic} asked=${asked} />`;
}

/** @typedef {Messages['searched']} Searched */
const NO_MORE = {
  key: '',
  records: /** @type {RecordRow[]} */ ([]),
  last: /** @type {Messages|null} */ (null),
  searched: /** @type {Searched} */ ({ records: 0, bytes: 0, skipped: 0, left: 0, ms: 0, filter_failures: 0 }),
};

/** Returns what two searches have read, the second of which went on where the first one ended. @param {Searched} one @param {Searched} next @returns {Searched} */
function summed(one, next) {
  return {
    records: one.records + next.records,
    bytes: one.bytes + next.bytes,
    skipped: one.skipped + next.skipped,
    ms: one.ms + next.ms,
    filter_failures: one.filter_failures + next.filter_failures,
    left: next.left,
  };
}

/** @param {{topic: string, asked: Record<string, string|null>}} props */
function Found({ topic, asked }) {
  const answer = useRoute('/api/messages', asked, { isStill: true });
  const data = /** @type {Messages|null} */ (answer.data);
  const [more, setMore] = useState(NO_MORE);
  const [problem, setProblem] = useState('');
  const key = JSON.stringify(asked);
  const isMore = more.key === key;
  const records = [...(data?.records ?? []), ...(isMore ? more.records : [])];
  const open = param('record');
  const last = isMore ? more.last : data;
  const searched = isMore ? more.searched : data?.searched;
  const isBack = Boolean(last?.before);
  const places = Object.entries(last?.before ?? last?.next ?? {});
  const loadMore = async () => {
    const value = places.map(([partition, offset]) => `${partition}:${offset}`).join(',');
    try {
      const found = /** @type {Messages|null} */ ((await get('/api/messages', { ...asked, from: isBack ? 'before' : 'next', value })).data);
      if (found && searched) {
        setMore({ key, records: [...(isMore ? more.records : []), ...found.records], last: found, searched: summed(searched, found.searched) });
      }
      setProblem('');
    } catch (error) {
      setProblem(asApiError(error).message);
    }
  };
  const again = () => {
    setMore(NO_MORE);
    answer.reload();
  };
  return html`
    <${Form} asked=${asked} error=${answer.error} onAgain=${again} />
    ${!data || !searched
      ? answer.error?.code === 'filter' ? null : html`<${Waiting} ...${answer} doing=${texts.messages.searching} />`
      : html`<p class="facts" role="status">${texts.messagesScreen.found(plural(records.length, texts.nouns.record), count(searched.records), bytes(searched.bytes), count(searched.ms))}${
            searched.skipped ? texts.messagesScreen.skippedOf(count(searched.skipped)) : ''
          }${last?.is_complete ? '' : `; ${texts.messages.stopped(last?.stopped ?? '', count(searched.left))}`}.</p>
          ${last?.filter_failure && html`<p class="warning">${texts.messagesScreen.theFilterFailedFor} ${plural(searched.filter_failures, texts.nouns.record)}: ${last.filter_failure}</p>`}
          ${last?.problems.map((each) => html`<p key=${each.partition} class="warning">${texts.words.partition} ${each.partition}: ${each.text}</p>`)}
          ${records.length === 0 ? html`<p class="empty">${texts.empty.messages}</p>` : html`<${Records} records=${records} />`}
          ${problem && html`<p class="problem" role="alert">${problem}</p>`}
          ${places.length > 0 && html`<p><button onClick=${loadMore}>${isBack ? texts.messagesScreen.earlierRecords : texts.messagesScreen.laterRecords}</button></p>`}`}
    ${open !== null && html`<${OneRecord} topic=${topic} id=${open} />`}`;
}

/** @param {{asked: Record<string, string|null>, error: any, onAgain: () => void, isLive?: boolean}} props */
function Form({ asked, error, onAgain, isLive = false }) {
  const [shown, setShown] = useState('');
  const close = () => setShown('');
  // What is typed stays while an answer comes, and ends with another address.
  const key = JSON.stringify(asked);
  const [draft, setDraft] = useState({ key, fields: /** @type {Record<string, string>} */ ({}) });
  const typed = draft.key === key ? draft.fields : {};
  const [problem, setProblem] = useState('');
  const isTime = (typed['from'] ?? asked['from']) === 'time';
  const at = asked['from'] === 'time' && asked['value'] ? moment(Number(asked['value'])) : asked['value'];
  const onInput = (/** @type {Event} */ event) => {
    const { name, value } = /** @type {HTMLInputElement} */ (event.target);
    setDraft({ key, fields: { ...typed, [name]: value } });
    setProblem('');
  };
  const onSubmit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const fields = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    const text = (/** @type {string} */ name) => String(fields.get(name) ?? '').trim();
    let value = text('value');
    if (text('from') === 'time') {
      // A text that was not changed names the same moment, with its milliseconds.
      const found = value === at ? Number(asked['value']) : timeOf(value);
      if (found === null) {
        setProblem(texts.messages.noTime(value));
        return;
      }
      value = String(found);
    }
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
  return html`<form class="tools" aria-label=${texts.messagesScreen.search} onSubmit=${onSubmit} onInput=${onInput}>
    <label>${texts.words.readLower} <select name="from" value=${typed['from'] ?? asked['from']}>${FROM.map(([value, title]) => html`<option key=${value} value=${value}>${title}</option>`)}</select></label>
    <label>${texts.words.atLower} <input name="value" class="short" value=${typed['value'] ?? at ?? ''} placeholder=${isTime ? texts.messages.time : texts.messages.offset} title=${texts.timeHint} spellcheck=${false} /></label>
    <label>${texts.words.partitionLower} <input name="partition" class="short" value=${typed['partition'] ?? asked['partition'] ?? ''} placeholder=${texts.messagesScreen.all} inputmode="numeric" /></label>
    <label>${texts.messagesScreen.atMost} <select name="limit" value=${typed['limit'] ?? asked['limit']}>${LIMITS.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
    <label>${texts.messagesScreen.as} <select name="body" value=${typed['body'] ?? asked['body'] ?? 'auto'}>${FORMS.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
    <label>${texts.messagesScreen.contains} <input name="q" class="short" value=${typed['q'] ?? asked['q'] ?? ''} spellcheck=${false} /></label>
    <label class="grow">${texts.messagesScreen.filter} <input name="filter" class="filter code" value=${typed['filter'] ?? asked['filter'] ?? ''} placeholder=${texts.messagesScreen.celSuchAsValueAmount} spellcheck=${false} aria-invalid=${error?.code === 'filter'} /></label>
    <button class="primary">${texts.messagesScreen.read2}</button>
    <a class="button" href=${changed({ live: isLive ? null : '1', record: null })}>${isLive ? texts.messagesScreen.endTheLiveTail : texts.messagesScreen.liveTail}</a>
    <a class="button" href=${address('/api/messages', { ...asked, limit: FILE_LIMIT, format: 'jsonl' })} download title=${texts.messagesScreen.theFirstRecordsThatMatch(count(FILE_LIMIT))}>${texts.messagesScreen.jsonl}</a>
    <a class="button" href=${address('/api/messages', { ...asked, limit: FILE_LIMIT, format: 'csv' })} download title=${texts.messagesScreen.theFirstRecordsThatMatch(count(FILE_LIMIT))}>${texts.words.csv}</a>
    ${can('operator') && html`<button type="button" onClick=${() => setShown('write')}>${texts.messagesScreen.writeARecord}</button><button type="button" onClick=${() => setShown('copy')}>${texts.words.copy}</button>`}
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${error?.code === 'filter' && html`<p class="problem" role="alert">${error.message}${error.where ? texts.messagesScreen.lineColumnOf(error.where[0], error.where[1]) : ''}</p>`}
  </form>
  ${shown === 'write' && html`<${WriteRecord} topic=${asked.topic ?? ''} onClose=${close} onDone=${onAgain} />`}
  ${shown === 'copy' && html`<${CopyRecords} asked=${asked} onClose=${close} />`}`;
}
