// The pictures of single cells of the replica map, drawn once and then copied: colour, hatch and letter for each state.
import { colour } from '../core/theme.js';
import { texts } from '../core/texts.js';

/** @typedef {'state'|'severity'|'leader'|'size'|'lag'} Fill */
/** @typedef {{name: string, fill: string, pattern?: 'slash'|'cross'|'dots', letter?: string, ink?: string, notch?: boolean}} Look */

export const STEPS = 8;

/** @param {Fill} fill @returns {Look[]} */
export function looks(fill) {
  const [dark, light] = [colour('ink-on-light'), colour('ink-on-dark')];
  if (fill === 'state') {
    return [
      { name: texts.words.inSyncLower, fill: colour('map-follower'), ink: dark },
      { name: 'leader', fill: colour('map-leader'), letter: 'L', ink: light, notch: true },
      { name: texts.words.outOfSyncLower, fill: colour('map-out'), pattern: 'slash', letter: 'o', ink: dark },
      { name: texts.words.brokerSilent, fill: colour('map-silent'), pattern: 'cross', letter: 's', ink: light },
      { name: texts.words.noLeaderLower, fill: colour('critical'), pattern: 'cross', letter: '×', ink: light },
    ];
  }
  if (fill === 'severity') {
    return [
      { name: texts.words.inSyncLower, fill: colour('map-follower'), ink: dark },
      { name: 'under-replicated', fill: colour('notice-area'), pattern: 'dots', letter: 'u', ink: dark },
      { name: texts.words.atMinIsr, fill: colour('warning-area'), pattern: 'slash', letter: 'm', ink: dark },
      { name: texts.words.underMinIsr, fill: colour('error-area'), pattern: 'slash', letter: 'e', ink: dark },
      { name: 'offline', fill: colour('critical'), pattern: 'cross', letter: '×', ink: light },
    ];
  }
  if (fill === 'leader') {
    return [
      { name: 'follower', fill: colour('map-follower'), ink: dark },
      { name: texts.stampsPicture.preferredLeader, fill: colour('map-leader'), letter: 'L', ink: light, notch: true },
      { name: texts.stampsPicture.leadsNotPreferred, fill: colour('map-out'), pattern: 'slash', letter: 'l', ink: dark, notch: true },
      { name: texts.stampsPicture.shouldLead, fill: colour('warning-area'), pattern: 'dots', letter: 'p', ink: dark },
      { name: texts.words.noLeaderLower, fill: colour('critical'), pattern: 'cross', letter: '×', ink: light },
    ];
  }
  const steps = Array.from({ length: STEPS }, (_, step) => ({
    name: step === 0 ? 'least' : step === STEPS - 1 ? 'most' : '',
    fill: colour(`scale-${step}`),
    letter: String(step),
    ink: step < STEPS / 2 ? dark : light,
  }));
  return [{ name: 'unknown', fill: colour('map-silent'), pattern: 'cross', letter: '?', ink: light }, ...steps];
}

/**
 * Returns the pixels of each look, whole and dimmed.
 * @param {Look[]} all
 * @param {number} size of a cell, in the screen's pixels
 */
export function stamps(all, size) {
  const canvas = document.createElement('canvas');
  canvas.width = size;
  canvas.height = size;
  const context = canvas.getContext('2d', { willReadFrequently: true });
  if (!context) return { plain: [], dim: [] };
  const one = (/** @type {Look} */ look, /** @type {number} */ alpha) => {
    context.globalAlpha = 1;
    context.fillStyle = colour('panel');
    context.fillRect(0, 0, size, size);
    context.globalAlpha = alpha;
    paint(context, look, size);
    return new Uint32Array(context.getImageData(0, 0, size, size).data.buffer);
  };
  return { plain: all.map((look) => one(look, 1)), dim: all.map((look) => one(look, 0.18)) };
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Look} look
 * @param {number} size
 */
export function paint(context, look, size) {
  const inner = size < 4 ? size : size - Math.max(1, Math.round(size / 14));
  context.fillStyle = look.fill;
  context.fillRect(0, 0, inner, inner);
  context.strokeStyle = look.ink ?? '#000';
  context.fillStyle = look.ink ?? '#000';
  context.save();
  context.beginPath();
  context.rect(0, 0, inner, inner);
  context.clip();
  if (look.pattern && inner >= 5) {
    const alpha = context.globalAlpha;
    context.globalAlpha = alpha * 0.6;
    hatch(context, look.pattern, inner);
    context.globalAlpha = alpha;
  }
  if (look.notch && inner >= 4) {
    const notch = Math.max(2, inner * 0.32);
    context.fillStyle = colour('panel');
    context.beginPath();
    context.moveTo(inner, 0);
    context.lineTo(inner - notch, 0);
    context.lineTo(inner, notch);
    context.fill();
  }
  context.restore();
  if (look.letter && inner >= 20) {
    context.font = `600 ${Math.round(inner * 0.58)}px system-ui, sans-serif`;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    if (look.pattern) {
      context.fillStyle = look.fill;
      context.beginPath();
      context.arc(inner / 2, inner / 2, inner * 0.34, 0, 7);
      context.fill();
    }
    context.fillStyle = look.ink ?? '#000';
    context.fillText(look.letter, inner / 2, inner * 0.54);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {'slash'|'cross'|'dots'} pattern
 * @param {number} size
 */
export function hatch(context, pattern, size) {
  context.lineWidth = Math.max(1, size / 14);
  const step = Math.max(5, size / (pattern === 'cross' ? 2 : 2.6));
  if (pattern === 'dots') {
    for (let x = step / 2; x < size; x += step) {
      for (let y = step / 2; y < size; y += step) context.fillRect(x - 1, y - 1, Math.max(1, size / 12), Math.max(1, size / 12));
    }
    return;
  }
  context.beginPath();
  for (let shift = -size; shift < size; shift += step) {
    context.moveTo(shift, size);
    context.lineTo(shift + size, 0);
    if (pattern === 'cross') {
      context.moveTo(shift, 0);
      context.lineTo(shift + size, size);
    }
  }
  context.stroke();
}
