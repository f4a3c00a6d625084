// The plan of moves that is open in this tab: proposed, taken from a question, or read from a file; not begun by itself.
import { signal } from '@preact/signals';

const KEY = 'barnabas-plan';

/** @typedef {{topic: string, partition: number, replicas: number[], before?: number[], bytes?: number|null}} PlanRow */
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
  if (value === null) window.sessionStorage.removeItem(KEY);
  else window.sessionStorage.setItem(KEY, JSON.stringify(value));
}

/**
 * Reads a plan in the form of Kafka's tools.
 * @param {string} text
 * @returns {PlanRow[]}
 */
export function parsePlan(text) {
  const found = JSON.parse(text);
  const rows = found?.partitions;
  if (!Array.isArray(rows) || rows.length === 0) throw new Error('There are no partitions in it.');
  return rows.map((each) => {
    const isRight = typeof each?.topic === 'string' && Number.isInteger(each?.partition) && Array.isArray(each?.replicas);
    if (!isRight) throw new Error('A partition has a topic, a number and replicas.');
    return { topic: each.topic, partition: each.partition, replicas: each.replicas.map(Number) };
  });
}

/** @param {PlanRow[]} rows */
export function planText(rows) {
  const partitions = rows.map(({ topic, partition, replicas }) => ({ topic, partition, replicas, log_dirs: replicas.map(() => 'any') }));
  return JSON.stringify({ version: 1, partitions }, null, 2);
}

/** Returns the address of a text as a file. @param {string} text */
export function asFile(text) {
  return `data:application/json,${encodeURIComponent(text)}`;
}
