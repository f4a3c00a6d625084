// The dialogs that write records: a new one, and copies of many.
import { html } from '../core/html.js';
import { post } from '../core/api.js';
import { ActionDialog } from './action_dialog.js';

/** @type {[string, string][]} */
const FORMS = [['text', 'text'], ['json', 'JSON'], ['hex', 'hexadecimal bytes'], ['null', 'null']];

/** @param {string} kind @param {string} text */
function content(kind, text) {
  return kind === 'null' ? null : { [kind]: text };
}

/** @param {string} text one header on each line, name: value */
function headers(text) {
  return text
    .split('\n')
    .filter((line) => line.trim())
    .map((line) => ({ name: (line.split(':')[0] ?? '').trim(), value: line.includes(':') ? { text: line.slice(line.indexOf(':') + 1).trim() } : null }));
}

/** @param {{topic: string, onClose: () => void, onDone: () => void}} props */
export function WriteRecord({ topic, onClose, onDone }) {
  return html`<${ActionDialog} title=${`Write a record to ${topic}`} verb="Write" onClose=${onClose} onDone=${onDone}
    fields=${[
      { name: 'partition', title: 'Partition', type: 'number', hint: 'Empty: by the key, as clients choose it' },
      { name: 'keyForm', title: 'The key is', choices: [FORMS[0], FORMS[2], FORMS[3]], value: 'text' },
      { name: 'key', title: 'Key' },
      { name: 'valueForm', title: 'The value is', choices: FORMS, value: 'text' },
      { name: 'value', title: 'Value', rows: 5 },
      { name: 'headers', title: 'Headers', rows: 2, hint: 'One on each line, name: value' },
    ]}
    act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) =>
      post('/api/actions/produce', {
        topic,
        partition: values.partition === '' ? null : Number(values.partition),
        key: values.key === '' && values.keyForm === 'text' ? null : content(values.keyForm, values.key),
        value: content(values.valueForm, values.value),
        headers: headers(values.headers),
        dry_run: isDry,
      })} />`;
}

/** @param {{asked: Record<string, string|null>, onClose: () => void}} props */
export function CopyRecords({ asked, onClose }) {
  const question = [asked.filter && `that match ${asked.filter}`, asked.q && `that contain “${asked.q}”`].filter(Boolean).join(' and ');
  return html`<${ActionDialog} title=${`Copy records of ${asked.topic}`} verb="Copy" onClose=${onClose}
    lead=${`The records ${question || 'of the whole topic'}, with their keys, values, headers and times.`}
    fields=${[
      { name: 'to', title: 'Into the topic' },
      { name: 'limit', title: 'At most', type: 'number', value: 1000, hint: 'Up to 10,000 at once' },
    ]}
    act=${(/** @type {any} */ values, /** @type {boolean} */ isDry) =>
      post('/api/actions/copy-records', {
        topic: asked.topic,
        to: values.to,
        partitions: (asked.partition ?? '').split(',').filter(Boolean).map(Number),
        from: asked.from,
        value: Number(asked.value ?? 0),
        limit: Number(values.limit),
        filter: asked.filter ?? '',
        q: asked.q ?? '',
        dry_run: isDry,
      })} />`;
}
