/**
 * transform — a user's file that repairs letters on their way, and a rehearsal of it:
 *
 *   export default (letter, { json }) => ({ json: { ...json(), country: 'CH' } });
 *   export const schema = z.object({ … });        what is sent has to fit it
 *
 * Promise: a repair that throws or does not fit is a result, never a lost letter; a file that was
 * changed since the plan is refused. At its end, what a rehearsal shows: two bodies, line by line.
 */

import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { RespoolError, show, textOf } from '../../core/errors.ts';
import { checkNames } from '../../core/limits.ts';
import type { DeadLetters, Letter, LetterChange, OpenLetter } from '../../ports/dead-letters.ts';
import type { StandardSchema } from '../../ports/schema.ts';
import type { ReplayOptions } from '../../spool/operator/replays.ts';
import { importFile } from '../../system/peer.ts';

/** What a repair sees of the body. */
export interface RepairBody {
  readonly body: Uint8Array;
  /** As UTF-8; throws where it is not. */
  readonly text: () => string;
  /** Parsed; throws where it is not JSON. */
  readonly json: () => unknown;
}

/** What a repair wants; `json` instead of `body` writes it as JSON. */
export interface RepairChange extends Omit<LetterChange, 'body'> {
  readonly body?: Uint8Array | string;
  readonly json?: unknown;
}

/** The default export: a change, undefined to send it as it is, or `'skip'` to leave it. */
export type Repair = (
  letter: Letter,
  body: RepairBody,
) => RepairChange | undefined | 'skip' | Promise<RepairChange | undefined | 'skip'>;

/** A user's file, loaded. */
export interface LetterTransform {
  /** Its whole path: anyone who resumes may be elsewhere. */
  readonly file: string;
  /** Of the file's text. */
  readonly digest: string;
  readonly repair: Repair;
  readonly schema: StandardSchema | undefined;
}

/** What came of a repair. */
type Repaired =
  | { readonly kind: 'same' }
  | { readonly kind: 'changed'; readonly change: LetterChange }
  | { readonly kind: 'skip' }
  | { readonly kind: 'failed'; readonly reason: string };

/** Loads a user's file; `config.invalid` when it cannot be one. */
export async function loadTransform(file: string): Promise<LetterTransform> {
  const what = `cannot load the transform "${file}"`;
  let digest: string;
  let exported: Readonly<Record<string, unknown>>;
  try {
    digest = createHash('sha256')
      .update(await readFile(file))
      .digest('hex');
    // n.b. Under its digest: a file that was changed meanwhile is loaded again.
    exported = await importFile(`${pathToFileURL(file).href}?${digest.slice(0, 12)}`);
  } catch (error) {
    throw new RespoolError('config.invalid', `${what}: ${textOf(error)}`, { cause: error });
  }
  const { default: repair, schema } = exported;
  if (typeof repair !== 'function') {
    throw new RespoolError(
      'config.invalid',
      `${what}: its default export is ${show(repair)}; export a function (letter, body) => change`,
    );
  }
  if (schema !== undefined && !isSchema(schema)) {
    throw new RespoolError(
      'config.invalid',
      `${what}: its export "schema" is no Standard Schema (zod, valibot, arktype, …)`,
    );
  }
  return { file: path.resolve(file), digest, repair: repair as Repair, schema };
}

/** The transform of a replay, as it was when it was planned. */
export async function sameTransform(
  file: string,
  digest: string | undefined,
  letterTransform: LetterTransform | undefined,
): Promise<LetterTransform> {
  const transform = letterTransform ?? (await loadTransform(file));
  if (transform.digest === digest) return transform;
  throw new RespoolError(
    'config.invalid',
    `cannot use the transform "${transform.file}": it was changed after the replay was planned; ` +
      'put it back as it was, or cancel this replay and plan a new one',
  );
}

