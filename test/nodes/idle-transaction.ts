/**
 * idle-transaction — somebody leaves a transaction open in the database of a spool. The server may
 * then take no dead row away, and every look for work wades through more of them.
 *
 * Two databases of one server take turns under the same load: one with such a transaction, one
 * without. What else the machine does slows both; so their ratio tells.
 */
import pg from 'pg';
import { createSpool, type Spool } from 'respool';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { diagnosePostgres } from '../../src/stores/postgres/diagnose.ts';
import type { StoreFinding } from '../../src/stores/shared/finding.ts';
import { freshName, query } from './ground.ts';

/** The promise: so much of the rate is left. */
export const RATIO_MIN = 0.3;

/** What came of it; rates in messages per second, one for each round. */
export interface IdleResult {
  readonly held: readonly number[];
  readonly free: readonly number[];
  readonly messages: number;
  /** The median with the open transaction, over the median without, in the last half. */
  readonly ratio: number;
  /** Dead rows at the end, as the server counts them. */
  readonly deadHeld: number;
  /** What the doctor says of that transaction, beside it and in the other database. */
  readonly told: Readonly<Record<'held' | 'free', StoreFinding | undefined>>;
}

const ROUND_MESSAGES = 400;
const CONCURRENCY = 50;
const PAYLOAD = 'x'.repeat(1_024);

/** Works in turns on a server, for so long and so many rounds at least, and compares. */
export async function idleTransaction(
  url: string,
  { lastsMs, rounds = 1 }: { readonly lastsMs: number; readonly rounds?: number },
): Promise<IdleResult> {
  await using stack = new AsyncDisposableStack();
  const [held, free] = [await database(url, stack), await database(url, stack)];
  const idle = new pg.Client({ connectionString: held.url });
  await idle.connect();
  stack.defer(() => idle.end());
  // With a snapshot of its own, as a report that somebody forgot.
  await idle.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  await idle.query('SELECT count(*) FROM pg_class');
  const { rows } = await idle.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  const pid = rows[0]?.pid ?? 0;
  const untilMs = performance.now() + lastsMs;
  const rates = { held: [] as number[], free: [] as number[] };
  while (rates.held.length < rounds || performance.now() < untilMs) {
    rates.free.push(await free.round());
    rates.held.push(await held.round());
  }
  const [row] = await query(held.url, 'SELECT sum(n_dead_tup)::int FROM pg_stat_user_tables');
  const ratio = median(lastHalf(rates.held)) / median(lastHalf(rates.free));
  const messages = (rates.held.length + rates.free.length) * ROUND_MESSAGES;
  const told = { held: await toldOf(held.url, pid), free: await toldOf(free.url, pid) };
  return { ...rates, messages, ratio, deadHeld: Number(row?.[0]), told };
}

/** What the doctor says of a process of the server. */
async function toldOf(url: string, pid: number): Promise<StoreFinding | undefined> {
  const { findings } = await diagnosePostgres({ url });
  return findings.find(({ id, text }) => id === 'oldest-xmin' && text.includes(`process ${pid} `));
}

interface Side {
  readonly url: string;
  /** Puts messages down and delivers them; how many per second. */
  round(): Promise<number>;
}

/** A database of its own, with a spool in it, gone afterwards. */
async function database(server: string, stack: AsyncDisposableStack): Promise<Side> {
  const name = freshName();
  await query(server, `CREATE DATABASE "${name}"`);
  stack.defer(async () => void (await query(server, `DROP DATABASE "${name}" WITH (FORCE)`)));
  const url = new URL(server);
  url.pathname = `/${name}`;
  const { href } = url;
  const entries = postgres({ url: href });
  const spool = createSpool({
    entries,
    bodies: postgresBodies({ url: href }),
    concurrency: CONCURRENCY,
  });
  let delivered = 0;
  let onDelivered = (): void => undefined;
  spool.handle('work', () => undefined);
  spool.on('delivered', () => {
    delivered += 1;
    onDelivered();
  });
  await spool.start();
  stack.defer(() => spool.stop());
  return {
    url: href,
    async round() {
      const [beganAt, goal] = [performance.now(), delivered + ROUND_MESSAGES];
      const done = new Promise<void>((resolve) => {
        onDelivered = () => void (delivered >= goal && resolve());
      });
      await produce(spool);
      await done;
      return ROUND_MESSAGES / ((performance.now() - beganAt) / 1_000);
    },
  };
}

async function produce(spool: Spool): Promise<void> {
  let left = ROUND_MESSAGES;
  const producer = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      await spool.enqueue({ topic: 'work', body: PAYLOAD });
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, producer));
}

function lastHalf(rates: readonly number[]): readonly number[] {
  return rates.slice(Math.floor(rates.length / 2));
}

function median(rates: readonly number[]): number {
  return [...rates].sort((a, b) => a - b)[Math.floor(rates.length / 2)] ?? 0;
}
