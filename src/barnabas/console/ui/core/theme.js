// Light or dark: as the system, or as chosen here.
import { signal } from '@preact/signals';

const KEY = 'barnabas-theme';
const system = window.matchMedia('(prefers-color-scheme: dark)');

/** Returns the theme that was chosen here; null for none, and where the browser keeps nothing. */
function kept() {
  try {
    return window.localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** @returns {'light'|'dark'} */
function initial() {
  const chosen = kept();
  if (chosen === 'light' || chosen === 'dark') return chosen;
  return system.matches ? 'dark' : 'light';
}

/** The theme that is shown. Pictures draw themselves again when it changes. */
export const theme = signal(initial());

function apply() {
  document.documentElement.dataset.theme = theme.value;
}

export function startTheme() {
  apply();
  system.addEventListener('change', () => {
    if (kept() === null) setTheme(system.matches ? 'dark' : 'light', false);
  });
}

/** @param {'light'|'dark'} value */
export function setTheme(value, isKept = true) {
  theme.value = value;
  apply();
  try {
    if (isKept) window.localStorage.setItem(KEY, value);
  } catch {
    // It lasts until the page is closed.
  }
}

export function toggleTheme() {
  setTheme(theme.value === 'dark' ? 'light' : 'dark');
}

/** Returns a colour of the style sheet, for pictures. */
export function colour(/** @type {string} */ name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
