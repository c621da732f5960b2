/**
 * batches — inserts and commits of different calls, a batch in one statement.
 */

import { type BatchLine, createBatchLine } from '../shared/batching.ts';
import type { Operations } from '../shared/operations.ts';
import { isActiveKey } from '../shared/sql-row.ts';
import type { ChangeRow } from './commit-sql.ts';
import type { ChangeResult, Changes } from './commit.ts';
import type { LazyWrites } from './durability.ts';
import { type InsertResult, type Inserts, isKeyed, type NewRow } from './insert.ts';
import type { Receipts } from './receipts.ts';
import type { Server } from './connection.ts';
import type { OrderKeyTurns } from './order-keys.ts';
import type { Notifications } from './notify.ts';

/** The most rows of different calls in one statement. */
const BATCH_MAX = 1_000;
/** Batches on their way at once, each on a connection of its own. */
const INSERTS_MAX = 2;
/**
 * One at a time: several compete for the processors with the claims, which all wait for. Beside it
 * goes one of heartbeats, which must not wait for a verdict that meets a lock.
 */
const COMMITS_MAX = 1;

/** The lines of one opened store. */
export interface Batches {
  readonly insertLine: BatchLine<NewRow, InsertResult>;
  readonly commitLine: BatchLine<ChangeRow, ChangeResult>;
  readonly heartbeatLine: BatchLine<ChangeRow, ChangeResult>;
}

/** What they work with. */
export interface BatchesParts {
  readonly server: Server;
  readonly inserts: Inserts;
  readonly receipts: Receipts;
  readonly changes: Changes;
  readonly lazy: LazyWrites;
  readonly wakes: Notifications;
  readonly turns: OrderKeyTurns;
  readonly operations: Operations;
}

export function createBatches(parts: BatchesParts): Batches {
  const commits = { batchMax: BATCH_MAX, inFlightMax: COMMITS_MAX };
  const insert = (rows: readonly NewRow[]) => insertRows(parts, rows);
  const commit = (rows: readonly ChangeRow[]) => commitRows(parts, rows);
  const { operations } = parts;
  return {
    insertLine: createBatchLine(operations.line('insert', insert), {
      batchMax: BATCH_MAX,
      inFlightMax: INSERTS_MAX,
    }),
    commitLine: createBatchLine(operations.line('commit', commit), commits),
    heartbeatLine: createBatchLine(operations.line('heartbeat', commit), commits),
  };
}

async function insertRows(
  { server, inserts, receipts, wakes, turns }: BatchesParts,
  rows: readonly NewRow[],
): Promise<readonly InsertResult[]> {
  const receipt = receipts.next();
  let isDoubtful = false;
  if (rows.some(isKeyed)) {
    turns.note();
    wakes.noteTurn();
  }
  wakes.beginInsert(rows.length);
  const results = await server
    .run('insert entries', (ask, isUnknown) => {
      isDoubtful = isUnknown;
      return inserts.insert(ask, rows, { receipt, isUnknown });
    })
    .finally(() => wakes.endInsert(rows.length));
  // A receipt that stays is removed after a day.
  if (!isDoubtful) void receipts.answered(receipt).catch(() => undefined);
  // What came in active is in hand already.
  if (rows.some(({ status }) => !isActiveKey(status.slot))) noteDue(wakes);
  return results;
}

async function commitRows(
  parts: BatchesParts,
  rows: readonly ChangeRow[],
): Promise<readonly ChangeResult[]> {
  const { server, changes, lazy, wakes } = parts;
  const ended = new Set<string>();
  const results = await server.run('change entries', (ask, isUnknown) =>
    changes.change(ask, rows, isUnknown, ended),
  );
  if (rows.every(({ isDurable }) => !isDurable)) lazy.note();
  if (rows.some(({ status }) => status !== null && !isActiveKey(status.slot))) noteDue(wakes);
  await letNextGo(parts, ended);
  return results;
}

/** Once what was first of these keys has ended: the next ones are due, and others are told. */
export async function letNextGo(
  { server, turns, wakes }: Pick<BatchesParts, 'server' | 'turns' | 'wakes'>,
  ended: ReadonlySet<string>,
): Promise<void> {
  if (ended.size === 0) return;
  try {
    const count = await server.run('let the next of a key go', (ask) =>
      turns.letGo(ask, [...ended]),
    );
    if (count === 0) return;
    wakes.noteTurn();
    noteDue(wakes);
  } catch {
    // What ended has ended. Whatever still waits behind it is found when its time has come.
  }
}

function noteDue(wakes: Notifications): void {
  wakes.noteWrite();
  wakes.tell();
}
