// The frame around every screen: the bar, the screens' names, warnings, the scrubber, and what opens over them.
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { html } from '../core/html.js';
import { incidentEnd, loadSession, session, shownCluster } from '../core/api.js';
import { open } from '../core/keys.js';
import { texts } from '../core/texts.js';
import { atMs, changed, go, href, place } from '../core/url.js';
import { moment } from '../core/format.js';
import { Bar } from './bar.js';
import { Warnings } from './warnings.js';
import { Scrubber } from './scrubber.js';
import { Palette } from './palette.js';
import { KeysDialog } from './keys_dialog.js';
import { LabDrawer } from './lab.js';
import { Toasts } from './toasts.js';
import { Overview } from '../screens/overview.js';
import { MapScreen } from '../screens/map.js';
import { Topics } from '../screens/topics.js';
import { TopicScreen } from '../screens/topic.js';
import { PartitionScreen } from '../screens/partition.js';
import { MessagesScreen } from '../screens/messages.js';
import { Groups, GroupScreen } from '../screens/groups.js';
import { Brokers } from '../screens/brokers.js';
import { BrokerScreen } from '../screens/broker.js';
import { TimelineScreen } from '../screens/timeline.js';
import { WhatIf } from '../screens/whatif.js';
import { Moves } from '../screens/moves.js';
import { Compare } from '../screens/compare.js';
import { Settings } from '../screens/settings.js';
import { Login } from '../screens/login.js';
import { NotFound } from '../screens/not_found.js';

/** Why the page has no session yet; empty while it is asked for. */
export const startProblem = signal('');

/** @typedef {keyof typeof texts.screens} ScreenName */
/** @type {Map<string, {name: ScreenName, view: any, nav?: ScreenName}>} */
const SCREENS = new Map([
  ['/', { name: 'overview', view: Overview }],
  ['/map', { name: 'map', view: MapScreen }],
  ['/topics', { name: 'topics', view: Topics }],
  ['/topic', { name: 'topic', view: TopicScreen, nav: 'topics' }],
  ['/partition', { name: 'partition', view: PartitionScreen, nav: 'topics' }],
  ['/messages', { name: 'messages', view: MessagesScreen, nav: 'topics' }],
  ['/groups', { name: 'groups', view: Groups }],
  ['/group', { name: 'group', view: GroupScreen, nav: 'groups' }],
  ['/brokers', { name: 'brokers', view: Brokers }],
  ['/broker', { name: 'broker', view: BrokerScreen, nav: 'brokers' }],
  ['/timeline', { name: 'timeline', view: TimelineScreen }],
  ['/whatif', { name: 'whatif', view: WhatIf }],
  ['/moves', { name: 'moves', view: Moves }],
  ['/compare', { name: 'compare', view: Compare, nav: 'timeline' }],
  ['/settings', { name: 'settings', view: Settings }],
]);
const NAV = /** @type {const} */ ([
  ['overview', '/'],
  ['map', '/map'],
  ['topics', '/topics'],
  ['groups', '/groups'],
  ['brokers', '/brokers'],
  ['timeline', '/timeline'],
  ['whatif', '/whatif'],
  ['moves', '/moves'],
  ['settings', '/settings'],
]);
/** The outlines of the screens' pictures, in a box of 16. @type {Record<string, string>} */
const PICTURES = {
  overview: 'M2 9.5 5 9.5 7 3.5 9.5 12.5 11.5 8 14 8',
  map: 'M2 2h3v12H2zM6.5 2h3v12h-3zM11 2h3v6h-3zM11 10h3v4h-3z',
  topics: 'M2 3.5h12M2 8h12M2 12.5h8',
  groups: 'M5.5 7a2.3 2.3 0 1 0 0-.1M1.5 13.5c.4-3 1.800-4 4-4s3.600 1 4 4M10.500 3.500a2.200 2.200 0 0 1 0 4.200M11.500 9.800c1.700.4 2.600 1.500 3 3.700',
  brokers: 'M2 3h12v4H2zM2 9h12v4H2zM4.500 5h.01M4.500 11h.01',
  timeline: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12M8 4.500V8l2.500 1.700',
  whatif: 'M5.500 5.500a2.500 2.500 0 1 1 3.500 2.300c-.8.4-1 .9-1 1.900M8 12.800h.01',
  moves: 'M2 5h9M8.500 2.500 11 5 8.500 7.500M14 11H5M7.500 8.500 5 11 7.500 13.500',
  settings: 'M2 4.500h7M12 4.500h2M10.500 3v3M2 11.500h2M7 11.500h7M5.500 10v3',
};

