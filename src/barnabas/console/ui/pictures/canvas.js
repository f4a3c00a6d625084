// A canvas that is as sharp as the screen and draws again when its size, the theme or what it shows changes.
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { theme } from '../core/theme.js';

/**
 * Returns the size of an element in CSS pixels, and renders again when it changes. It is measured before the first paint,
 * so that a picture is in the frame in which its element appears.
 */
export function useSize(/** @type {{current: HTMLElement|null}} */ watched) {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const element = watched.current;
    if (!element) return undefined;
    const measure = () => {
      const { clientWidth: width, clientHeight: height } = element;
      setSize((old) => (old.width === width && old.height === height ? old : { width, height }));
    };
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  return size;
}

/**
 * @param {(context: CanvasRenderingContext2D, width: number, height: number, ratio: number) => void} draw
 * @param {unknown[]} inputs what the picture depends on
 */
export function useCanvas(draw, inputs) {
  const canvas = useRef(/** @type {HTMLCanvasElement|null} */ (null));
  const size = useSize(canvas);
  const shade = theme.value;

  useLayoutEffect(() => {
    const element = canvas.current;
    if (!element || !size.width || !size.height) return;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const [wide, high] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
    if (element.width !== wide || element.height !== high) {
      element.width = wide;
      element.height = high;
    }
    const context = element.getContext('2d');
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, size.width, size.height);
    draw(context, size.width, size.height, ratio);
  }, [size, shade, ...inputs]);

  return { canvas, size };
}

/** Returns about `wanted` round moments between two, and how they are written. */
export function timeTicks(/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ wanted) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800];
  const ideal = (to - from) / 1000 / Math.max(1, wanted);
  const step = (steps.find((each) => each >= ideal) ?? 604_800) * 1000;
  const shift = new Date(from).getTimezoneOffset() * 60_000;
  const found = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) found.push(at);
  return { ticks: found, isByDay: step >= 86_400_000, hasSeconds: step < 60_000 };
}
