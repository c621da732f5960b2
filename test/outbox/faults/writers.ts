/**
 * writers — programs that change their own tables and emit in the same transaction; some roll back,
 * all of them hold their transaction open for a while.
 *
 *   BEGIN ─▶ lock the aggregate, if the messages have a key ─▶ emit, keep ─▶ wait ─▶ COMMIT | ROLLBACK
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Outbox } from 'respool/outbox';
import { type Chance, createChance } from '../../torture/chance.ts';
import type { WriteOutcome } from './judge.ts';

export interface WritersOptions {
  readonly url: string;
  readonly schema: string;
  readonly outbox: Pick<Outbox, 'emitMany' | 'wake'>;
  readonly count: number;
  readonly seed: number;
  /** Transactions are held open up to so long. */
  readonly holdMs: number;
  /** The most messages of one transaction. */
  readonly messagesMax: number;
}

const ROLLBACKS = 0.2;
const KEYED = 0.5;
const KEYS = 6;
/** Where the database was away, before the next transaction. */
const AGAIN_MS = 50;

/** Rows of the writers: aggregates to lock, and one for each message that was committed. */
export function writersSql(schema: string): string {
  return `CREATE TABLE "${schema}".aggregates (key text PRIMARY KEY, place integer NOT NULL);
CREATE TABLE "${schema}".kept (id text PRIMARY KEY);
CREATE TABLE "${schema}".effects (id text NOT NULL);
INSERT INTO "${schema}".aggregates SELECT 'key-' || n, 0 FROM generate_series(1, ${KEYS}) AS n;`;
}

export class Writers {
  readonly written: Map<string, WriteOutcome> = new Map();
  readonly #options: WritersOptions;
  readonly #chance: Chance;
  #writing: Promise<unknown> | undefined;
  #isFinishing = false;

  constructor(options: WritersOptions) {
    this.#options = options;
    this.#chance = createChance(options.seed);
  }

  start(): void {
    const seeds = Array.from({ length: this.#options.count }, () =>
      this.#chance.between(1, 2 ** 30),
    );
    this.#writing = Promise.all(seeds.map((seed) => this.#writeAll(createChance(seed))));
    // Told by finish().
    this.#writing.catch(() => undefined);
  }

  /** No more transactions; resolves when the last has ended. */
  async finish(): Promise<void> {
    this.#isFinishing = true;
    await this.#writing;
  }

  async #writeAll(chance: Chance): Promise<void> {
    while (!this.#isFinishing) {
      const client = new pg.Client({ connectionString: this.#options.url });
      client.on('error', () => undefined);
      try {
        await client.connect();
        while (!this.#isFinishing) await this.#write(client, chance);
      } catch (error) {
        if (!isAway(error)) throw error;
        await sleep(AGAIN_MS);
      } finally {
        await client.end().catch(() => undefined);
      }
    }
  }

  async #write(client: pg.Client, chance: Chance): Promise<void> {
    const { schema, holdMs, messagesMax, outbox } = this.#options;
    const count = chance.between(1, messagesMax);
    const key = chance.happens(KEYED) ? `key-${chance.between(1, KEYS)}` : '';
    const heldMs = chance.between(0, holdMs);
    const beforeMs = chance.between(0, heldMs);
    const isRolledBack = chance.happens(ROLLBACKS);
    await client.query('BEGIN');
    const last = key === '' ? 0 : await lock(client, schema, key, count);
    await sleep(beforeMs);
    const messages = Array.from({ length: count }, (_, at) => ({
      routingKey: 'shop.order.paid',
      body: { key, place: key === '' ? 0 : last - count + at + 1 },
      ...(key === '' ? {} : { key }),
    }));
    const emitted = await outbox.emitMany(client, messages);
    const ids = emitted.map(({ id }) => id);
    for (const id of ids) this.written.set(id, 'rolled back');
    const keep = `INSERT INTO "${schema}".kept SELECT unnest($1::text[])`;
    await client.query(keep, [ids]);
    await sleep(heldMs - beforeMs);
    if (isRolledBack) {
      await client.query('ROLLBACK');
      return;
    }
    for (const id of ids) this.written.set(id, 'unknown');
    await client.query('COMMIT');
    for (const id of ids) this.written.set(id, 'committed');
    // Its relays hear of it; without this they find it a little later.
    if (chance.happens(0.5)) await outbox.wake();
  }
}

/** Takes so many places of a key; whoever wants more of them waits until this transaction ends. */
async function lock(
  client: pg.Client,
  schema: string,
  key: string,
  count: number,
): Promise<number> {
  const text = `UPDATE "${schema}".aggregates SET place = place + $2 WHERE key = $1 RETURNING place`;
  const { rows } = await client.query<{ place: number }>(text, [key, count]);
  return rows[0]?.place ?? 0;
}

/** The server crashed, comes back, or the connection to it broke; anything else is a fault. */
function isAway(error: unknown): boolean {
  const { code = '', message = '' } = error as { code?: string; message?: string };
  const text = `${code} ${message}`;
  return /^(?:57P0|08)|ECONN|EPIPE|store\.unavailable|terminated|not queryable|closed/.test(text);
}
