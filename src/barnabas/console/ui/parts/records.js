// Records: as rows, and one of them as a whole.
import { useEffect, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { can, post } from '../core/api.js';
import { useRoute } from '../core/data.js';
import { changed, href, setParams } from '../core/url.js';
import { bytes, clockMs, count, day, plural } from '../core/format.js';
import { ActionDialog } from './action_dialog.js';
import { Waiting } from './state_of_answer.js';
/** @import { RecordRow, Value } from '../core/types.js' */

/** @param {{records: RecordRow[]}} props */
export function Records({ records }) {
  return html`<div class="table-box" role="region" tabindex="0" aria-label=${texts.words.records}><table class="records">
    <colgroup><col class="c-offset" /><col class="c-time" /><col class="c-key" /><col /></colgroup>
    <thead><tr><th scope="col">${texts.records.partitionAndOffset}</th><th scope="col">${texts.words.time}</th><th scope="col">${texts.words.key}</th><th scope="col">${texts.words.value}</th></tr></thead>
    <tbody>${records.map(
      (each) => html`<tr key=${`${each.partition} ${each.offset}`}>
        <th scope="row"><a class="name" href=${changed({ record: `${each.partition}:${each.offset}` })}>${each.partition} : ${count(each.offset)}</a></th>
        <td>${each.time_ms === null || each.time_ms < 0 ? '–' : html`${day(each.time_ms)} ${clockMs(each.time_ms)}`}</td>
        <td><${Short} value=${each.key} /></td>
        <td><${Short} value=${each.value} />${each.headers.length > 0 && html` <span class="chip plain">${plural(each.headers.length + (each.headers_left ?? 0), texts.nouns.header)}</span>`}</td></tr>`,
    )}</tbody></table></div>`;
}

/** @param {{value: Value|null}} props */
function Short({ value }) {
  if (!value || value.kind === 'null') return html`<span class="nothing">${texts.records.null}</span>`;
  return html`<span class="code record-text">${(value.text ?? '').slice(0, 300)}</span>${value.is_cut || (value.text ?? '').length > 300 ? '…' : ''}${
    value.schema?.name && html` <span class="chip plain" title=${texts.records.schemaOf(value.schema.id)}>${value.schema.name}</span>`
  }${value.is_masked && html` <span class="chip plain" title=${texts.records.fieldsOfThisTopicAre}>${texts.records.masked}</span>`}${
    value.problem && html` <span class="chip plain" title=${value.problem}>${texts.records.notDecoded}</span>`
  }`;
}

/** @param {{topic: string, id: string}} props */
export function OneRecord({ topic, id }) {
  const [partition, offset] = id.split(':').map(Number);
  const answer = useRoute('/api/message', { topic, partition, offset }, { isStill: true });
  const record = /** @type {{record: RecordRow|null}|null} */ (answer.data)?.record ?? null;
  const [isAgain, setAgain] = useState(false);
  useEffect(() => {
    const onKey = (/** @type {KeyboardEvent} */ event) => event.key === 'Escape' && !document.querySelector('dialog[open]') && setParams({ record: null });
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, []);
  return html`<aside class="drawer wide-drawer" aria-label=${texts.records.record}>
    <div class="dialog-head"><h2>${partition} : ${count(offset)}</h2><a class="icon button" href=${changed({ record: null })} aria-label=${texts.records.closeTheRecord}>×</a></div>
    ${!answer.data
      ? html`<${Waiting} ...${answer} />`
      : !record
        ? html`<p class="empty">${texts.records.thereIsNoRecordAt}</p>`
        : html`<p class="facts"><span>${record.time_ms === null ? texts.records.noTime : `${day(record.time_ms)} ${clockMs(record.time_ms)}`} (${record.time_type})</span> <span>${bytes(record.size)}</span>
              <a href=${href('/partition', { topic, partition })}>${texts.words.partitionLower}</a>
              ${can('operator') && html`<button class="small" onClick=${() => setAgain(true)}>${texts.records.writeAgain}</button>`}</p>
            ${isAgain && html`<${ActionDialog} title=${texts.records.writeThisRecordAgain} verb=${texts.words.write} onClose=${() => setAgain(false)}
              lead=${texts.records.aNewRecordWithThe}
              fields=${[{ name: 'to', title: texts.words.intoTheTopic, value: topic }]}
              act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) => post('/api/actions/produce-again', { topic, partition, offset, to: values.to, dry_run: isDry })} />`}
            <${Whole} title=${texts.words.key} value=${record.key} /><${Whole} title=${texts.words.value} value=${record.value} />
            ${record.headers.map((each, index) => html`<${Whole} key=${`${each.name} ${index}`} title=${texts.records.headerOf(each.name)} value=${each.value} />`)}
            ${(record.headers_left ?? 0) > 0 && html`<p class="hint">${texts.records.headersLeft(plural(record.headers_left ?? 0, texts.nouns.header))}</p>`}`}
  </aside>`;
}

/** @param {{title: string, value: Value|null}} props */
function Whole({ title, value }) {
  const text = value && JSON_KINDS.includes(value.kind) ? pretty(value.text ?? '') : (value?.text ?? '');
  const schema = value?.schema ? texts.records.schemaOf2(value.schema.id, value.schema.name ? ` ${value.schema.name}` : '') : '';
  return html`<section><h3>${title} <small class="muted">${value ? `${value.kind}${schema}, ${bytes(value.size)}${value.is_cut ? texts.records.cut : ''}${value.is_masked ? texts.records.masked2 : ''}` : 'null'}</small></h3>
    ${value?.problem && html`<p class="hint bad">${value.problem}</p>`}
    ${value && value.kind !== 'null' && html`<pre class="record-whole" tabindex="0" role="region" aria-label=${title}>${text}</pre>`}</section>`;
}

/** The kinds whose text is JSON. */
const JSON_KINDS = ['json', 'avro', 'protobuf', 'json-schema'];

/** @param {string} text */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
