// The dialogs that write records: a new one, and copies of many.
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { post } from '../core/api.js';
import { ActionDialog } from './action_dialog.js';

/** @type {[string, string][]} */
const FORMS = [['text', 'text'], ['json', texts.words.json], ['hex', texts.recordDialogs.hexadecimalBytes], ['null', 'null']];

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
  return html`<${ActionDialog} title=${texts.recordDialogs.writeARecordTo(topic)} verb=${texts.words.write} onClose=${onClose} onDone=${onDone}
    fields=${[
      { name: 'partition', title: texts.words.partition, type: 'number', hint: texts.recordDialogs.emptyByTheKeyAs },
      { name: 'keyForm', title: texts.recordDialogs.theKeyIs, choices: [FORMS[0], FORMS[2], FORMS[3]], value: 'text' },
      { name: 'key', title: texts.words.key },
      { name: 'valueForm', title: texts.recordDialogs.theValueIs, choices: FORMS, value: 'text' },
      { name: 'value', title: texts.words.value, rows: 5 },
      { name: 'headers', title: texts.recordDialogs.headers, rows: 2, hint: texts.recordDialogs.oneOnEachLineName },
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
  const question = [asked.filter && texts.recordDialogs.thatMatchOf(asked.filter), asked.q && texts.recordDialogs.thatContainOf(asked.q)].filter(Boolean).join(' and ');
  return html`<${ActionDialog} title=${texts.recordDialogs.copyRecordsOf(asked.topic)} verb=${texts.words.copy} onClose=${onClose}
    lead=${texts.recordDialogs.theRecordsWithTheirKeys(question || texts.recordDialogs.ofTheWholeTopic)}
    fields=${[
      { name: 'to', title: texts.words.intoTheTopic },
      { name: 'limit', title: texts.recordDialogs.atMost, type: 'number', value: 1000, hint: texts.recordDialogs.upToAtOnce },
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
