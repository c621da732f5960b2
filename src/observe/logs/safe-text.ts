/**
 * safe-text — untrusted text made fit for a terminal. Every string from a message, a store, a
 * service or an error passes through here before it is printed.
 *
 * Promise: the result holds no control character (but tab and line feed, where asked for), no
 * escape sequence, nothing that turns the direction of writing or cannot be seen, and no half of a
 * surrogate pair.
 */

/** How `safe` treats lines. */
export interface SafeOptions {
  /** Keeps line feeds and tabs; otherwise they become spaces. */
  readonly multiline?: boolean;
}

/* oxlint-disable no-control-regex -- control characters are exactly what is taken out here. */

// Strings of a terminal (OSC, DCS, SOS, PM, APC) up to their end. One that has no end loses only
// its beginning: what follows would be swallowed by a terminal, and must stay visible here. Each
// stops at the next ESC, so that many unended ones cost no more than their length.
const STRING_BEGIN = /(?:\u001b[\]PX^_]|[\u009d\u0090\u0098\u009e\u009f])/;
const STRING_END = /[^\u001b\u0007\u009c]*(?:\u0007|\u001b\\|\u009c)/;
// CSI with its parameters and final byte, in seven and in eight bits.
const CSI = /(?:\u001b\[|\u009b)[\u0030-\u003f]*[\u0020-\u002f]*[\u0040-\u007e]/;
// Any other escape: ESC, bytes in between, a final byte; `ESC c` resets the whole terminal.
const ESCAPE = /\u001b[\u0020-\u002f]*[\u0030-\u007e]/;
// All in one pass: what is taken out must not let its neighbours become a new sequence.
const SEQUENCES = new RegExp(
  `${STRING_BEGIN.source}${STRING_END.source}|${CSI.source}|${ESCAPE.source}`,
  'g',
);
const LINE_ENDS = /\r\n|[\u0085\u2028\u2029]/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
// Direction marks and invisible characters: two texts that look the same must be the same.
const UNSEEN_CHARS =
  '\\u00ad\\u061c\\u180e\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb';
const UNSEEN = new RegExp(`[${UNSEEN_CHARS}\\u{e0000}-\\u{e0fff}]`, 'gu');
const BLANKS = /[\t\n]+/g;
const SUSPECT = new RegExp(
  `[\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029\\ud800-\\udfff${UNSEEN_CHARS}]`,
);
const JSON_CONTROLS = /[\u007f-\u009f\u2028\u2029]/g;

/* oxlint-enable no-control-regex */

/**
 * The text without anything a terminal would obey. Types are only promised: what a service sent
 * instead of a text is shown as a number, or as `?`.
 */
export function safe(text: string, { multiline = false }: SafeOptions = {}): string {
  if (typeof text !== 'string') return numberText(text);
  if (!SUSPECT.test(text)) return text;
  const plain = text
    .toWellFormed()
    .replaceAll(SEQUENCES, '')
    .replaceAll(LINE_ENDS, '\n')
    .replaceAll(CONTROLS, '')
    .replaceAll(UNSEEN, '');
  return multiline ? plain : plain.replaceAll(BLANKS, ' ');
}

/** A number as text; `?` for anything else, as a service may send anything. */
export function numberText(value: unknown): string {
  return typeof value === 'number' ? String(value) : '?';
}

/** A value as one line of JSON in which what a terminal obeys or hides is written as `\u…`. */
export function jsonLine(value: unknown): string {
  return (JSON.stringify(value) ?? 'null')
    .replaceAll(JSON_CONTROLS, escaped)
    .replaceAll(UNSEEN, escaped);
}

/** Each half of a pair on its own, as JSON writes it. */
function escaped(char: string): string {
  return char
    .split('')
    .map((half) => `\\u${half.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');
}

// One `name=value` of a line for people: its end is plain to see.

/** A name and what it is; undefined is left out. */
export type Field = readonly [name: string, value: string | number | undefined];

/** ` name=value`, in quotes where the value has blanks or quotes, or is empty. */
export function fieldText([name, value]: Field): string {
  if (value === undefined) return '';
  const text = typeof value === 'number' ? String(value) : safe(value);
  // A reason is always in quotes.
  const isBare = name !== 'reason' && text !== '' && !/[\s"=]/.test(text);
  return ` ${safe(name)}=${isBare ? text : JSON.stringify(text)}`;
}
