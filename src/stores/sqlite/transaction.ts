/**
 * transaction — a batch in one transaction, and with it the batches that came while it ran.
 *
 * So the callers of one turn of the event loop need not all have spoken before the work begins, and
 * still share one wait for the disk.
 */

import type { BatchReply, BatchRequest, Bytes, BatchJoiner } from './protocol.ts';
import type { Connection } from './connection.ts';

/** How one kind of file carries out operations. */
export interface Work<Op, Result> {
  readonly begin: () => void;
  readonly run: (op: Op, bytes: Bytes) => Result;
  readonly end: () => void;
  /** Whether a power cut must not forget it. */
  readonly needsDisk: (op: Op) => boolean;
}

/** The most operations of different batches in one transaction. */
const JOIN_MAX = 1_000;

/** Runs a batch and those that joined it; the results of all, one after the other. */
export function runBatches<Op, Result>(
  connection: Connection,
  first: BatchRequest<Op>,
  joiner: BatchJoiner<Op> | undefined,
  { begin, run, end, needsDisk }: Work<Op, Result>,
): BatchReply<Result> {
  const isDurable = first.ops.some(needsDisk);
  // How a commit is synced is settled before its transaction begins: what needs more has to wait.
  const fits = ({ ops }: BatchRequest<Op>) => isDurable || !ops.some(needsDisk);
  const results = connection.write(isDurable, () => {
    begin();
    joiner?.rewind();
    const done: Result[] = [];
    for (let batch: BatchRequest<Op> | undefined = first; batch !== undefined; ) {
      const { ops, bytes } = batch;
      let at = 0;
      for (const op of ops) {
        done.push(run(op, bytes[at]));
        at += 1;
      }
      batch = done.length < JOIN_MAX ? joiner?.next(fits) : undefined;
    }
    end();
    return done;
  });
  return {
    results,
    isDirty: connection.isDirty(),
    walPages: connection.walPages(),
  };
}
