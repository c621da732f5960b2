/**
 * transaction — begin, do, commit, on one connection of a pool; what fails is rolled back.
 */

import { RespoolError } from '../core/errors.ts';
import { isPool } from './tx.ts';

/** A connection of a pool, as `pg` gives it. */
export interface TxClient {
  query(
    text: string,
    values?: unknown[],
  ): Promise<{
    readonly rows: readonly Readonly<Record<string, unknown>>[];
    readonly rowCount?: number | null;
    readonly command?: string;
  }>;
}

/** What gives connections: a `pg.Pool` of yours. */
export interface TxPool {
  connect(): Promise<TxClient & { release(error?: Error | boolean): void }>;
}

/** What a pool gives, with everything that can be done with it. */
export type ClientOf<Pool> = Pool extends {
  connect: { (): Promise<infer Client>; (callback: never): unknown };
}
  ? Client
  : Pool extends { connect(): Promise<infer Client> }
    ? Client
    : TxClient;

/** What a connection that is lost while it is ours says it with. */
export interface Speaker {
  on?(event: 'error', listener: (error: Error) => void): unknown;
  removeListener?(event: 'error', listener: (error: Error) => void): unknown;
}

/**
 * Runs `fn` in a transaction: committed when it resolves, rolled back when it throws. What `fn`
 * emits is there if, and only if, this resolves.
 */
export async function transaction<Pool extends TxPool, T>(
  pool: Pool,
  fn: (tx: ClientOf<Pool>) => Promise<T> | T,
): Promise<T> {
  if (!isPool(pool)) {
    throw new RespoolError(
      'config.invalid',
      'cannot begin a transaction: the first argument is no pool with connect(); give a pg.Pool',
    );
  }
  const client = await pool.connect();
  const speaker: Speaker = client as Speaker;
  let lost: Error | undefined;
  // A connection that breaks while nobody asks it anything says so by an event, and without a
  // listener ends the process. Whoever asks next hears of it.
  const onError = (error: Error): void => {
    lost = error;
  };
  speaker.on?.('error', onError);
  try {
    await client.query('BEGIN');
    const value = await fn(client as ClientOf<Pool>);
    await commit(client);
    return value;
  } catch (error) {
    // A rollback that fails leaves a connection in no known state: it is closed, which rolls back.
    await client.query('ROLLBACK').catch((failure: Error) => {
      lost ??= failure;
    });
    throw error;
  } finally {
    speaker.removeListener?.('error', onError);
    client.release(lost);
  }
}

async function commit(client: TxClient): Promise<void> {
  const { command } = await client.query('COMMIT');
  // n.b. The server answers the COMMIT of a transaction in which a statement failed by rolling it
  // back, without an error.
  if (command !== 'ROLLBACK') return;
  throw new RespoolError(
    'config.invalid',
    'the transaction was rolled back at its commit: a statement in it had failed, and its error ' +
      'was caught; let it through, or use a savepoint',
  );
}
