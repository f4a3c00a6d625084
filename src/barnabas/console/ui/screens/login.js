// The log-in.
import { useState } from 'preact/hooks';
import { html } from '../core/html.js';
import { post, session } from '../core/api.js';
import { asApiError } from '../core/data.js';
import { texts } from '../core/texts.js';

export function Login() {
  const [problem, setProblem] = useState('');
  const [isBusy, setBusy] = useState(false);
  const onSubmit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    const fields = new FormData(form);
    setBusy(true);
    try {
      const answer = await post('/api/login', { user: fields.get('user'), password: fields.get('password') });
      session.value = answer;
    } catch (error) {
      const { message, retryS } = asApiError(error);
      setProblem(retryS ? texts.loginScreen.tryAgainInS(message, retryS) : message);
      form.querySelector('input')?.focus();
    }
    setBusy(false);
  };
  return html`<main class="login">
    <form onSubmit=${onSubmit}>
      <h1><img src="/icon.svg" alt="" width="28" height="28" /> ${texts.product}</h1>
      <label>${texts.words.user}<input name="user" autocomplete="username" autofocus required maxlength="200" /></label>
      <label>${texts.words.password}<input name="password" type="password" autocomplete="current-password" required maxlength="1000" /></label>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      <button class="primary" disabled=${isBusy}>${isBusy ? texts.loginScreen.loggingIn : texts.loginScreen.logIn}</button>
    </form>
  </main>`;
}
