/**
 * own-pool — the pool of an outbox: the user's, or one of its own that is opened when it is needed.
 */

import { RespoolError } from '../core/errors.ts';
import { loadPg, type PgPool } from '../stores/postgres/client.ts';
import { Sockets } from '../stores/postgres/sockets.ts';
import { systemClock } from '../system/clock.ts';
import type { Speaker, TxClient, TxPool } from './transaction.ts';

const CONNECT_TIMEOUT_MS = 5_000;
const CONNECTIONS_MAX = 8;

/** Where the connections come from. */
export type PoolPlace = { readonly pool: PgPool } | { readonly url: string };

/** Connections for transactions, wake-ups and migrations. */
export class OwnPool {
  readonly #place: PoolPlace;
  readonly #sockets = new Sockets(systemClock);
  #opening: Promise<PgPool> | undefined;
  #isEnded = false;

  constructor(place: PoolPlace) {
    this.#place = place;
  }

  async get(): Promise<TxPool> {
    if (this.#isEnded) {
      throw new RespoolError('store.unavailable', 'cannot use the outbox: it was closed');
    }
    if ('pool' in this.#place) return this.#place.pool as unknown as TxPool;
    this.#opening ??= openPool(this.#place.url, this.#sockets);
    return (await this.#opening) as unknown as TxPool;
  }

  /** One or a few statements on a connection, in no transaction. */
  async using<T>(work: (client: TxClient) => Promise<T>): Promise<T> {
    const client = await (await this.get()).connect();
    const speaker: Speaker = client as Speaker;
    let lost: Error | undefined;
    // A connection that breaks says so by an event, too, which without a listener ends the process.
    const onError = (error: Error): void => {
      lost = error;
    };
    speaker.on?.('error', onError);
    try {
      return await work(client);
    } catch (error) {
      // Whatever was wrong: a new connection costs little, and one that is half dead much.
      lost ??= error as Error;
      throw error;
    } finally {
      speaker.removeListener?.('error', onError);
      client.release(lost);
    }
  }

  /** Ends a pool of our own; the user's stays. */
  async end(): Promise<void> {
    this.#isEnded = true;
    const opening = this.#opening;
    this.#opening = undefined;
    await (await opening)?.end();
    this.#sockets.ended();
  }
}

async function openPool(url: string, sockets: Sockets): Promise<PgPool> {
  const { Pool } = await loadPg();
  const pool = new Pool({
    connectionString: url,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
    application_name: 'respool outbox',
    max: CONNECTIONS_MAX,
    stream: sockets.make,
  });
  // An idle connection that breaks is replaced; without a listener it would end the process.
  pool.on('error', () => undefined);
  // So would one that the server ends as soon as it is made, before whoever waits can listen.
  pool.on('connect', (client) => {
    client.on('error', () => undefined);
  });
  return pool;
}
