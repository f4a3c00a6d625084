// Template literals as Preact nodes. htm parses them once; nothing is evaluated and no HTML is set from a string.
import { h } from 'preact';
import htm from 'htm';

export const html = htm.bind(h);
