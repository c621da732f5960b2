/**
 * worker — the thread that waits for the disk. Started by seat.ts; answers in the order asked.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { assert } from '../../core/errors.ts';
import { loadSqlite } from '../shared/client.ts';
import { plainError } from './failures.ts';
import { openKeeper } from './kinds.ts';
import { blocksOf, packReply, unpackRequest } from './parcel.ts';
import type { SeatRequest, ThreadAnswer, ThreadData, ThreadQuestion } from './seat.ts';

const { kind, settings } = workerData as ThreadData;
const keeper = openKeeper(kind, await loadSqlite(), settings);
const port = parentPort;
assert(port !== null, 'worker.ts was not started as a thread');

port.on('message', (question: ThreadQuestion) => {
  const message = answer(question);
  port.postMessage(message, 'error' in message ? [] : blocksOf(message));
});

function answer(question: ThreadQuestion): ThreadAnswer {
  try {
    if (question !== null) return packReply(keeper.handle(unpackRequest(question) as SeatRequest));
    keeper.close();
    return packReply(undefined);
  } catch (error) {
    return { error: plainError(error) };
  }
}
