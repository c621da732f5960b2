/**
 * edit — `respool config set`: one key of a JSON or YAML file, comments kept, checked before
 * it is written, written whole or not at all. A file that is a program stays its author's.
 * The check is that of loading (`completeConfig` of load-config.ts). No lock: of two edits at once
 * the last one holds.
 */

import { chmod, chown, open, realpath, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import {
  type Document,
  isCollection,
  isMap,
  isPair,
  isScalar as isScalarOfYaml,
  type Pair,
  parseDocument,
  stringify,
  type YAMLMap,
} from 'yaml';
import { isRespoolError, RespoolError, textOf } from '../core/errors.ts';
import { KnownSecrets } from '../core/redact.ts';
import { systemDice } from '../system/clock.ts';
import { randomName } from '../system/ids.ts';
import { configError, didYouMean } from './load/config-errors.ts';
import { hasLiteralKey } from './load/encryption-keys.ts';
import { addDotEnv, completeConfig, configFilesIn } from './load/load-config.ts';
import { type Environment, isProgram, parseConfig, readText } from './load/read-file.ts';
import { isScalar, type KeyKind, configKeyOf, KEYS, valueOfText } from './schema/keys.ts';

/** The file's name when there was none. */
const NEW_NAME = 'respool.config.yaml';

/** What was done. */
interface SetResult {
  readonly file: string;
  /** True when there was no file before. */
  readonly isNew: boolean;
  /** Keys that had to go, because they say the same in another way. */
  readonly removed: readonly string[];
}

/** Sets one key in a file; without a file in a new `respool.config.yaml` in `cwd`. */
export async function setConfig(
  file: string | undefined,
  key: string,
  value: string,
  { cwd, env }: { readonly cwd: string; readonly env: Environment },
): Promise<SetResult> {
  const known = settable(key);
  if (hasLiteralKey(valueOfText(known, value))) throw aKey(key);
  const isNew = file === undefined;
  const target = isNew ? path.resolve(cwd, NEW_NAME) : await realFile(path.resolve(cwd, file));
  if (isProgram(target)) throw aProgram(target, key, value);
  const before = isNew ? '' : await readText(target);
  const others = inTheWay(key);
  const { text, removed } = await changeText(before, target, { known, value, others });
  await checkText(text, target, env);
  await writeWhole(target, text, isNew);
  return { file: target, isNew, removed };
}

/** Behind a link is the file that is changed; the link stays. */
async function realFile(file: string): Promise<string> {
  try {
    return await realpath(file);
  } catch (error) {
    throw new RespoolError('config.invalid', `cannot read ${file}: ${textOf(error)}`);
  }
}

interface Change {
  readonly known: KeyKind;
  readonly value: string;
  readonly others: readonly string[];
}

interface Changed {
  readonly text: string;
  readonly removed: readonly string[];
}

function settable(name: string): KeyKind {
  const names = KEYS.filter((key) => isScalar(key) && key.secret !== true).map(({ key }) => key);
  const known = configKeyOf(name);
  if (known !== undefined && names.includes(name)) return known;
  const reason =
    known === undefined
      ? `there is no such key${didYouMean(name, names)}`
      : known.secret === true
        ? 'a secret does not belong on the command line; see: respool token create --help'
        : 'it is more than one value; edit the file';
  throw new RespoolError('config.invalid', `cannot set "${name}": ${reason}`);
}

function aKey(key: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot set "${key}": a key does not belong on the command line, where every user of this ` +
      'machine can read it; name its place, as "env:NAME" or "file:PATH"',
  );
}

/** One store for both, or one for each: anyone who sets the one takes the other out. */
function inTheWay(key: string): readonly string[] {
  if (key === 'store') return ['entries', 'bodies'];
  return key === 'entries' || key === 'bodies' ? ['store'] : [];
}

function aProgram(file: string, key: string, value: string): RespoolError {
  const [last = '', ...groups] = key.split('.').toReversed();
  const known = configKeyOf(key);
  const typed = known === undefined ? value : valueOfText(known, value);
  const written = typeof typed === 'string' ? quoted(typed) : JSON.stringify(typed);
  const line = groups.reduce((inner, group) => `${group}: { ${inner} }`, `${last}: ${written}`);
  return new RespoolError(
    'config.invalid',
    `cannot set "${key}" in ${file}: it is a program; write this line into it: ${line},`,
  );
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "\\'")}'`;
}

/** Edits the existing text step by step; rewrites it if the result is not as intended. */
async function changeText(
  text: string,
  file: string,
  { known, value, others }: Change,
): Promise<Changed> {
  await parseConfig(text, file, EVERYTHING_SET, new KnownSecrets());
  const isJson = file.endsWith('.json');
  const sourceOf = (input: string): SourceText => {
    return { text: input, document: parseDocument(input, { merge: true }), isJson };
  };
  const words = known.key.split('.');
  const typed = valueOfText(known, value);
  const source = sourceOf(text);
  const removed = others.filter((name) => source.document.has(name));
  const edited = withKey(source, words, typed);
  setIn(source.document, words, typed);
  let changed = fits(edited, source) ? edited : anew(source);
  // Removed last: what is added to an object is styled like what is there.
  for (const name of removed) {
    const before = sourceOf(changed);
    const without = withoutKey(before, name);
    before.document.delete(name);
    changed = fits(without, before) ? without : anew(before);
  }
  return { text: changed, removed };
}

function setIn(document: Document, words: readonly string[], value: unknown): void {
  for (const at of words.slice(0, -1).keys()) {
    const group = words.slice(0, at + 1);
    if (!document.hasIn(group)) break;
    const inner: unknown = document.getIn(group);
    // A key with nothing behind it is null, and null holds no keys.
    if (inner === null) document.deleteIn(group);
    else if (!isMap(inner)) throw configError(group.join('.'), inner, 'an object');
  }
  document.setIn(words, value);
}

/** Whether an edited text says what the changed document says. */
function fits(edited: string | undefined, { document, isJson }: SourceText): edited is string {
  if (edited === undefined) return false;
  try {
    if (isJson) return isDeepStrictEqual(JSON.parse(edited), document.toJS());
    const parsed = parseDocument(edited, { merge: true });
    const isSame = isDeepStrictEqual(parsed.toJS() ?? {}, document.toJS() ?? {});
    return isSame && parsed.errors.length === 0;
  } catch {
    return false;
  }
}

/** The whole document written out, as near to the text it was as can be. */
function anew({ text, document, isJson }: SourceText): string {
  const newline = newlineOf(text);
  if (isJson) {
    const indent = /^[ \t]+(?=")/m.exec(text)?.[0] ?? '  ';
    const written = JSON.stringify(document.toJS(), null, indent);
    return `${written}\n`.replaceAll('\n', newline);
  }
  const written = document.toString({
    lineWidth: 0,
    flowCollectionPadding: !/[[{][^\s\]}]/.test(text),
  });
  return written.replaceAll(/\r?\n/g, newline);
}

/** For reading a file's form alone: whatever ${NAME} asks for is there. */
const EVERYTHING_SET: Environment = new Proxy<Environment>({}, { get: () => '' });

/** Refuses a text that would be no configuration, before it is one. */
async function checkText(text: string, file: string, environment: Environment): Promise<void> {
  const secrets = new KnownSecrets();
  const folder = path.dirname(file);
  // What `.env` says is for this check alone.
  const env = { ...environment };
  try {
    const added = await addDotEnv(folder, env);
    const raw = await parseConfig(text, file, env, secrets, { added });
    await completeConfig({ env, file, folder, raw, added, secrets });
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    throw new RespoolError(error.code, `${secrets.hide(error.message)}; nothing was changed`);
  }
}

async function writeWhole(file: string, text: string, isNew: boolean): Promise<void> {
  const draft = `${file}.${randomName(systemDice)}.tmp`;
  try {
    const handle = await open(draft, 'wx', 0o600);
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    if (isNew) await refuseASecond(file);
    else await takeOver(file, draft);
    await rename(draft, file);
  } catch (error) {
    await rm(draft, { force: true });
    if (isRespoolError(error)) throw error;
    throw new RespoolError('config.invalid', `cannot write ${file}: ${textOf(error)}`);
  }
}

/** The draft belongs to whom the file belongs to, or the service could not read it any more. */
async function takeOver(file: string, draft: string): Promise<void> {
  const { mode, uid, gid } = await stat(file);
  const own = await stat(draft);
  // Only root may give a file away; others can write a file of another owner only by replacing it.
  if (own.uid !== uid || own.gid !== gid) await giveTo(draft, uid, gid);
  // After the owner: a change of owner takes away some of the rights.
  await chmod(draft, mode & 0o7777);
}

async function giveTo(draft: string, uid: number, gid: number): Promise<void> {
  try {
    await chown(draft, uid, gid);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') throw error;
  }
}

async function refuseASecond(file: string): Promise<void> {
  const [present] = await configFilesIn(path.dirname(file));
  if (present === undefined) return;
  throw new RespoolError('config.invalid', `cannot make ${file}: there is "${present}" already`);
}

// One key of a YAML or JSON text set or taken out, the rest as it stands: comments,
// line ends and spaces. Only changes at one place in the text are made here; the caller
// compares the result, and writes the whole text again where this is not enough.

/** A text, and the document that was read from it. */
interface SourceText {
  readonly text: string;
  readonly document: Document;
  readonly isJson: boolean;
}

/** The text with this value under this key; undefined where it cannot be put into the text. */
function withKey(source: SourceText, words: readonly string[], value: unknown): string | undefined {
  const { text, document } = source;
  let map: unknown = document.contents;
  for (const [at, word] of words.entries()) {
    if (!isMap(map)) break;
    const pair = pairOf(map, word);
    if (pair === undefined) return added(source, map, words.slice(at), value);
    if (isEmpty(pair)) return filled(source, pair, words.slice(at + 1), value);
    if (at === words.length - 1) return replaced(source, pair, value);
    map = pair.value;
  }
  // Nothing but comments so far.
  if (map !== null || document.contents !== null || source.isJson) return undefined;
  return appended(text, text.length, linesOf(words, value, ''));
}

/** The text without a key of the outermost object. */
function withoutKey({ text, document }: SourceText, name: string): string | undefined {
  const map = document.contents;
  if (!isMap(map)) return undefined;
  const at = map.items.findIndex((pair) => nameOf(pair) === name);
  const pair = map.items[at];
  const [from, to] = [startOf(pair?.key), endOf(pair?.value)];
  if (pair === undefined || from === undefined || to === undefined) return undefined;
  if (map.flow !== true) return cut(text, lineStart(text, from), lineEnd(text, to));
  const next = startOf(map.items[at + 1]?.key);
  if (next !== undefined) return cut(text, from, next);
  // The comma before it goes too.
  return cut(text, endOf(map.items[at - 1]?.value) ?? from, to);
}

function replaced(
  { text, isJson }: SourceText,
  { value: node }: Pair,
  value: unknown,
): string | undefined {
  const [from, to] = [startOf(node), endOf(node)];
  if (from === undefined || to === undefined) return undefined;
  const isBlock = isCollection(node) ? node.flow !== true : isBlockText(node);
  return isBlock ? undefined : `${text.slice(0, from)}${written(value, isJson)}${text.slice(to)}`;
}

/** A key with nothing behind it, not even the word null. */
function isEmpty({ value: node }: Pair): boolean {
  return (
    node === null || (isScalarOfYaml(node) && node.value === null && startOf(node) === endOf(node))
  );
}

/** What such a key gets: a value behind its colon, or keys below it. */
function filled(
  { text }: SourceText,
  { key }: Pair,
  words: readonly string[],
  value: unknown,
): string | undefined {
  const [from, to] = [startOf(key), endOf(key)];
  if (from === undefined || to === undefined || text[to] !== ':') return undefined;
  if (words.length === 0) {
    return `${text.slice(0, to + 1)} ${written(value, false)}${text.slice(to + 1)}`;
  }
  const indent = text.slice(lineStart(text, from), from);
  if (indent.trim() !== '') return undefined;
  return appended(text, lineEnd(text, to), linesOf(words, value, `${indent}  `));
}

function added(
  source: SourceText,
  map: YAMLMap,
  words: readonly string[],
  value: unknown,
): string | undefined {
  const { text, isJson } = source;
  const last = map.items.at(-1);
  const [from, to] = [startOf(last?.key), endOf(last?.value)];
  if (last === undefined || from === undefined || to === undefined) return undefined;
  if (map.flow === true) {
    const [name = '', ...rest] = words;
    const inner = rest.reduceRight((child: unknown, word) => ({ [word]: child }), value);
    const gap = /\s*$/.exec(text.slice(0, from))?.[0] ?? '';
    const between = map.items.length === 1 && gap === '' ? ' ' : gap;
    const pair = `${isJson ? JSON.stringify(name) : name}: ${written(inner, isJson)}`;
    return `${text.slice(0, to)},${between}${pair}${text.slice(to)}`;
  }
  const indent = text.slice(lineStart(text, from), from);
  if (indent.trim() !== '') return undefined;
  return appended(text, lineEnd(text, to), linesOf(words, value, indent));
}

/** Lines put in behind a whole line. */
function appended(text: string, at: number, lines: readonly string[]): string {
  const newline = newlineOf(text);
  const before = text.slice(0, at);
  const gap = before === '' || before.endsWith('\n') ? '' : newline;
  return `${before}${gap}${lines.join(newline)}${newline}${text.slice(at)}`;
}

/** What ends the lines of a text. */
function newlineOf(text: string): string {
  return text.includes('\r\n') ? '\r\n' : '\n';
}

function linesOf(words: readonly string[], value: unknown, indent: string): string[] {
  return words.map((word, at) => {
    const isLast = at === words.length - 1;
    return `${indent}${'  '.repeat(at)}${word}:${isLast ? ` ${written(value, false)}` : ''}`;
  });
}

function written(value: unknown, isJson: boolean): string {
  if (isJson) return JSON.stringify(value);
  const isObject = typeof value === 'object' && value !== null;
  return stringify(value, {
    lineWidth: 0,
    ...(isObject ? { collectionStyle: 'flow' } : {}),
  }).trim();
}

function pairOf(map: YAMLMap, name: string): Pair | undefined {
  return map.items.find((pair) => nameOf(pair) === name);
}

function nameOf({ key }: Pair): unknown {
  return isScalarOfYaml(key) ? key.value : key;
}

function startOf(node: unknown): number | undefined {
  return rangeOf(node)?.[0];
}

/** Where a value ends, without the comments and lines behind it. */
function endOf(node: unknown): number | undefined {
  if (isCollection(node) && node.flow !== true) {
    const last: unknown = node.items.at(-1);
    return endOf(isPair(last) ? last.value : last);
  }
  return rangeOf(node)?.[1];
}

function isBlockText(node: unknown): boolean {
  return isScalarOfYaml(node) && (node.type === 'BLOCK_FOLDED' || node.type === 'BLOCK_LITERAL');
}

function rangeOf(node: unknown): readonly number[] | undefined {
  if (typeof node !== 'object' || node === null || !('range' in node)) return undefined;
  return Array.isArray(node.range) ? (node.range as number[]) : undefined;
}

function lineStart(text: string, at: number): number {
  return text.lastIndexOf('\n', at - 1) + 1;
}

function lineEnd(text: string, at: number): number {
  if (at > 0 && text[at - 1] === '\n') return at;
  const end = text.indexOf('\n', at);
  return end === -1 ? text.length : end + 1;
}

function cut(text: string, from: number, to: number): string {
  return text.slice(0, from) + text.slice(to);
}
