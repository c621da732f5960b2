/**
 * remove — takes away old queues in which nothing is left, and none that was seen with messages.
 *
 *   count ─empty, unused─▶ unbind ─▶ wait until the broker has counted again ─▶ count ─▶ delete
 *
 * n.b. A quorum queue cannot be asked to go only if it is empty: sending that ends the connection.
 * A passive declare does not show what is being dead-lettered: only the management API does.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { show, textOf } from '../../core/errors.ts';
import { sleep } from '../../system/wait.ts';
import { closeChannel, openChannel, passiveQueues } from '../connection/amqp.ts';
import type { BindingInfo, Management } from '../management/management.ts';
import { type Inflow, openInflows, usedExchanges, whyInflow, worldOf } from './inflow.ts';
import {
  type Count,
  messageCountOf,
  isInner,
  isLastingReturn,
  isReturn,
  type LeavingQueue,
  type Migration,
  NEEDS_MANAGEMENT,
  runOut,
  type SharedWait,
  sharedWaitOf,
  step,
  whyShared,
} from './old-topology.ts';
import { queuesOf } from '../topology/broker-state.ts';

/** The broker counts every 5 s (NUMBERS of management.ts): the second count has to be another. */
const COUNT_AGAIN_MS = 6 * SECOND_MS;
/** This often, and so far apart, is it counted before a number that may be old is believed. */
const LOOKS_MAX = 20;
const LOOK_EVERY_MS = SECOND_MS;

/** Whether nothing of the old topology is left. */
export async function removeOld(
  migration: Migration,
  there: readonly LeavingQueue[],
): Promise<boolean> {
  const { options, clock, todo } = migration;
  const { management } = options;
  if (management === undefined) {
    if (there.length === 0 && migration.move.exchanges.length === 0) return true;
    todo.push(NEEDS_MANAGEMENT);
    for (const { name } of there) keep(migration, name, 0, 'it is unknown whether it is empty');
    return false;
  }
  const at = { migration, management };
  let counted = await judge(at, there);
  // What was moved just now is still in the numbers of the management API.
  for (let look = 1; look < LOOKS_MAX && counted.some((one) => one.isUnsettled); look += 1) {
    await sleep(clock, LOOK_EVERY_MS);
    counted = await judge(at, there);
  }
  const empty = counted.filter(({ why }) => why === undefined).map(({ queue }) => queue);
  if (empty.length > 0) {
    for (const queue of empty) await unbind(at, queue);
    await sleep(clock, COUNT_AGAIN_MS);
  }
  const again = new Map((await judge(at, empty)).map((one) => [one.queue.name, one]));
  let isDone = true;
  for (const first of counted) {
    const { queue, why, messages, type } = again.get(first.queue.name) ?? first;
    const isGone = why === undefined && (await remove(migration, queue.name, type));
    if (why !== undefined) keep(migration, queue.name, messages, why);
    isDone &&= isGone;
  }
  return isDone && (await removeExchanges(at));
}

interface At {
  readonly migration: Migration;
  readonly management: Management;
}

interface Judged {
  readonly queue: LeavingQueue;
  readonly messages: number;
  readonly type: string | undefined;
  /** Why it has to stay. */
  readonly why: string | undefined;
  /** Only by numbers that may be old. */
  readonly isUnsettled: boolean;
}

async function judge(at: At, queues: readonly LeavingQueue[]): Promise<Judged[]> {
  if (queues.length === 0) return [];
  const { migration, management } = at;
  management.forget();
  const mains = [...migration.move.mains.keys()];
  const names = [...new Set([...queues.map(({ name }) => name), ...mains])];
  const [passive, infos, world] = await Promise.all([
    passiveQueues(migration.connection, names),
    queuesOf(management, names),
    worldOf(management),
  ]);
  const { bindings } = world;
  const sharedWait = await sharedWaitOf(migration, management, bindings);
  const counts = new Map(
    names.map((name) => [name, messageCountOf(passive.get(name), infos.get(name))]),
  );
  const busy = mains.filter((name) => (counts.get(name)?.consumers ?? 0) > 0);
  const stays = (name: string): boolean => migration.move.mains.get(name) === name;
  const facts: Facts = {
    migration,
    counts,
    bindings,
    inflows: openInflows(migration, world),
    sharedWait,
    busyOld: busy.find((name) => !stays(name)),
    busyMain: busy.find(stays),
    fullWait: queues.find(
      ({ name, role }) => role === 'wait' && (counts.get(name)?.messages ?? 1) > 0,
    ),
  };
  const isCrowdOld = [...counts.values()].some((count) => count.isConsumersOld);
  return queues.map((queue) => {
    const count = counts.get(queue.name);
    const { type } = infos.get(queue.name) ?? {};
    const held = whyHeld(queue, facts);
    const why = whyUsed(queue, facts) ?? held ?? whyNeeded(facts);
    const isOld = count?.ready === 0 && count.messages !== 0;
    const isShared = sharedWait !== undefined && held === whyShared(sharedWait);
    const mayPass = isOld || (isShared && sharedWait.isUnsettled);
    // A consumer that is gone, such as the one that moved messages, is still listed for a while.
    const isUnsettled =
      (held !== undefined && why === held && mayPass) || (isCrowdOld && why !== undefined);
    return { queue, messages: count?.messages ?? 0, type, why, isUnsettled };
  });
}

