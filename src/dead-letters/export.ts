/**
 * export — a dead letter with its body as one object, for lines of JSON that other tools read; and
 * the address of its broker, as a header of a kept copy.
 *
 * The keys are always the same and in the same order; what is unknown is null. Exactly one of
 * `json`, `text` and `base64` holds the body: JSON only where it comes back as it was said to be,
 * text only where it is valid UTF-8 without control characters but white space.
 */

import type { Letter, OpenLetter, KeptCopy } from '../ports/dead-letters.ts';
import { BROKER_HEADER } from '../core/reserved-headers.ts';
import type { ReplaySource } from '../spool/operator/replays.ts';

/** The body, in the plainest form that loses nothing. */
type ExportedBody =
  | { readonly json: unknown }
  | { readonly text: string }
  | { readonly base64: string };

/** A letter as it is exported. */
type ExportedLetter = Readonly<Record<string, unknown>> & ExportedBody;

// oxlint-disable-next-line no-control-regex -- control characters are exactly what is looked for.
const BINARY = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/;

/** The letter without its body, under its stable keys. */
export function letterObject(letter: Letter): Record<string, unknown> {
  const { home } = letter;
  return {
    id: letter.id,
    kind: letter.kind,
    place: letter.place,
    topic: letter.topic,
    origin: letter.origin,
    code: letter.code,
    reason: letter.reason,
    group: letter.group,
    deaths: letter.deaths,
    attempts: letter.attempts,
    replays: letter.replays,
    replayedBy: letter.replayedBy ?? null,
    enqueuedAt: letter.enqueuedAt ?? null,
    diedAt: letter.diedAt ?? null,
    home: home === undefined ? null : { ...home },
    key: letter.key,
    size: letter.size,
    contentType: letter.contentType ?? null,
    headers: letter.headers,
  };
}

/** The letter and its body as one object. */
export async function exportLetter(
  open: OpenLetter,
  more: Readonly<Record<string, unknown>> = {},
): Promise<ExportedLetter> {
  const { letter } = open;
  const bytes = await open.body();
  return { ...letterObject(letter), ...more, ...bodyObject(bytes, letter.contentType) };
}

/** The body in the plainest form that loses nothing. */
export function bodyObject(bytes: Uint8Array, contentType?: string): ExportedBody {
  const text = textOfBytes(bytes);
  if (text === undefined) return { base64: Buffer.from(bytes).toString('base64') };
  const json = isJson(contentType) ? jsonOf(text) : undefined;
  return json === undefined ? { text } : { json };
}

function isJson(contentType: string | undefined): boolean {
  return contentType === undefined || /[/+]json\b/i.test(contentType);
}

/**
 * What the text says, where it comes back from it. Numbers beyond what JavaScript can hold, a key
 * that is there twice or a text of digits alone do not: those stay the text they were.
 */
function jsonOf(text: string): unknown {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    const isSame = compact(JSON.stringify(value)) === compact(text);
    return isSame ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Without any white space, so that two texts can be compared. */
function compact(text: string): string {
  return text.replaceAll(/\s+/g, '');
}

function textOfBytes(bytes: Uint8Array): string | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    return BINARY.test(text) ? undefined : text;
  } catch {
    return undefined;
  }
}

/** The copy with the address of its broker, which has neither user nor password in it. */
export function withBrokerHeader(copy: KeptCopy, source: ReplaySource): KeptCopy {
  if (source.kind === 'spool') return copy;
  return { ...copy, headers: { ...copy.headers, [BROKER_HEADER]: source.broker } };
}