/** What the transform makes of one letter. Never throws. */
export async function repairLetter(
  { repair, schema }: LetterTransform,
  open: OpenLetter,
): Promise<Repaired> {
  try {
    const body = await open.body();
    const answer: unknown = await repair(open.letter, viewOf(body));
    if (answer === 'skip') return { kind: 'skip' };
    const change = changeOf(answer);
    if (schema !== undefined) await checkFits(schema, change?.body ?? body);
    return change === undefined ? { kind: 'same' } : { kind: 'changed', change };
  } catch (error) {
    return { kind: 'failed', reason: textOf(error) };
  }
}

/** What a transform would do to one letter. */
export interface Rehearsal {
  readonly id: string;
  readonly result: Repaired['kind'];
  readonly reason?: string;
  readonly headers: readonly {
    readonly name: string;
    readonly before: string | undefined;
    readonly after: string | undefined;
  }[];
  /** The body line by line; JSON is laid out first. */
  readonly body: readonly string[];
}

/**
 * Tries the transform on the first letters of a query; nothing is changed by it.
 *
 * @example
 * import { loadTransform, rehearse } from 'respool/dead-letters';
 * const transform = await loadTransform('repair.ts');
 * for (const { id: letter, result, body } of await rehearse(letters, transform, { max: 10 })) {
 *   console.log(letter, result, body.join('\n'));
 * }
 */
export async function rehearse(
  letters: DeadLetters,
  transform: LetterTransform,
  { query, max = 5 }: Pick<ReplayOptions, 'query'> & { readonly max?: number } = {},
): Promise<Rehearsal[]> {
  const rehearsals: Rehearsal[] = [];
  for await (const open of letters.look(query === undefined ? {} : { query })) {
    const repaired = await repairLetter(transform, open);
    rehearsals.push(rehearsalOf(open.letter, await open.body(), repaired));
    if (rehearsals.length >= max) break;
  }
  return rehearsals;
}

function rehearsalOf(letter: Letter, body: Uint8Array, repaired: Repaired): Rehearsal {
  const { id } = letter;
  const { kind: result } = repaired;
  if (repaired.kind === 'failed') {
    return { id, result, reason: repaired.reason, headers: [], body: [] };
  }
  const change = repaired.kind === 'changed' ? repaired.change : {};
  const headers = Object.entries(change.headers ?? {})
    .map(([name, value]) => ({ name, before: letter.headers[name], after: value ?? undefined }))
    .concat(
      change.contentType === undefined
        ? []
        : [{ name: 'content-type', before: letter.contentType, after: change.contentType }],
    )
    .filter(({ before, after }) => before !== after);
  const lines = change.body === undefined ? [] : bodyDiff(body, change.body);
  return { id, result, headers, body: lines };
}

function bodyDiff(before: Uint8Array, after: Uint8Array): string[] {
  const [old, fresh] = [laidOut(before), laidOut(after)];
  if (old !== undefined && fresh !== undefined) return lineDiff(old, fresh);
  return Buffer.from(before).equals(after)
    ? []
    : [`- ${before.length} bytes`, `+ ${after.length} bytes`];
}

/** A body as people read it; undefined where it is no text. */
function laidOut(body: Uint8Array): string | undefined {
  const { text, json } = viewOf(body);
  try {
    return JSON.stringify(json(), null, 2);
  } catch {
    // Not JSON: shown as the text it is.
  }
  try {
    return text();
  } catch {
    return undefined;
  }
}

function viewOf(body: Uint8Array): RepairBody {
  const text = () => new TextDecoder('utf-8', { fatal: true }).decode(body);
  return { body, text, json: () => JSON.parse(text()) as unknown };
}

function changeOf(answer: unknown): LetterChange | undefined {
  if (answer === undefined) return undefined;
  if (typeof answer !== 'object' || answer === null) {
    throw new Error(`it answered ${show(answer)}: allowed is a change, undefined or 'skip'`);
  }
  checkNames('a change', answer, ['body', 'json', 'contentType', 'headers']);
  const { body, json, contentType, headers } = answer as RepairChange;
  const bytes = json === undefined ? bytesOf(body) : Buffer.from(JSON.stringify(json));
  for (const [name, value] of Object.entries(headers ?? {})) {
    if (value === null || typeof value === 'string') continue;
    throw new Error(`it set the header "${name}" to ${show(value)}: allowed is text or null`);
  }
  const change = {
    ...(bytes === undefined ? {} : { body: bytes }),
    ...(contentType === undefined ? {} : { contentType }),
    ...(headers === undefined ? {} : { headers }),
  };
  return Object.keys(change).length === 0 ? undefined : change;
}

