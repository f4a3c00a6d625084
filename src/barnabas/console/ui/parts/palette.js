// The palette: a few letters lead to a topic, a group, a broker, a screen or an action.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { can, canAll, get, session } from '../core/api.js';
import { open } from '../core/keys.js';
import { toggleTheme } from '../core/theme.js';
import { texts } from '../core/texts.js';
import { atMs, go, href, setParams } from '../core/url.js';
import { Dialog } from './dialog.js';

/** @typedef {{kind: string, name: string, act: () => void}} Choice */

/** @returns {Choice[]} */
function fixed() {
  const paths = /** @type {const} */ ({ overview: '/', map: '/map', topics: '/topics', groups: '/groups', brokers: '/brokers', timeline: '/timeline', whatif: '/whatif', moves: '/moves', compare: '/compare', settings: '/settings' });
  const screens = Object.entries(paths).map(([name, to]) => ({
    kind: 'screen',
    name: texts.screens[/** @type {keyof typeof paths} */ (name)],
    act: () => go(href(to)),
  }));
  const actions = can('operator')
    ? [
        { kind: 'action', name: texts.words.newTopic, act: () => go(href('/topics', { do: 'create' })) },
        ...(canAll('operator') ? [{ kind: 'action', name: texts.words.electAllPreferredLeaders, act: () => go(href('/brokers', { do: 'elect' })) }] : []),
      ]
    : [];
  return [
    ...screens,
    ...actions,
    { kind: 'action', name: texts.palette.lightOrDark, act: toggleTheme },
    ...(atMs() === null ? [] : [{ kind: 'action', name: texts.words.backToThePresent, act: () => setParams({ at: null }) }]),
    ...(session.value?.lab ? [{ kind: 'action', name: texts.palette.labStopAndStartBrokers, act: () => (open.value = 'lab') }] : []),
    { kind: 'action', name: texts.words.keys, act: () => (open.value = 'keys') },
  ];
}

/** @param {any} item */
const nameOf = (item) => (typeof item === 'object' && item !== null ? String(item.topic ?? item.group ?? item.broker ?? item.name) : String(item));

export function Palette() {
  const [text, setText] = useState('');
  const [found, setFound] = useState(/** @type {Choice[]} */ ([]));
  const [picked, setPicked] = useState(0);
  const local = useMemo(fixed, []);

  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const { data } = await get('/api/search', { q: text.trim() }, { signal: abort.signal });
        const { topics = [], groups = [], brokers = [] } = /** @type {any} */ (data ?? {});
        setFound([
          ...topics.map((/** @type {any} */ each) => ({ kind: 'topic', name: nameOf(each), act: () => go(href('/topic', { name: nameOf(each) })) })),
          ...groups.map((/** @type {any} */ each) => ({ kind: 'group', name: nameOf(each), act: () => go(href('/group', { name: nameOf(each) })) })),
          ...brokers.map((/** @type {any} */ each) => ({ kind: 'broker', name: texts.words.brokerOf2(nameOf(each)), act: () => go(href('/broker', { id: nameOf(each) })) })),
        ]);
      } catch {
        if (!abort.signal.aborted) setFound([]);
      }
    }, 60);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);

  const needle = text.trim().toLowerCase();
  const choices = [...local.filter((each) => each.name.toLowerCase().includes(needle)), ...(needle ? found.filter((each) => each.name.toLowerCase().includes(needle)) : [])];
  const index = Math.min(picked, choices.length - 1);
  const close = () => (open.value = 'none');
  const take = (/** @type {Choice|undefined} */ choice) => {
    if (!choice) return;
    close();
    choice.act();
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'ArrowDown') setPicked(Math.min(choices.length - 1, index + 1));
    else if (event.key === 'ArrowUp') setPicked(Math.max(0, index - 1));
    else if (event.key === 'Enter') take(choices[index]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title=${texts.palette.goTo} kind="palette" onClose=${close}>
    <input type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-autocomplete="list" autofocus
      aria-activedescendant=${index >= 0 ? `palette-${index}` : undefined} aria-label=${texts.palette.topicGroupBrokerScreenOr}
      placeholder=${texts.palette.topicGroupBrokerScreenOr} value=${text} onKeyDown=${onKeyDown} spellcheck=${false}
      onInput=${(/** @type {any} */ event) => {
        setText(event.currentTarget.value);
        setPicked(0);
      }} />
    <ul id="palette-list" role="listbox" aria-label=${texts.palette.found}>${choices.map(
      (each, place) => html`<li key=${`${each.kind} ${each.name}`} id=${`palette-${place}`} role="option" aria-selected=${place === index}
        onMouseDown=${(/** @type {Event} */ event) => {
          event.preventDefault();
          take(each);
        }}><span class="palette-name">${each.name}</span><span class="palette-kind">${each.kind}</span></li>`,
    )}</ul>
    ${choices.length === 0 && html`<p class="empty">${texts.palette.nothingHasSuchAName}</p>`}
  <//>`;
}
