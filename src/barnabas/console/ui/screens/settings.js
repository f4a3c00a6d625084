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
      <section class="panel" aria-label=${texts.settingsScreen.thisConsole}><h2>${texts.settingsScreen.thisConsole}</h2>
        <dl class="facts-list">
          <div><dt>${texts.settingsScreen.version}</dt><dd>${mine?.version ?? '?'}</dd></div>
          <div><dt>${texts.words.user}</dt><dd>${mine?.user ?? 'nobody'} (${mine?.role ?? texts.settingsScreen.noRole})</dd></div>
          <div><dt>${texts.settingsScreen.changes}</dt><dd>${mine?.read_only ? texts.settingsScreen.offTheConsoleIsRead : texts.settingsScreen.onAsTheRoleAllows}</dd></div>
          <div><dt>${texts.words.history}</dt><dd>${history ? texts.settingsScreen.sinceOf(moment(history.first_ms)) : texts.settingsScreen.notRecorded}</dd></div>
          <div><dt>${texts.settingsScreen.clusters}</dt><dd>${mine?.clusters.map((each) => each.name).join(', ')}</dd></div>
        </dl></section>
      <section class="panel" aria-label=${texts.settingsScreen.thisBrowser}><h2>${texts.settingsScreen.thisBrowser}</h2>
        <div class="choices" role="group" aria-label=${texts.settingsScreen.theme}>
          <button class="choice" aria-pressed=${theme.value === 'light'} onClick=${() => setTheme('light')}>${texts.settingsScreen.light}</button>
          <button class="choice" aria-pressed=${theme.value === 'dark'} onClick=${() => setTheme('dark')}>${texts.settingsScreen.dark}</button></div>
        ${at !== null && html`<p><button onClick=${() => setParams({ at: null })}>${texts.backToLive}</button></p>`}</section>
    </div>
    ${at === null && html`<${ClusterDefaults} />`}
    ${has('operator') && !mine?.is_restricted && at === null && html`<${Acls} /><${ScramUsers} /><${Quotas} />`}
    <${AuditLog} />`;
}
