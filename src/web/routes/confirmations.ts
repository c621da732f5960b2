/**
 * confirmations — the token between the dry run of a bulk action and the action itself.
 *
 * It carries the count, the time at which it expires and the filter as it stood, and is signed
 * together with the action and the filter as asked: it confirms nothing else. bulk.ts calls this,
 * and checks that no action does more than was counted. The key lives as long as the process.
 */

import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { BulkAction } from '../../spool/operator/operator.ts';
import { MINUTE_MS } from '../../core/duration.ts';
import type { Clock } from '../../ports/clock.ts';
import type { ListFilter } from '../../spool/list.ts';
import { HttpRefusal } from '../server/refusal.ts';

/** How long a dry run is good for. Also in docs/reference/http-api.md. */
const GOOD_FOR_MS: number = 10 * MINUTE_MS;
/** Maximum number of used tokens that are remembered until they expire; the oldest go first. */
const USED_MAX = 10_000;

/** What is counted before it is done. */
type Confirmed = BulkAction | { readonly kind: 'rekey' };

/** What a dry run found. */
interface CountedBulk {
  readonly count: number;
  /** The filter as it stood: no ages, and nothing that came after. */
  readonly filter: ListFilter;
  readonly expiresAt: number;
}

/** Where a long action goes on. */
interface Position {
  readonly after: string;
  readonly seen: number;
}

/** Signs and reads the tokens of one process. */
export class Confirmations {
  readonly #clock: Clock;
  readonly #key: Buffer = randomBytes(32);
  /** Tokens whose action began: each begins once, and goes on from each place once. */
  readonly #used = new Map<string, { readonly expiresAt: number; seen: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The token for what was counted. */
  sign(action: Confirmed, filter: ListFilter, counted: Omit<CountedBulk, 'expiresAt'>): Signed {
    const expiresAt = this.#clock.now() + GOOD_FOR_MS;
    const payload = encoded({ ...counted, expiresAt });
    return { confirm: `${payload}.${this.#mac(payload, action, filter)}`, expiresAt };
  }

  /** What was counted, if it was for this action and filter. */
  read(confirm: string, action: Confirmed, filter: ListFilter): CountedBulk {
    const { payload, mac } = partsOf(confirm);
    if (!isSame(mac, this.#mac(payload, action, filter))) throw invalid(OTHER);
    const counted = decoded(payload) as CountedBulk;
    if (counted.expiresAt <= this.#clock.now()) throw invalid('is too old');
    return counted;
  }

  /** The first step of an action; the same token does not begin twice. */
  begin(confirm: string, { expiresAt }: CountedBulk): void {
    for (const [old, used] of this.#used) {
      if (used.expiresAt > this.#clock.now() && this.#used.size < USED_MAX) break;
      this.#used.delete(old);
    }
    if (this.#used.has(confirm)) throw invalid('was used already');
    this.#used.set(confirm, { expiresAt, seen: 0 });
  }

  /** Where the next request goes on. */
  signNext(confirm: string, position: Position): string {
    const payload = encoded(position);
    return `${payload}.${this.#mac(payload, confirm)}`;
  }

  /** The cursor of an earlier answer; each cursor is used once. */
  useNext(confirm: string, next: string): Position {
    const { payload, mac } = partsOf(next);
    if (!isSame(mac, this.#mac(payload, confirm))) throw invalid('does not belong to this "after"');
    const position = decoded(payload) as Position;
    const used = this.#used.get(confirm);
    // Every step sees more than the one before.
    if (used === undefined || position.seen <= used.seen) {
      throw invalid('has gone on from this "after" already');
    }
    used.seen = position.seen;
    return position;
  }

  #mac(payload: string, ...about: readonly unknown[]): string {
    const text = JSON.stringify([payload, ...about.map(canonical)]);
    return createHmac('sha256', this.#key).update(text).digest('base64url');
  }
}

interface Signed {
  readonly confirm: string;
  readonly expiresAt: number;
}

const OTHER = 'is for another action or filter, or of another process';

function invalid(why: string): HttpRefusal {
  return new HttpRefusal(
    409,
    'confirm.invalid',
    `cannot do this: the confirmation ${why}; ask again without "confirm"`,
    { code: 'move.refused' },
  );
}

/** Exactly two: with anything behind them it would be another text for the same token. */
function partsOf(token: string): { readonly payload: string; readonly mac: string } {
  const [payload = '', mac = '', ...more] = token.split('.', 3);
  if (more.length > 0) throw invalid(OTHER);
  return { payload, mac };
}

function isSame(one: string, other: string): boolean {
  const [left, right] = [Buffer.from(one), Buffer.from(other)];
  return left.byteLength === right.byteLength && timingSafeEqual(left, right);
}

function encoded(value: unknown): string {
  return Buffer.from(JSON.stringify(value), 'utf8').toString('base64url');
}

function decoded(payload: string): unknown {
  return JSON.parse(Buffer.from(payload, 'base64url').toString('utf8'));
}

/** The same text for the same value, in whatever order its names came. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical);
  if (typeof value !== 'object' || value === null) return value;
  return Object.entries(value)
    .filter(([, one]) => one !== undefined)
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([name, one]) => [name, canonical(one)]);
}
