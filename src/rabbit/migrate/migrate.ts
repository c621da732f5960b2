/**
 * migrate — from one topology to another, with messages in it.
 *
 *   declare the new ─▶ unbind the old main queues ─▶ move what is in the old queues ─▶ remove
 *   what is empty, unbound and without consumers, counted twice (remove.ts)
 *
 * Promise: a message is in the old or the new queue at all times. Every step may be done again:
 * a killed migration starts over. n.b. Until the old main queue is unbound, both get
 * what is published: better twice than not at all.
 */

import { show } from '../../core/errors.ts';
import { CLOCK_OPTION, type Option, readOptions } from '../../core/option-table.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { createIdMaker } from '../../system/ids.ts';
import { closeChannel, openChannel, passiveQueues } from '../connection/amqp.ts';
import { connectionOf } from '../connection/connection.ts';
import { ConfirmPublisher } from '../publish/confirm-publisher.ts';
import { applyTopology } from '../topology/declare.ts';
import { explainRefusal } from '../topology/explain.ts';
import type { BindingSpec } from '../topology/model.ts';
import { checkAsDescribed, isTakenOver } from './inflow.ts';
import {
  isInner,
  isReturn,
  type LeavingQueue,
  type Migration,
  moveOf,
  NEEDS_MANAGEMENT,
  newPlaceOf,
  runOut,
  step,
} from './old-topology.ts';
import { MOVE, MOVE_CONNECTION, moveMessages } from '../queues/drain.ts';
import { removeOld } from './remove.ts';
import type { MigrateOptions, MigrateReport } from '../admin/reports.ts';

/** Of a queue that several main queues share, before its messages are taken. */
const AT_MOST = 'into the new topology, at most: those of queues that are not migrated stay';
/** Passes through one old queue: a further one takes what came back during the last. */
const PASSES_MAX = 3;

/** The options of `migrateTopology`, in the order of error texts. */
const MIGRATE = {
  connection: MOVE_CONNECTION,
  management: {
    kind: 'code',
    type: 'the result of `createManagement`',
    ts: 'Management | undefined',
    about: 'required to remove anything: only it reports bindings and what is being dead-lettered',
  },
  from: {
    kind: 'code',
    type: 'a topology, or a list of `{ name, role, of, waitMs }`',
    ts: 'Topology | readonly OldQueue[]',
    required: true,
    about: 'the old queues',
  },
  to: {
    kind: 'code',
    type: 'a `consumer.plan`, or a list',
    ts: 'QueuePlan | readonly QueuePlan[]',
    required: true,
    about: 'the new topology',
  },
  renamed: {
    kind: 'data',
    type: 'names by name',
    ts: 'Readonly<Record<string, string>>',
    about: 'new names of old main queues, where they differ; one of each needs no list',
  },
  waits: {
    kind: 'choice',
    choices: ['move', 'leave'],
    default: 'move',
    about: 'moves waiting messages into the new wait queues, or leaves them to run out',
  },
  oldConsumersGone: {
    kind: 'boolean',
    default: false,
    about:
      'states that no consumer uses the old wait queues any more. Required to remove them while ' +
      'consumers run whose queue has kept its name: their topology cannot be determined',
  },
  unrelated: {
    kind: 'data',
    type: 'a list of patterns',
    ts: 'readonly string[]',
    about:
      'queues whose messages do not come from the old queues though they are dead-lettered by a ' +
      'key that only each message has. Others of that kind stop a migration while they are not ' +
      'empty',
  },
  dryRun: {
    kind: 'boolean',
    default: false,
    about: 'reports what would be done, and does nothing',
  },
  window: MOVE.window,
  wire: {
    kind: 'code',
    type: 'of a `compat`',
    ts: 'HistoryWire',
    defaultText: "Respool's headers",
    about:
      'how the past of messages is read, by the name of an old main queue, and written, by that ' +
      'of a new one',
  },
  onProgress: MOVE.onProgress,
  signal: MOVE.signal,
  clock: CLOCK_OPTION,
} as const;

