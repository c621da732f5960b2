/**
 * builtins — modules of Node that take milliseconds to load, loaded on first use.
 *
 * Every program that imports the package would pay for them; `node:crypto` alone takes a tenth of
 * the time of the whole import.
 */

import type * as Crypto from 'node:crypto';
import type * as Zlib from 'node:zlib';

let crypto: typeof Crypto | undefined;
let zlib: typeof Zlib | undefined;

/** `node:crypto`. */
export function nodeCrypto(): typeof Crypto {
  return (crypto ??= process.getBuiltinModule('node:crypto'));
}

/** `node:zlib`. */
export function nodeZlib(): typeof Zlib {
  return (zlib ??= process.getBuiltinModule('node:zlib'));
}
