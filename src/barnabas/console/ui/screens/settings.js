// Settings: what this console is, and who changed what with it.
import { html } from '../core/html.js';
import { has, session } from '../core/api.js';
import { useStatus } from '../core/data.js';
import { atMs, setParams } from '../core/url.js';
import { texts } from '../core/texts.js';
import { moment } from '../core/format.js';
import { setTheme, theme } from '../core/theme.js';
import { ClusterDefaults } from '../parts/configs.js';
import { AuditLog } from '../parts/audit.js';
import { Acls, Quotas, ScramUsers } from '../parts/rights.js';

export function Settings() {
  const mine = session.value;
  const at = atMs();
  useStatus('settings');
  const history = mine?.history;
  return html`
    <div class="columns">
      <section class="panel" aria-label="This console"><h2>This console</h2>
        <dl class="facts-list">
          <div><dt>Version</dt><dd>${mine?.version ?? '?'}</dd></div>
          <div><dt>User</dt><dd>${mine?.user ?? 'nobody'} (${mine?.role ?? 'no role'})</dd></div>
          <div><dt>Changes</dt><dd>${mine?.read_only ? 'off: the console is read-only' : 'on, as the role allows'}</dd></div>
          <div><dt>History</dt><dd>${history ? `since ${moment(history.first_ms)}` : 'not recorded'}</dd></div>
          <div><dt>Clusters</dt><dd>${mine?.clusters.map((each) => each.name).join(', ')}</dd></div>
        </dl></section>
      <section class="panel" aria-label="This browser"><h2>This browser</h2>
        <div class="choices" role="group" aria-label="Theme">
          <button class="choice" aria-pressed=${theme.value === 'light'} onClick=${() => setTheme('light')}>Light</button>
          <button class="choice" aria-pressed=${theme.value === 'dark'} onClick=${() => setTheme('dark')}>Dark</button></div>
        ${at !== null && html`<p><button onClick=${() => setParams({ at: null })}>${texts.backToLive}</button></p>`}</section>
    </div>
    ${at === null && html`<${ClusterDefaults} />`}
    ${has('operator') && !mine?.is_restricted && at === null && html`<${Acls} /><${ScramUsers} /><${Quotas} />`}
    <${AuditLog} />`;
}