/** The options of `migrateTopology`. */
export const MIGRATE_OPTIONS: Readonly<Record<keyof MigrateOptions, Option>> = MIGRATE;

/**
 * Brings everything from the old topology to the new one.
 *
 * @example
 * import { migrateTopology } from 'respool/rabbit';
 * const { steps, todo } = await migrateTopology({
 *   connection,
 *   from: [{ name: 'orders.retry', role: 'wait' }],
 *   to: consumer.plan,
 *   dryRun: true,
 * });
 * console.log(steps, todo);
 */
export async function migrateTopology(options: MigrateOptions): Promise<MigrateReport> {
  const { window, dryRun } = readOptions({ what: 'migrateTopology' }, options, MIGRATE);
  const { clock = systemClock } = options;
  const move = moveOf(options);
  const chosen = connectionOf({ connection: options.connection, clock }, 'a migration');
  const publisher = new ConfirmPublisher(chosen.connection.publishing, clock, {
    windowMax: window,
  });
  try {
    const connection = await chosen.connection.consuming.tryConnect();
    const migration: Migration = { options, move, connection, clock, steps: [], todo: [] };
    await checkAsDescribed(migration);
    const isDone = dryRun ? await foretell(migration) : await carryOut(migration, publisher);
    const { steps, todo } = migration;
    return { isDryRun: dryRun, isDone, steps, todo };
  } finally {
    await publisher.close();
    if (chosen.isOwned) await chosen.connection.close();
  }
}

async function carryOut(migration: Migration, publisher: ConfirmPublisher): Promise<boolean> {
  const { move, options, connection, steps } = migration;
  const applied = await applyTopology(connection, move.topology, {
    management: options.management,
  });
  for (const plan of move.plans) {
    steps.push(step('declare', plan.queue, 0, 'the new topology is there'));
  }
  for (const name of applied.policiesNotApplied) {
    migration.todo.push(`set the policy ${show(name)}: it needs the management API`);
  }
  await unbindMains(migration);
  const there = await stillThere(migration);
  for (const queue of there) await empty(queue, migration, publisher);
  if (options.signal?.aborted === true) {
    migration.todo.push('it was stopped: run it again');
    return false;
  }
  return removeOld(migration, there);
}

/** Old queues that are there, with their depth. */
async function stillThere({ move, connection }: Migration): Promise<LeavingQueue[]> {
  const names = move.leaving.map(({ name }) => name);
  const answers = await passiveQueues(connection, names);
  return move.leaving.filter(({ name }) => {
    const answer = answers.get(name);
    return answer !== undefined && !('found' in answer && answer.found === undefined);
  });
}

/** The users' bindings of old main queues, as far as the new queue has them too. */
async function unbindMains(migration: Migration): Promise<void> {
  const { connection, options, steps } = migration;
  const { gone, left } = await bindingsToEnd(migration);
  for (const { queue, exchange, key, arguments: args } of gone) {
    const channel = await openChannel(connection);
    try {
      await channel.unbindQueue(queue, exchange, key, { ...args });
      await closeChannel(channel);
    } catch (error) {
      throw explainRefusal(error, { act: 'unbind', what: 'queue', name: queue, exchange });
    }
    steps.push(step('unbind', queue, 0, `from exchange ${show(exchange)} with key ${show(key)}`));
  }
  options.management?.forget();
  tellLeft(migration, left);
}

function tellLeft({ todo }: Migration, specs: readonly BindingSpec[]): void {
  for (const { queue, exchange, key } of specs) {
    todo.push(
      `the old queue ${show(queue)} is bound to the exchange ${show(exchange)} by the key ` +
        `${show(key)}, and its successor is not: bind that one, or unbind the old one by hand`,
    );
  }
}

interface Ends {
  readonly gone: readonly BindingSpec[];
  readonly left: readonly BindingSpec[];
}

