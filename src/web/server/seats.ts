/**
 * seats — open connections by address, so that one caller cannot take them all.
 *
 * Half of them is what one address may have. Callers on this machine are not told apart by their
 * address, and neither are those behind a proxy: there is no such limit for them.
 */

import { isLoopback } from './settings.ts';
import { networkOf } from './network.ts';

/** Counts the connections of each address. */
export class Seats {
  readonly #max: number;
  readonly #taken = new Map<string, number>();

  /** `connections`: how many there may be in all. */
  constructor(connections: number) {
    this.#max = Math.max(1, Math.floor(connections / 2));
  }

  /** Whether this address may have one more; if so, it has it until `leave`. */
  take(address: string): boolean {
    const key = keyOf(address);
    if (key === undefined) return true;
    const taken = this.#taken.get(key) ?? 0;
    if (taken >= this.#max) return false;
    this.#taken.set(key, taken + 1);
    return true;
  }

  leave(address: string): void {
    const key = keyOf(address);
    if (key === undefined) return;
    const left = (this.#taken.get(key) ?? 1) - 1;
    if (left === 0) this.#taken.delete(key);
    else this.#taken.set(key, left);
  }
}

function keyOf(address: string): string | undefined {
  // An IPv4 address on a socket of IPv6 is still that address.
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, '');
  return isLoopback(plain) ? undefined : networkOf(plain);
}
