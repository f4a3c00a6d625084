// An address that no screen has.
import { html } from '../core/html.js';
import { href } from '../core/url.js';

export function NotFound() {
  return html`<div class="notice-box"><strong>This console has no such page.</strong>
    <p><a href=${href('/')}>Overview</a> · <a href=${href('/topics')}>Topics</a></p></div>`;
}
