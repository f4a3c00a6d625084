// An address that no screen has.
import { html } from '../core/html.js';
import { texts } from '../core/texts.js';
import { href } from '../core/url.js';

export function NotFound() {
  return html`<div class="notice-box"><strong>${texts.notFoundScreen.thisConsoleHasNoSuch}</strong>
    <p><a href=${href('/')}>${texts.words.overview}</a> · <a href=${href('/topics')}>${texts.words.topics}</a></p></div>`;
}
