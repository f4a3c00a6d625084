// The plan of moves that is open in this tab: proposed, taken from a question, or read from a file; not begun by itself.
import { signal } from '@preact/signals';
import { texts } from './texts.js';

const KEY = 'barnabas-plan';
const LINES_MAX = 50;
/** The word for a log directory that the broker chooses. */
const ANY = 'any';

/** @typedef {{topic: string, partition: number, replicas: number[], log_dirs?: string[], before?: number[], bytes?: number|null}} PlanRow */
/** @typedef {{rows: PlanRow[], source: string}} Plan */

/** @returns {Plan|null} */
function kept() {
  try {
    return JSON.parse(window.sessionStorage.getItem(KEY) ?? 'null');
  } catch {
    return null;
  }
}

export const plan = signal(kept());

/** @param {Plan|null} value */
export function setPlan(value) {
  plan.value = value;
  try {
    if (value === null) window.sessionStorage.removeItem(KEY);
    else window.sessionStorage.setItem(KEY, JSON.stringify(value));
  } catch {
    // Too large for the browser, or not allowed: it lasts until the page is closed.
  }
}

/**
 * Reads a plan in the form of Kafka's tools.
 * @param {string} text
 * @returns {PlanRow[]}
 */
export function parsePlan(text) {
  const found = JSON.parse(text);
  const rows = found?.partitions;
  if (!Array.isArray(rows) || rows.length === 0) throw new Error(texts.planCore.thereAreNoPartitionsIn);
  return rows.map((each) => {
    const isRight = typeof each?.topic === 'string' && Number.isInteger(each?.partition) && Array.isArray(each?.replicas);
    if (!isRight) throw new Error(texts.planCore.aPartitionHasATopic);
    const paths = each.log_dirs ?? each.replicas.map(() => ANY);
    const fits = Array.isArray(paths) && paths.length === each.replicas.length && paths.every((/** @type {any} */ path) => typeof path === 'string' && path !== '');
    if (!fits) throw new Error(texts.planCore.logDirsIsNotA(each.topic, each.partition));
    return { topic: each.topic, partition: each.partition, replicas: each.replicas.map(Number), log_dirs: paths };
  });
}

/** Returns a row as the server and Kafka's tools read it. @param {PlanRow} row */
export function planRow({ topic, partition, replicas, log_dirs }) {
  return { topic, partition, replicas, log_dirs: log_dirs ?? replicas.map(() => ANY) };
}

/** Returns the directories that a row names, with their brokers. @param {PlanRow} row @param {(path: string) => string} [shown] */
export function directoriesOf(row, shown = (path) => path) {
  return (row.log_dirs ?? []).flatMap((path, place) => (path === ANY ? [] : [texts.words.brokerOf(row.replicas[place], shown(path))]));
}

/** Returns the first lines of what a plan does, and how many more there are. @param {string[]} lines */
export function shortened(lines) {
  return lines.length <= LINES_MAX ? lines : [...lines.slice(0, LINES_MAX), texts.more(lines.length - LINES_MAX)];
}

/** @param {PlanRow[]} rows */
export function planText(rows) {
  return JSON.stringify({ version: 1, partitions: rows.map(planRow) }, null, 2);
}

/** Returns the address of a text as a file. @param {string} text */
export function asFile(text) {
  return `data:application/json,${encodeURIComponent(text)}`;
}
