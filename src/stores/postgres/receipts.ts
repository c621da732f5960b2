/**
 * receipts — what a batch of inserts leaves behind until its answer has come.
 *
 *   insert + receipt ─▶ commit ─▶ answered ─▶ receipt removed, with many others
 *                          └─▶ answer lost ─▶ asked again: there is the receipt, nothing to do;
 *                                             it stays for a day, for a try that comes late
 *
 * The entries themselves are no proof: another node may have delivered and removed them before the
 * batch is tried again, and a message must not come back from the dead. Receipts are rows of their
 * own, never updated while others wait: one row changed by every insert would grow a chain of dead
 * versions wherever a long transaction keeps them.
 *
 * Why: docs/decisions/0016-inserts-on-postgresql-leave-a-receipt.md
 */

import type { Names } from './names.ts';
import type { Ask, Server } from './connection.ts';

/** Whose receipt, and which. */
interface Receipt {
  readonly node: string;
  readonly number: number;
}

/** Receipts that were answered are removed this many at a time. */
const REMOVE_AT = 256;
/** All others, as of a process that died, are removed by the next process that opens the store. */
const KEEP_FOR = '1 day';

/** The receipts of one opened store. */
export class Receipts {
  readonly #server: Server;
  readonly #node: string;
  readonly #sql: string;
  #last = 0;
  #answered: number[] = [];

  constructor(server: Server, names: Names, node: string) {
    this.#server = server;
    this.#node = node;
    this.#sql = `DELETE FROM ${names.table.receipts} WHERE node = $1 AND number = ANY($2::int8[])`;
  }

  /** The number for a batch. */
  next(): number {
    this.#last += 1;
    return this.#last;
  }

  /**
   * The answer has come, to the only try; resolves when the receipt is removed or left to a later
   * removal.
   */
  async answered(number: number): Promise<void> {
    this.#answered.push(number);
    if (this.#answered.length >= REMOVE_AT) await this.end();
  }

  /**
   * Removes those that were answered. Not those of batches with a try that was given up: a server
   * that stood still may carry it out after all, and must find the receipt.
   */
  async end(): Promise<void> {
    const numbers = this.#answered;
    if (numbers.length === 0) return;
    this.#answered = [];
    await this.#server.run('remove receipts', (ask) =>
      ask(this.#sql, [this.#node, `{${numbers.join(',')}}`]),
    );
  }
}

/** Removes what processes that died have left. */
export async function sweepReceipts(ask: Ask, { table }: Names): Promise<void> {
  await ask(
    `DELETE FROM ${table.receipts} WHERE written_at < clock_timestamp() - interval '${KEEP_FOR}'`,
  );
}

/** Part of an insert statement, which has a `refused`: stores the receipt with it. */
export function receiptSql({ table }: Names, node: string, number: string): string {
  return `INSERT INTO ${table.receipts} (node, number, refused)
  SELECT ${node}, ${number}, (SELECT json_agg(id)::text FROM refused)`;
}

/**
 * Takes the receipt for a transaction that is about to store its batch. Waits for a try that is
 * still on its way; afterwards that one cannot happen any more. Where the batch was stored already:
 * the ids that were refused, or by their places in the batch whose duplicates they are.
 */
export async function takeReceipt(
  ask: Ask,
  { table }: Names,
  { node, number }: Receipt,
): Promise<readonly string[] | Readonly<Record<number, string>> | undefined> {
  const taken = await ask(
    `INSERT INTO ${table.receipts} (node, number) VALUES ($1, $2)
  ON CONFLICT DO NOTHING RETURNING number`,
    [node, number],
  );
  if (taken.length > 0) return undefined;
  const [[refused] = []] = await ask(
    `SELECT refused FROM ${table.receipts} WHERE node = $1 AND number = $2`,
    [node, number],
  );
  return typeof refused === 'string' ? (JSON.parse(refused) as string[]) : [];
}

/** Puts down what became of a batch, by places. */
export async function keepResults(
  ask: Ask,
  { table }: Names,
  { node, number }: Receipt,
  owners: Readonly<Record<number, string>>,
): Promise<void> {
  await ask(`UPDATE ${table.receipts} SET refused = $3 WHERE node = $1 AND number = $2`, [
    node,
    number,
    JSON.stringify(owners),
  ]);
}
