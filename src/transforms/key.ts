/**
 * key — what a key is, in each of its forms, and the making of one.
 *
 * A key is 32 bytes. No text made here holds any of them: what was given is described by its kind
 * and its length, never shown.
 */

import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { RespoolError, show } from '../core/errors.ts';

/**
 * Where a key comes from, at the time it is needed: a key service, a vault. Undefined means that
 * there is no such key; a failure, that it cannot be told now.
 */
export type KeyFunction = (id: string) => KeySource | undefined | Promise<KeySource | undefined>;

/**
 * 32 bytes, or a text: their base64 or hex, `env:NAME` for a variable or `file:PATH` for a file
 * that holds one of these.
 */
export type KeySource = Uint8Array | string;

/** One key: itself, the place where it is, or a function that fetches it. */
export type Key = KeySource | KeyFunction;

/** Keys by their ids, or one function for every id. Ids are 1 to 64 of A-Z a-z 0-9 . _ -. */
export type Keys = Readonly<Record<string, Key>> | KeyFunction;

/** A key's text is in a variable or a file. */
export interface KeyPlace {
  readonly kind: 'env' | 'file';
  readonly name: string;
}

const KEY_BYTES = 32;
const KEY_ID_MAX_CHARS = 64;
const KEY_ID_PATTERN = /^[A-Za-z0-9._-]{1,64}$/;
const KEY_ID_ALLOWED = `1 to ${KEY_ID_MAX_CHARS} of A-Z a-z 0-9 . _ -`;

const HEX = /^[0-9a-fA-F]{64}$/;
const BASE64 = /^[A-Za-z0-9+/]{43}=?$/;
const BASE64URL = /^[A-Za-z0-9_-]{43}=?$/;

/** A longer name might be a key that slipped into the wrong place. */
const NAME_SHOWN_MAX_CHARS = 32;

const KEY_ALLOWED =
  'allowed is 32 bytes, their base64 or hex, env:NAME, file:PATH or a function; ' +
  'respool keys generate makes a key';

/** A new random key: the base64 of 32 bytes. */
export function generateKey(): string {
  return randomBytes(KEY_BYTES).toString('base64');
}

/** Whether this can be the id of a key at all. */
export function isKeyId(id: unknown): id is string {
  return typeof id === 'string' && KEY_ID_PATTERN.test(id);
}

/** Refuses an id that cannot be one, or that is a key by mistake: ids are stored in the clear. */
export function checkKeyId(what: string, id: unknown): string {
  if (isKeyId(id) && bytesOfText(id) === undefined) return id;
  if (isKeyId(id)) {
    throw invalid(`cannot use the ${what}: it looks like a key; ids are stored in the clear`);
  }
  throw invalid(`cannot use ${showName(id)} as ${what}: allowed is ${KEY_ID_ALLOWED}`);
}

/** The id or name as an error may show it: what is as long as a key is not shown. */
export function showName(name: unknown): string {
  if (typeof name !== 'string') return `a ${kindOf(name)}`;
  if (name.length <= NAME_SHOWN_MAX_CHARS && bytesOfText(name) === undefined) return show(name);
  return `a text of ${name.length} characters`;
}

/** The place that a text names, or undefined for a text that should be a key itself. */
export function placeOf(text: string): KeyPlace | undefined {
  const [, kind, name = ''] = /^(env|file):(.*)$/s.exec(text) ?? [];
  return kind === 'env' || kind === 'file' ? { kind, name } : undefined;
}

/**
 * Says why a place cannot be one: it has no name, or the name is a key by mistake, which must not
 * be shown as names are. Undefined where it can.
 */
export function faultOfPlace({ kind, name }: KeyPlace): string | undefined {
  if (name === '' || name.includes('\0') || (kind === 'env' && name.includes('='))) {
    const allowed = kind === 'env' ? 'the name of a variable' : 'the path of a file';
    return `after "${kind}:" should stand ${allowed}`;
  }
  if (bytesOfText(name) === undefined) return undefined;
  return `after "${kind}:" stands a key; leave out "${kind}:"`;
}

/** The key that is there as bytes or text, or a text that says why it is none, without it. */
export function parseKey(source: unknown): KeyObject | string {
  const bytes = typeof source === 'string' ? bytesOfText(source.trim()) : source;
  if (!(bytes instanceof Uint8Array) || bytes.length !== KEY_BYTES) {
    return `it is ${describe(source)}; ${KEY_ALLOWED}`;
  }
  // Memory that was asked for and never filled.
  if (bytes.every((byte) => byte === 0)) return `all its bytes are zero; ${KEY_ALLOWED}`;
  // A copy, in a form that neither JSON nor a debugger's print shows.
  return createSecretKey(bytes);
}

function bytesOfText(text: string): Uint8Array | undefined {
  if (HEX.test(text)) return Buffer.from(text, 'hex');
  const form = BASE64.test(text) ? 'base64' : BASE64URL.test(text) ? 'base64url' : undefined;
  if (form === undefined) return undefined;
  const bytes = Buffer.from(text, form);
  // The last character has two bits to spare; where they are set, it was typed wrongly.
  return bytes.toString(form).replace('=', '') === text.replace('=', '') ? bytes : undefined;
}

function describe(source: unknown): string {
  if (source instanceof Uint8Array) return `${source.length} bytes`;
  if (source === null || source === undefined) return 'missing';
  if (typeof source !== 'string') return `a ${kindOf(source)}`;
  const length = source.trim().length;
  return length === 0
    ? 'empty'
    : `a text of ${length} characters that is no base64 or hex of 32 bytes`;
}

function kindOf(value: unknown): string {
  return Array.isArray(value) ? 'list' : typeof value;
}

function invalid(text: string): RespoolError {
  return new RespoolError('config.invalid', text);
}
