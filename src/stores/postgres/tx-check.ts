/**
 * tx-check — that a statement runs in the transaction it is meant for, by the word of the server.
 *
 *   statement ─▶ has its transaction an id? ─yes─▶ done
 *                          └─no─▶ nothing done, but now it has one ─▶ again, for this id alone
 *
 * Calls run beside others on one connection: by the time a statement is sent, its transaction may
 * have been rolled back, and what follows would stay by itself, or go with the transaction of
 * somebody else. A statement by itself has no transaction id (xid) when it begins; one in a
 * transaction that has written has. Every further statement of a call names the id of the first.
 */

import { RespoolError } from '../../core/errors.ts';
import type { SqlTx } from '../../ports/sql.ts';
import type { Bind } from './arrays.ts';

/** In whose transaction, and how the caller knows that there is one. */
export interface TxUse {
  /** Begins an error, as `emit "a.b"`. */
  readonly doing: string;
  /** The transaction that is meant, where it is known. */
  readonly xid?: string | undefined;
  /** Whether what is sent now is surely in it, without asking the server. */
  readonly isSure?: (() => boolean) | undefined;
  readonly habit?: TxHabit | undefined;
}

/** Whether the last transaction had written nothing before: then the next may be like it. */
export interface TxHabit {
  isFirst: boolean;
}

/** The one transaction that is meant, by its id; any that has one; or nothing is asked. */
export type TxGuard = { readonly xid: string } | 'any' | 'sure';

/**
 * The first of a statement's WITH. n.b. Whatever gives a transaction its id has to read it, so that
 * it comes after it: as `txGuardSql` does, with CASE where there is more than one condition.
 */
export function txCheckSql(guard: TxGuard): string {
  if (guard === 'sure') return '';
  return 'proof AS MATERIALIZED (SELECT txid_current_if_assigned()::text AS xid), ';
}

/** What a statement with `FROM proof p` tells, for `takes`. */
export const TX_CHECK_SQL = `p.xid AS before,
  CASE WHEN p.xid IS NULL THEN txid_current()::text END AS now`;

/** The condition under which a statement may write. */
export function txGuardSql(guard: TxGuard, bind: Bind): string {
  if (guard === 'sure') return 'true';
  const xid = '(SELECT xid FROM proof)';
  return guard === 'any' ? `${xid} IS NOT NULL` : `${xid} = ${bind(guard.xid, 'text')}`;
}

const ASK_SQL = `SELECT txid_current_if_assigned()::text AS before, txid_current()::text AS now,
  (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS time`;

/** The id of a transaction, which has one from now on, and the time of the server. */
export async function askTransaction(
  tx: SqlTx,
): Promise<{ readonly xid: string; readonly isNew: boolean; readonly time: number }> {
  const told = (await tx.query(ASK_SQL, [])).rows[0];
  const isNew = typeof told?.['before'] !== 'string';
  return { xid: String(told?.['now']), isNew, time: Number(told?.['time']) };
}

/** What one call knows of its transaction. */
export class TxCheck {
  readonly #within: TxUse;
  #xid: string | undefined;

  constructor(within: TxUse) {
    this.#within = within;
    this.#xid = within.xid;
  }

  get xid(): string | undefined {
    return this.#xid;
  }

  /** For the statement that is sent now. */
  get guard(): TxGuard {
    if (this.#xid !== undefined) return { xid: this.#xid };
    return this.isSure ? 'sure' : 'any';
  }

  get isSure(): boolean {
    return this.#within.isSure?.() === true;
  }

  /** Gets the id before anything else is sent. */
  async ask(tx: SqlTx): Promise<void> {
    if (this.#xid !== undefined) return;
    const { xid, isNew } = await askTransaction(tx);
    this.#xid = xid;
    this.#note(isNew);
  }

  /** Whether it is better asked before: nothing is sent that would have to be sent again. */
  get isDoubtful(): boolean {
    return this.guard === 'any' && this.#within.habit?.isFirst === true;
  }

  /** Whether a statement could write, by what it told; if not, it is sent again for a new guard. */
  takes(guard: TxGuard, told: Readonly<Record<string, unknown>> | undefined): boolean {
    if (guard === 'sure') return true;
    if (told === undefined) throw silent();
    const { before, now } = told;
    if (guard !== 'any' && before !== guard.xid) throw outsideTransaction(this.#within.doing);
    if (guard === 'any') this.#note(typeof before !== 'string');
    this.#xid = String(before ?? now);
    return typeof before === 'string';
  }

  #note(isFirst: boolean): void {
    if (this.#within.habit !== undefined) this.#within.habit.isFirst = isFirst;
  }
}

/** Refuses to go on in another transaction, or in none. */
export function outsideTransaction(doing: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot ${doing}: no transaction is open on this connection, or no longer the one it began ` +
      'in; begin one, and wait for what you do in it before you end it',
  );
}

function silent(): RespoolError {
  return new RespoolError(
    'config.invalid',
    'cannot use this transaction: it answered a statement that gives one row with none',
  );
}