interface Facts {
  readonly migration: Migration;
  readonly counts: ReadonlyMap<string, Count>;
  readonly bindings: readonly BindingInfo[];
  /** Ways into the queues from what is not in the old topology. */
  readonly inflows: readonly Inflow[];
  /** Messages in wait queues that stay: they may come to a main queue that is to go. */
  readonly sharedWait: SharedWait | undefined;
  /** A main queue that is to go and has consumers: they use everything that belongs to it. */
  readonly busyOld: string | undefined;
  /** A main queue that keeps its name and has consumers. */
  readonly busyMain: string | undefined;
  readonly fullWait: LeavingQueue | undefined;
}

/** It has messages, or may get some. */
function whyHeld(queue: LeavingQueue, facts: Facts): string | undefined {
  const { migration, counts, fullWait, inflows, sharedWait } = facts;
  const { name, role } = queue;
  const { messages } = counts.get(name) ?? {};
  if (messages === undefined) return 'the broker has not counted it yet; run again in 10s';
  if (messages > 0 && role === 'wait' && migration.options.waits === 'leave') return runOut(queue);
  if (messages > 0) return `it holds ${messages} messages; run again`;
  const inflow = inflows.find(({ target }) => target === name);
  if (inflow !== undefined) return whyInflow(inflow);
  if (role === 'wait') return undefined;
  if (fullWait !== undefined) {
    return `messages wait in ${show(fullWait.name)} and may come to it; run again`;
  }
  return sharedWait && whyShared(sharedWait);
}

/** It is still in use. */
function whyUsed(queue: LeavingQueue, facts: Facts): string | undefined {
  const { migration, counts, busyMain } = facts;
  const { consumers = 0 } = counts.get(queue.name) ?? {};
  if (consumers > 0) return `it has ${consumers} consumers; stop them, and run again`;
  if (busyMain !== undefined && migration.options.oldConsumersGone !== true) {
    return (
      `the queue ${show(busyMain)} has consumers, which may still use it; when none of the old ` +
      'ones runs, say so (oldConsumersGone, --old-consumers-gone) and run again'
    );
  }
  return whyBound(queue, facts);
}

/** Consumers of an old main queue put messages into the queues around it, dead ones too. */
function whyNeeded({ busyOld }: Facts): string | undefined {
  if (busyOld === undefined) return undefined;
  return `consumers of ${show(busyOld)} may still put messages into it; stop them, and run again`;
}

function whyBound(
  { name, role }: LeavingQueue,
  { migration, bindings }: Facts,
): string | undefined {
  const { move } = migration;
  const foreign = bindings.find(
    (one) => one.destination === name && one.exchange !== '' && !isOurs(one, migration),
  );
  if (foreign !== undefined) {
    return `it is bound to the exchange ${show(foreign.exchange)}; unbind it, and run again`;
  }
  if (role !== 'wait' && role !== 'unrouted') return undefined;
  const known = new Set([...move.leaving, ...move.topology.queues].map((one) => one.name));
  const other = bindings.find(
    ({ exchange, destination, to }) =>
      exchange !== '' && isInner(exchange, move) && to === 'queue' && !known.has(destination),
  );
  return other && `the queue ${show(other.destination)} uses it too; migrate that one as well`;
}

/** A binding that came with the old topology. */
function isOurs(binding: BindingInfo, { move }: Migration): boolean {
  const { exchange, destination, key } = binding;
  const isPlanned = move.bindings.some(
    (one) => one.queue === destination && one.exchange === exchange && one.key === key,
  );
  const isMain = move.mains.has(destination);
  return isInner(exchange, move) || isReturn(binding, move) || (isPlanned && !isMain);
}

async function unbind({ migration, management }: At, { name }: LeavingQueue): Promise<void> {
  const { move } = migration;
  const bound = (await management.bindings(name)).filter(
    (one) => one.exchange !== '' && !isLastingReturn(one, move),
  );
  for (const { exchange, key, arguments: args } of bound) {
    const channel = await openChannel(migration.connection);
    await channel.unbindQueue(name, exchange, key, { ...args });
    await closeChannel(channel);
    const text = `from exchange ${show(exchange)} with key ${show(key)}`;
    migration.steps.push(step('unbind', name, 0, text));
  }
}

async function remove(
  migration: Migration,
  name: string,
  type: string | undefined,
): Promise<boolean> {
  const channel = await openChannel(migration.connection);
  try {
    const { messageCount, consumerCount } = await channel.checkQueue(name);
    if (messageCount > 0 || consumerCount > 0) {
      await closeChannel(channel);
      keep(migration, name, messageCount, 'something came at the last moment; run again');
      return false;
    }
    await channel.deleteQueue(name, type === 'classic' ? { ifEmpty: true, ifUnused: true } : {});
    await closeChannel(channel);
  } catch (error) {
    keep(migration, name, 0, `the broker refused: ${textOf(error)}`);
    return false;
  }
  migration.steps.push(step('remove', name, 0, 'was empty, unbound and without consumers'));
  return true;
}

async function removeExchanges({ migration, management }: At): Promise<boolean> {
  const world = await worldOf(management);
  // What is removed names no alternate any more.
  const exchanges = new Map(world.exchanges);
  let isDone = true;
  // Those with an alternate first: what they name is free then.
  for (const name of migration.move.exchanges) {
    if (!exchanges.has(name)) continue;
    if (usedExchanges({ ...world, exchanges }).has(name)) {
      keep(migration, name, 0, 'the exchange is used by others');
      isDone = false;
      continue;
    }
    const channel = await openChannel(migration.connection);
    await channel.deleteExchange(name, { ifUnused: true });
    await closeChannel(channel);
    exchanges.delete(name);
    migration.steps.push(step('remove', name, 0, 'the exchange was not used any more'));
  }
  return isDone;
}

function keep({ steps, todo }: Migration, name: string, messages: number, why: string): void {
  steps.push(step('keep', name, messages, why));
  todo.push(`${show(name)}: ${why}`);
}