function bytesOf(body: unknown): Uint8Array | undefined {
  if (body === undefined || body instanceof Uint8Array) return body;
  if (typeof body === 'string') {
    // It would be sent with another character in its place.
    if (!body.isWellFormed()) throw new Error('it gave a body with half a surrogate pair');
    return Buffer.from(body);
  }
  throw new Error(`it gave ${show(body)} as body: allowed is text or bytes; use "json" for data`);
}

async function checkFits(schema: StandardSchema, body: Uint8Array): Promise<void> {
  const { issues } = await schema['~standard'].validate(viewOf(body).json());
  if (issues === undefined) return;
  const texts = issues.slice(0, 3).map(({ message, path = [] }) => {
    const where = path.map((part) => String(typeof part === 'object' ? part.key : part)).join('.');
    return where === '' ? message : `${where}: ${message}`;
  });
  throw new Error(`the body does not fit the schema: ${texts.join('; ')}`);
}

function isSchema(value: unknown): value is StandardSchema {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return false;
  const standard: unknown = Reflect.get(value, '~standard');
  return typeof standard === 'object' && standard !== null && 'validate' in standard;
}

// What differs between two texts, line by line, within bounds. Pure.

/** Lines of each text that are compared at the most, without equal lines at both ends. */
const COMPARED_MAX = 400;
/** Maximum number of lines of the answer. */
const SHOWN_MAX = 80;
const CONTEXT = 2;

/** Lines that begin with `- `, `+ ` or two blanks; empty when nothing differs. */
export function lineDiff(before: string, after: string): string[] {
  if (before === after) return [];
  const old = before.split('\n');
  const fresh = after.split('\n');
  let head = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  let tail = 0;
  const rest = Math.min(old.length, fresh.length) - head;
  while (tail < rest && old.at(-1 - tail) === fresh.at(-1 - tail)) tail += 1;
  const lines = [
    ...old.slice(Math.max(0, head - CONTEXT), head).map(same),
    ...middle(old.slice(head, old.length - tail), fresh.slice(head, fresh.length - tail)),
    ...old.slice(old.length - tail, old.length - tail + CONTEXT).map(same),
  ];
  if (lines.length <= SHOWN_MAX) return lines;
  return [...lines.slice(0, SHOWN_MAX), `… ${lines.length - SHOWN_MAX} lines more`];
}

const same = (line: string) => `  ${line}`;
const gone = (line: string) => `- ${line}`;
const come = (line: string) => `+ ${line}`;

/** By the longest common subsequence where that is affordable. */
function middle(old: readonly string[], fresh: readonly string[]): string[] {
  if (old.length > COMPARED_MAX || fresh.length > COMPARED_MAX) {
    return [...old.map(gone), ...fresh.map(come)];
  }
  const width = fresh.length + 1;
  const common = new Uint16Array((old.length + 1) * width);
  const at = (row: number, column: number) => common[row * width + column] ?? 0;
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = fresh.length - 1; column >= 0; column -= 1) {
      common[row * width + column] =
        old[row] === fresh[column]
          ? at(row + 1, column + 1) + 1
          : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const lines: string[] = [];
  let row = 0;
  let column = 0;
  while (row < old.length || column < fresh.length) {
    if (row < old.length && column < fresh.length && old[row] === fresh[column]) {
      lines.push(same(old[row] ?? ''));
      row += 1;
      column += 1;
    } else if (
      column >= fresh.length ||
      (row < old.length && at(row + 1, column) >= at(row, column + 1))
    ) {
      lines.push(gone(old[row] ?? ''));
      row += 1;
    } else {
      lines.push(come(fresh[column] ?? ''));
      column += 1;
    }
  }
  return lines;
}
