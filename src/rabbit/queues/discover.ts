/**
 * discover — which queues a sweep goes through, and where each of them leads: the queue that takes
 * what is finally given up is made if it is missing, or required, and never changed.
 *
 * Promise: one bad pattern or queue stops no other. Nothing leads into a queue that is swept, and
 * nothing that cannot be swept is touched.
 *
 * Called by sweep.ts and sweep-queue.ts; `ensureTarget` also by queue-letters.ts, for parked
 * queues.
 */

import { RespoolError, textOf } from '../../core/errors.ts';
import { checkGlobTarget, compileGlob, fillTarget, type Glob } from '../../core/glob.ts';
import {
  type AmqpConnection,
  closeChannel,
  openChannel,
  passiveQueues,
  SHORT_MAX_BYTES,
} from '../connection/amqp.ts';
import type { QueueInfo, Management } from '../management/management.ts';
import { explainRefusal, inFull } from '../topology/explain.ts';
import { DELIVERY_LIMIT_SAFE } from '../topology/parts.ts';
import { isLockName } from './lock.ts';

/** A queue, and where what died too often goes. */
export interface SweepPair {
  readonly queue: string;
  readonly target: string;
}

/** What is not swept, and why. */
export interface SweepProblem {
  readonly queue?: string;
  readonly pattern?: string;
  readonly text: string;
  /** Whether that is as it should be: a queue that fits a pattern, but is left out. */
  readonly isSkipped: boolean;
}

export interface FoundPairs {
  readonly pairs: readonly SweepPair[];
  readonly problems: readonly SweepProblem[];
}

/** The queues that fit the patterns, in the order of the patterns and of their names. */
export async function findPairs(
  management: Management | undefined,
  { patterns, target }: { readonly patterns: readonly string[]; readonly target: string },
): Promise<FoundPairs> {
  const problems: SweepProblem[] = [];
  const globs = patterns.flatMap((pattern) => readable(pattern, target, problems));
  const infos = await listed(management, globs, problems);
  const found = new Map<string, SweepPair>();
  for (const glob of globs) {
    const pairs = pairsOf(glob, target, infos);
    for (const pair of pairs) if (!found.has(pair.queue)) found.set(pair.queue, pair);
    if (pairs.length === 0 && infos !== undefined) {
      const text = `no queue matches the pattern ${inFull(glob.pattern)}`;
      problems.push({ pattern: glob.pattern, text, isSkipped: false });
    }
  }
  const targets = new Set([...found.values()].filter(hasOtherTarget).map((pair) => pair.target));
  const pairs = [...found.values()].filter((pair) => {
    const problem = problemOf(pair, targets, infos?.get(pair.queue));
    if (problem !== undefined) problems.push(problem);
    return problem === undefined;
  });
  return { pairs, problems };
}

type Infos = ReadonlyMap<string, QueueInfo>;

function readable(pattern: string, target: string, problems: SweepProblem[]): Glob[] {
  try {
    const glob = compileGlob(pattern);
    const text = checkGlobTarget(target, glob);
    if (text === undefined) return [glob];
    problems.push({ pattern, text, isSkipped: false });
  } catch (error) {
    problems.push({ pattern, text: textOf(error), isSkipped: false });
  }
  return [];
}

/** undefined: not queried; plain names need no list. */
async function listed(
  management: Management | undefined,
  globs: readonly Glob[],
  problems: SweepProblem[],
): Promise<Infos | undefined> {
  const wild = globs.filter(({ isLiteral }) => !isLiteral);
  let why = 'there is no management API to ask; give its URL, or the names of the queues';
  if (management !== undefined && wild.length > 0) {
    try {
      const queues = await management.queues({ detail: 'totals' });
      const sorted = queues.toSorted((a, b) => (a.name < b.name ? -1 : 1));
      return new Map(sorted.map((info) => [info.name, info]));
    } catch (error) {
      // Plain names can do without.
      if (wild.length === globs.length) throw error;
      why = textOf(error);
    }
  }
  for (const { pattern } of wild) {
    const text = `cannot find the queues that fit ${inFull(pattern)}: ${why}`;
    problems.push({ pattern, text, isSkipped: false });
  }
  return undefined;
}

function pairsOf(glob: Glob, target: string, infos: Infos | undefined): SweepPair[] {
  // n.b. A plain name that is missing is reported when it is swept, with a better reason.
  if (glob.isLiteral) return [{ queue: glob.pattern, target }];
  return [...(infos?.keys() ?? [])].flatMap((queue) => {
    const captures = glob.match(queue);
    return captures === undefined ? [] : [{ queue, target: fillTarget(target, glob, captures) }];
  });
}

function hasOtherTarget({ queue, target }: SweepPair): boolean {
  return queue !== target;
}

function problemOf(
  { queue, target }: SweepPair,
  targets: ReadonlySet<string>,
  info: QueueInfo | undefined,
): SweepProblem | undefined {
  const skipped = (why: string): SweepProblem => ({
    queue,
    text: `the queue ${inFull(queue)} is not swept: ${why}`,
    isSkipped: true,
  });
  if (targets.has(queue)) return skipped('it is a target of this sweep');
  if (queue === target) return { queue, text: intoItself(queue).message, isSkipped: false };
  if (isLockName(queue)) return skipped('it is a lock of a sweep');
  if (info?.exclusive === true) return skipped('it belongs to one connection (exclusive)');
  if (info?.type === 'stream') return skipped('it is a stream');
  if (Buffer.byteLength(target) <= SHORT_MAX_BYTES) return undefined;
  const text = `cannot sweep the queue ${inFull(queue)}: the name of its target is too long`;
  return { queue, text, isSkipped: false };
}

/** A queue cannot be swept into itself. */
export function intoItself(queue: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot sweep the queue ${inFull(queue)} into itself; give another target`,
  );
}

/** Drops nothing: neither after many looks, nor when it is full. */
const TARGET = {
  durable: true,
  arguments: {
    'x-queue-type': 'quorum',
    'x-delivery-limit': DELIVERY_LIMIT_SAFE,
    'x-overflow': 'reject-publish',
  },
} as const;

/** Declares a durable quorum queue unless there is a queue of this name. */
export async function ensureTarget(
  connection: AmqpConnection,
  queue: string,
): Promise<'there' | 'created'> {
  if (await isThere(connection, queue)) return 'there';
  const channel = await openChannel(connection);
  try {
    await channel.assertQueue(queue, TARGET);
  } catch (error) {
    const instead = 'declare it yourself';
    throw explainRefusal(error, { act: 'declare', what: 'queue', name: queue, instead });
  }
  await closeChannel(channel);
  return 'created';
}

/** Refuses when there is no such queue. */
export async function requireTarget(connection: AmqpConnection, queue: string): Promise<void> {
  if (await isThere(connection, queue)) return;
  throw new RespoolError(
    'topology.mismatch',
    `cannot move messages to the queue ${inFull(queue)}: there is no such queue, and it is not ` +
      'to be made; declare it, or let it be created',
  );
}

/** Whether there is a queue of this name. */
export async function isThere(connection: AmqpConnection, queue: string): Promise<boolean> {
  const answer = (await passiveQueues(connection, [queue])).get(queue);
  if (answer === undefined || !('problem' in answer)) return answer?.found !== undefined;
  throw new RespoolError(
    'topology.mismatch',
    `cannot look at the queue ${inFull(queue)}: ${answer.problem}`,
  );
}
