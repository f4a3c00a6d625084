// The start of the page.
import { render } from 'preact';
import { html } from './core/html.js';
import { loadSession, takeSession } from './core/api.js';
import { asApiError } from './core/data.js';
import { startKeys } from './core/keys.js';
import { startRouter } from './core/url.js';
import { startTheme } from './core/theme.js';
import { App, startProblem } from './parts/app.js';

const RETRY_MS = 1000;

async function loadUntilThere() {
  try {
    await loadSession();
    startProblem.value = '';
  } catch (error) {
    const { code, message } = asApiError(error);
    startProblem.value = message;
    // It does not become another answer by asking again.
    if (code !== 'unknown-cluster') setTimeout(loadUntilThere, RETRY_MS);
  }
}

startTheme();
startRouter();
startKeys();
if (!takeSession()) void loadUntilThere();
const page = document.getElementById('page');
if (page) {
  page.replaceChildren();
  render(html`<${App} />`, page);
}
