// Light or dark: as the system, or as chosen here.
import { signal } from '@preact/signals';

const KEY = 'barnabas-theme';
const system = window.matchMedia('(prefers-color-scheme: dark)');

/** @returns {'light'|'dark'} */
function initial() {
  const chosen = window.localStorage.getItem(KEY);
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
    if (window.localStorage.getItem(KEY) === null) setTheme(system.matches ? 'dark' : 'light', false);
  });
}

/** @param {'light'|'dark'} value */
export function setTheme(value, isKept = true) {
  theme.value = value;
  if (isKept) window.localStorage.setItem(KEY, value);
  apply();
}

export function toggleTheme() {
  setTheme(theme.value === 'dark' ? 'light' : 'dark');
}

/** Returns a colour of the style sheet, for pictures. */
export function colour(/** @type {string} */ name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