export function App() {
  const mine = session.value;
  const { path } = place.value;
  const screen = SCREENS.get(path);
  const heading = useRef(/** @type {HTMLElement|null} */ (null));
  const isFirst = useRef(true);
  const title = screen ? texts.screens[screen.name] : texts.app.notFound;
  const subject = subjectOf(place.value.params, path);

  useEffect(() => {
    document.title = `${subject ? `${subject} · ` : ''}${title} · ${texts.product}`;
  }, [title, subject]);
  useEffect(() => {
    if (!isFirst.current) heading.current?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [path]);

  // An incident has no present: its last moment is shown instead.
  const end = mine ? incidentEnd() : null;
  const isWithoutMoment = end !== null && atMs() === null;
  useEffect(() => {
    if (isWithoutMoment) go(changed({ at: end }), { replace: true });
  }, [isWithoutMoment, end]);

  // What the server offers is another thing for each cluster.
  const wanted = mine?.user ? shownCluster() : '';
  useEffect(() => {
    if (wanted && session.value?.cluster !== wanted) void loadSession().catch(() => {});
  }, [wanted]);

  if (!mine || isWithoutMoment) {
    const problem = startProblem.value;
    return html`<main class="start" aria-busy=${!problem}><p class="empty" role="status">${problem || `${texts.waiting.console} …`}</p>
      ${problem && problem !== texts.consoleSilent && html`<p><a href="/" target="_self">${texts.firstCluster}</a></p>`}</main>`;
  }
  if (mine.is_login_needed && !mine.user) return html`<${Login} />`;
  const isShort = path === '/map' || path === '/topics' || path === '/groups';
  return html`
    <a class="skip" href="#content" onClick=${(/** @type {MouseEvent} */ event) => {
      event.preventDefault();
      heading.current?.focus();
    }}>${texts.skip}</a>
    <${Bar} />
    <div class=${open.value === 'lab' ? 'frame with-drawer' : 'frame'}>
      <nav class="screens" aria-label=${texts.app.screens}>
        ${NAV.map(([name, to]) => {
          const isHere = (screen?.nav ?? screen?.name) === name;
          return html`<a key=${name} href=${href(to)} aria-current=${isHere ? 'page' : undefined}>
            <svg viewBox="0 0 16 16" aria-hidden="true"><path d=${PICTURES[name]} /></svg><span>${texts.screens[name]}</span></a>`;
        })}
      </nav>
      <main id="content" class=${isShort ? 'full' : ''}>
        <div class="title" ref=${heading} tabindex="-1">
          <h1>${subject ? html`<span class="kind">${title}</span> <span class="subject" title=${subject}>${subject}</span>` : title}</h1>
          <p class="question">${screen ? texts.questions[screen.name] : ''}</p>
        </div>
        <${Warnings} />
        ${screen ? html`<${screen.view} key=${path} />` : html`<${NotFound} />`}
      </main>
    </div>
    <${Scrubber} />
    ${open.value === 'palette' && html`<${Palette} />`}
    ${open.value === 'keys' && html`<${KeysDialog} />`}
    ${open.value === 'lab' && html`<${LabDrawer} />`}
    <${Toasts} />
    <p class="spoken" aria-live="polite">${atMs() === null ? '' : texts.past(moment(atMs()))}</p>
  `;
}

/** @param {URLSearchParams} params @param {string} path */
function subjectOf(params, path) {
  if (path === '/topic' || path === '/group') return params.get('name') ?? '';
  if (path === '/partition') return `${params.get('topic') ?? ''}-${params.get('partition') ?? ''}`;
  if (path === '/messages') return params.get('topic') ?? '';
  return path === '/broker' ? (params.get('id') ?? '') : '';
}