async function bindingsToEnd({ move, options }: Migration): Promise<Ends> {
  const leavingMains = new Set(
    move.leaving.filter(({ role }) => role === 'main').map(({ name }) => name),
  );
  const { management } = options;
  const known = management === undefined ? move.bindings : await boundNow(management, leavingMains);
  const users = known.filter(
    (one) =>
      leavingMains.has(one.queue) &&
      !isInner(one.exchange, move) &&
      !isReturn({ ...one, destination: one.queue, to: 'queue' }, move),
  );
  const isGone = (one: BindingSpec): boolean =>
    isTakenOver({ ...one, destination: one.queue, to: 'queue' }, move);
  return { gone: users.filter(isGone), left: users.filter((one) => !isGone(one)) };
}

async function boundNow(
  management: NonNullable<MigrateOptions['management']>,
  queues: ReadonlySet<string>,
): Promise<BindingSpec[]> {
  management.forget();
  const all = await management.bindings();
  return all
    .filter(({ destination, to }) => to === 'queue' && queues.has(destination))
    .map(({ destination, exchange, key, arguments: args }) => ({
      queue: destination,
      exchange,
      key,
      arguments: args,
    }));
}

async function empty(
  queue: LeavingQueue,
  migration: Migration,
  publisher: ConfirmPublisher,
): Promise<void> {
  const { options, connection, clock, move, steps, todo } = migration;
  const { window = MOVE.window.default, signal, onProgress, wire } = options;
  const { name } = queue;
  if (queue.role === 'wait' && options.waits === 'leave') return;
  const makeId = createIdMaker(systemDice);
  let moved = 0;
  for (let pass = 1; pass <= PASSES_MAX; pass += 1) {
    const report = await moveMessages(
      {
        queue: name,
        decide: (message) =>
          newPlaceOf(message, queue, { ...move, wire, id: makeId(clock.now()) }) ?? 'unroutable',
        max: undefined,
        window,
        onProgress,
        signal,
      },
      { connection, publisher, clock },
    );
    moved += report.moved;
    if (report.unroutable > 0) {
      todo.push(
        `${report.unroutable} messages in ${show(name)} belong to queues that are not migrated`,
      );
    }
    // Messages without an owner would only be read again.
    if (report.total === 0 || report.unroutable > 0 || report.end !== 'done') break;
  }
  if (moved > 0) steps.push(step('move', name, moved, 'moved into the new topology'));
}

/** What would be done. */
async function foretell(migration: Migration): Promise<boolean> {
  const { move, connection, options, steps } = migration;
  const wanted = move.topology.queues.map(({ name }) => name);
  const names = [...wanted, ...move.leaving.map(({ name }) => name)];
  const answers = await passiveQueues(connection, names);
  const depthOf = (name: string): number | undefined => {
    const answer = answers.get(name);
    return answer !== undefined && 'found' in answer ? answer.found?.messageCount : 0;
  };
  for (const name of wanted) {
    if (depthOf(name) === undefined) steps.push(step('declare', name, 0, 'does not exist yet'));
  }
  const { gone, left } = await bindingsToEnd(migration);
  for (const { queue, exchange, key } of gone) {
    steps.push(step('unbind', queue, 0, `from exchange ${show(exchange)} with key ${show(key)}`));
  }
  tellLeft(migration, left);
  const there = move.leaving.filter(({ name }) => depthOf(name) !== undefined);
  for (const queue of there) {
    const depth = depthOf(queue.name) ?? 0;
    const isLeft = queue.role === 'wait' && options.waits === 'leave';
    if (depth > 0 && isLeft) steps.push(step('keep', queue.name, depth, runOut(queue)));
    else if (depth > 0) {
      // Whose a message is shows only when it is taken.
      const isShared = queue.owner === undefined;
      const text = isShared ? AT_MOST : 'into the new topology';
      steps.push(step('move', queue.name, depth, text));
    }
  }
  for (const { name, role } of there) {
    const text = `the old ${role} queue, when it is empty, unbound and without consumers`;
    steps.push(step('remove', name, 0, text));
  }
  if (options.management === undefined) migration.todo.push(NEEDS_MANAGEMENT);
  return there.length === 0;
}
