/**
 * worker — the thread that waits for the disk. Started by file-thread.ts; answers in the order
 * asked.
 *
 * While a batch is at work, the batches behind it are taken into its transaction; anything else
 * waits for its turn, so that a read never sees what is not committed.
 */

import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { assert } from '../../core/errors.ts';
import { loadSqlite } from '../shared/client.ts';
import type { BatchJoiner, BatchReply, BatchRequest, FileRequest } from './protocol.ts';
import { plainError } from './errors.ts';
import { StoreFile } from './file.ts';
import {
  blocksOf,
  packReply,
  type ThreadAnswer,
  type ThreadData,
  type ThreadQuestion,
  unpackRequest,
} from './file-thread.ts';

type AnyBatch = BatchRequest<never>;
type Received = NonNullable<ReturnType<typeof receiveMessageOnPort>>;

/** The longest wait for the rest of a batch. */
const REST_MAX_MS = 5;

const { kind, settings, bell } = workerData as ThreadData;
const file = new StoreFile(kind, await loadSqlite(), settings);
const port = parentPort;
assert(port !== null, 'worker.ts was not started as a thread');

/** A question that was taken from the port and did not join. */
let held: FileRequest | null | undefined;

port.on('message', (question: ThreadQuestion) => {
  held = opened(question);
  while (held !== undefined) {
    const request = held;
    held = undefined;
    const answers = answer(request);
    const blocks = answers.flatMap((message) => ('error' in message ? [] : blocksOf(message)));
    port.postMessage(answers, blocks);
  }
});

function answer(request: FileRequest | null): ThreadAnswer[] {
  if (request !== null && request.kind === 'batch') return runBatch(request as AnyBatch);
  try {
    if (request !== null) return [packReply(file.handle(request))];
    file.close();
    return [packReply(undefined)];
  } catch (error) {
    return [{ error: plainError(error) }];
  }
}

/** One transaction; all that shared it succeed or fail together. */
function runBatch(first: AnyBatch): ThreadAnswer[] {
  const joined: AnyBatch[] = [];
  try {
    const { results, ...rest } = file.handle(first, joinerOf(first, joined)) as BatchReply<unknown>;
    let at = 0;
    return [first, ...joined].map(({ ops }) => {
      at += ops.length;
      return packReply({ results: results.slice(at - ops.length, at), ...rest });
    });
  } catch (error) {
    return [first, ...joined].map(() => ({ error: plainError(error) }));
  }
}

function joinerOf(first: AnyBatch, joined: AnyBatch[]): BatchJoiner<never> {
  let at = 0;
  return {
    rewind() {
      at = 0;
    },
    next(fits) {
      if (at === joined.length) {
        const found = nextBatch(fits, (joined.at(-1) ?? first).isPart === true);
        if (found === undefined) return undefined;
        joined.push(found);
      }
      at += 1;
      return joined[at - 1];
    },
  };
}

/** The next batch on the port, if it fits; anything else is held back for its turn. */
function nextBatch(fits: (batch: AnyBatch) => boolean, isExpected: boolean): AnyBatch | undefined {
  if (held !== undefined) return undefined;
  const question = receive() ?? (isExpected ? waitForQuestion() : undefined);
  if (question === undefined) return undefined;
  const request = opened(question.message as ThreadQuestion);
  if (request?.kind === 'batch' && fits(request as AnyBatch)) return request as AnyBatch;
  held = request;
  return undefined;
}

/**
 * Stands still until the rest of a batch comes; a program that is busy itself is not waited for.
 */
function waitForQuestion(): Received | undefined {
  if (bell === undefined) return undefined;
  const rung = Atomics.load(bell, 0);
  const question = receive();
  if (question !== undefined) return question;
  Atomics.wait(bell, 0, rung, REST_MAX_MS);
  return receive();
}

function receive(): Received | undefined {
  return port === null ? undefined : receiveMessageOnPort(port);
}

function opened(question: ThreadQuestion): FileRequest | null {
  return question === null ? null : (unpackRequest(question) as FileRequest);
}
