/** A pool over a real one that can lose connections: before a statement is sent, or its answer. */

import pg from 'pg';
import type { PgClient, PgPool, PgQuery } from '../../../src/stores/postgres/options.ts';
import { atEnd, serverUrl } from './setup.ts';

/** What happens to a statement. */
export type Fault =
  | 'none'
  | 'before'
  | 'after'
  | { readonly code: string; readonly message?: string }
  | { readonly rows: unknown[][] }
  | { readonly notice: string }
  /** It is done; then this is called, and the answer comes after it. */
  | { readonly answerAfter: () => Promise<unknown> };

export interface FaultyPool extends PgPool {
  /** Asked before each statement; default: nothing happens. */
  plan: (text: string, values?: readonly unknown[]) => Fault;
  readonly taken: number;
  readonly released: number;
  readonly destroyed: number;
}

export async function faultyPool(url?: string): Promise<FaultyPool> {
  const pool = new pg.Pool({ connectionString: url ?? (await serverUrl()), max: 5 });
  pool.on('error', () => undefined);
  atEnd(() => pool.end());
  const counts = { taken: 0, released: 0, destroyed: 0 };
  const faulty = {
    plan: (_text: string, _values?: readonly unknown[]): Fault => 'none',
    get taken() {
      return counts.taken;
    },
    get released() {
      return counts.released;
    },
    get destroyed() {
      return counts.destroyed;
    },
    async connect(): Promise<PgClient> {
      const client = await pool.connect();
      counts.taken += 1;
      return wrap(client, (text, values) => faulty.plan(text, values), counts);
    },
    end: () => pool.end(),
    on: (event: 'error' | 'connect', listener: (given: never) => void) =>
      pool.on(event as 'error', listener as (error: Error) => void),
    removeListener: (event: 'error' | 'connect', listener: (...given: never[]) => void) =>
      pool.removeListener(event, listener as (...given: unknown[]) => void),
  };
  return faulty;
}

const clients = new WeakMap<object, PgClient>();

function wrap(
  client: pg.PoolClient,
  plan: (text: string, values?: readonly unknown[]) => Fault,
  counts: { released: number; destroyed: number },
): PgClient {
  const notices: ((notice: { readonly code?: string | undefined }) => void)[] = [];
  const found = clients.get(client);
  if (found !== undefined) return found;
  const wrapped = {
    async query(query: PgQuery) {
      const fault = plan(query.text, query.values);
      if (fault === 'before') throw lost();
      if (typeof fault === 'object' && 'code' in fault) {
        throw Object.assign(new Error(fault.message ?? 'said so'), { code: fault.code });
      }
      if (typeof fault === 'object' && 'rows' in fault) return { rows: fault.rows };
      const result = await client.query(query);
      if (fault === 'after') throw lost();
      if (typeof fault === 'object' && 'answerAfter' in fault) await fault.answerAfter();
      else if (typeof fault === 'object') for (const tell of notices) tell({ code: fault.notice });
      return result;
    },
    release(error?: Error | boolean) {
      counts.released += 1;
      if (error !== undefined && error !== false) counts.destroyed += 1;
      client.release(error);
    },
    on(event: string, listener: (value: never) => void) {
      if (event === 'notice') notices.push(listener as (typeof notices)[number]);
      else client.on('error', listener as (error: Error) => void);
    },
  };
  clients.set(client, wrapped);
  return wrapped;
}

function lost(): Error {
  return Object.assign(new Error('the connection was cut'), { code: 'ECONNRESET' });
}

/** Says 'after' for the first so many statements that match, and 'none' for every other. */
export function loseAnswers(match: RegExp, times: number, fault: Fault = 'after') {
  let left = times;
  return (text: string): Fault => {
    if (left === 0 || !match.test(text)) return 'none';
    left -= 1;
    return fault;
  };
}
