/**
 * old-topology — the topology that is to go: which queue of the new one takes what is in each,
 * and as which copy, how much that is, and the way back to an old main queue from wait queues that
 * stay because other queues use them too.
 *
 * Whose messages wait there cannot be seen without taking them out, so the old main queue stays
 * until all of those wait queues are empty, at two counts. Its return binding goes with it, not
 * before: what comes back late still finds its queue, and is moved at the next run.
 */

import { formatDuration } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { MigrateOptions, MigrateStep, OldQueue } from '../admin/reports.ts';
import {
  type AmqpConnection,
  type AmqpMessage,
  type Outgoing,
  type PassiveQueue,
  passiveQueues,
  type QueueState,
} from '../connection/amqp.ts';
import type { QueueInfo, BindingInfo, Management } from '../management/management.ts';
import {
  changedCopy,
  countOf,
  type HistoryWire,
  likelyOwner,
  outOfWait,
  respoolWire,
  sureOwner,
} from '../message-history.ts';
import { isSameBinding } from '../topology/broker-state.ts';
import {
  type BindingSpec,
  mergeTopologies,
  type QueuePlan,
  type QueueRole,
  type Route,
  type Topology,
  waitMsOf,
} from '../topology/model.ts';

/** What leaves and what comes. */
export interface Move {
  /** Queues that are not in the new topology, in the order in which they are emptied. */
  readonly leaving: readonly LeavingQueue[];
  /** Main queues of the old topology and their new names; the same name: it stays. */
  readonly mains: ReadonlyMap<string, string>;
  readonly plans: readonly QueuePlan[];
  readonly topology: Topology;
  readonly bindings: readonly BindingSpec[];
  /** The old topology in full; undefined: only names and roles are known. */
  readonly described: Topology | undefined;
  /** Exchanges of the old topology that only its own queues need, and the new one does not. */
  readonly exchanges: readonly string[];
  /** Exchanges that the old wait queues lead back through, whether they go or stay. */
  readonly backs: readonly string[];
}

export interface LeavingQueue {
  readonly name: string;
  readonly role: QueueRole;
  /** The old main queue whose messages are there; undefined: of several. */
  readonly owner: string | undefined;
  /** Of a wait queue; undefined: each message has a TTL of its own. */
  readonly waitMs: number | undefined;
  /** Where its dead letters go, as far as it is known. */
  readonly deadLetters: string | undefined;
}

/** Wait queues first: what comes back from them is moved with the main queue. */
const ORDER: readonly QueueRole[] = ['wait', 'main', 'dead', 'parked', 'unrouted'];

export function moveOf({ from, to, renamed = {} }: MigrateOptions): Move {
  const plans = 'queue' in to ? [to] : to;
  if (plans.length === 0) throw invalid('there is no new topology; give one plan or more as "to"');
  const topology = mergeTopologies(plans);
  const old = oldQueues(from);
  const oldMains = old.filter(({ role }) => role === 'main').map(({ name }) => name);
  const mains = new Map(
    oldMains.map((name) => [name, newName(name, { oldMains, plans, renamed })]),
  );
  const stays = new Set(topology.queues.map(({ name }) => name));
  const given: Topology = 'queues' in from ? from : NOTHING;
  refuseChanged(given, topology);
  const leaving = old
    .filter(({ name }) => !stays.has(name))
    .toSorted((a, b) => ORDER.indexOf(a.role) - ORDER.indexOf(b.role))
    .map((one) => leavingQueue(one, oldMains, given));
  return {
    leaving,
    mains,
    plans,
    topology,
    bindings: given.bindings,
    described: 'queues' in from ? from : undefined,
    exchanges: ownExchanges(given, topology),
    backs: backsOf(given),
  };
}

const NOTHING: Topology = { exchanges: [], queues: [], bindings: [], policies: [] };

function oldQueues(from: MigrateOptions['from']): readonly OldQueue[] {
  if (!('queues' in from)) return from;
  return from.queues.map((spec) => {
    const waitMs = waitMsOf(spec);
    return { name: spec.name, role: spec.role, ...(waitMs === undefined ? {} : { waitMs }) };
  });
}

interface Naming {
  readonly oldMains: readonly string[];
  readonly plans: readonly QueuePlan[];
  readonly renamed: Readonly<Record<string, string>>;
}

function newName(old: string, { oldMains, plans, renamed }: Naming): string {
  const [first] = plans;
  const isPair = oldMains.length === 1 && plans.length === 1;
  const same = plans.find((plan) => plan.queue === old);
  const name = renamed[old] ?? same?.queue ?? (isPair ? first?.queue : undefined);
  if (name !== undefined && plans.some((plan) => plan.queue === name)) return name;
  throw invalid(
    name === undefined
      ? `no successor of ${show(old)} is known; name it in "renamed"`
      : `"renamed" sends ${show(old)} to ${show(name)}, which is not in the new topology`,
  );
}

/** A queue keeps its arguments for life: with others it needs another name. */
function refuseChanged(from: Topology, to: Topology): void {
  try {
    mergeTopologies([
      { ...NOTHING, queues: from.queues, exchanges: from.exchanges },
      { ...NOTHING, queues: to.queues, exchanges: to.exchanges },
    ]);
  } catch (error) {
    const said = error instanceof Error ? error.message : '';
    const text =
      `cannot migrate: the old and the new topology share a name and differ there (${said}); ` +
      'a queue or exchange cannot change at the broker: give the new one another name, such as ' +
      'the queue with ".v2" at its end, or another prefix';
    throw new RespoolError('topology.mismatch', text, { cause: error });
  }
}

function leavingQueue(
  { name, role, of, waitMs }: OldQueue,
  oldMains: readonly string[],
  from: Topology,
): LeavingQueue {
  const args = from.queues.find((queue) => queue.name === name)?.arguments;
  // n.b. Without a TTL of its own a queue lets each message wait by its own.
  if (role === 'wait' && waitMs === undefined && args === undefined) {
    throw invalid(`how long messages wait in ${show(name)} is unknown; give its "waitMs"`);
  }
  const deadLetters = args?.['x-dead-letter-exchange'];
  return {
    name,
    role,
    owner: of ?? (isForMany(role, args, from) ? undefined : nameOwner(name, role, oldMains)),
    waitMs,
    deadLetters: typeof deadLetters === 'string' ? deadLetters : undefined,
  };
}

/** A wait queue without a key of its own leads back to whichever queue a message names. */
function isForMany(
  role: QueueRole,
  args: Topology['queues'][number]['arguments'] | undefined,
  { exchanges }: Topology,
): boolean {
  if (role !== 'wait' || args === undefined) return false;
  if (args['x-dead-letter-routing-key'] !== undefined) return false;
  // A fanout leads to what is bound to it, whatever a message names.
  const back = exchanges.find(({ name }) => name === args['x-dead-letter-exchange']);
  return back?.type !== 'fanout';
}

function nameOwner(name: string, role: QueueRole, oldMains: readonly string[]): string | undefined {
  if (role === 'main') return name;
  const fitting = oldMains.filter((main) => name.startsWith(main));
  const [longest] = fitting.toSorted((a, b) => b.length - a.length);
  const [only, ...more] = oldMains;
  const isEnd = role === 'dead' || role === 'parked';
  return longest ?? (isEnd && more.length === 0 ? only : undefined);
}

function backsOf({ queues }: Topology): string[] {
  const waits = queues.filter(({ role }) => role === 'wait');
  const named = waits.map((queue) => queue.arguments['x-dead-letter-exchange']);
  return [...new Set(named.filter((name) => typeof name === 'string'))];
}

/** Exchanges between the queues of the old topology; those of users are not ours to remove. */
function ownExchanges(from: Topology, to: Topology): string[] {
  const stays = new Set(to.exchanges.map(({ name }) => name));
  const own = new Set<unknown>(
    from.queues.map((queue) => queue.arguments['x-dead-letter-exchange']),
  );
  for (const { name, arguments: args } of from.exchanges) {
    if (own.has(name)) own.add(args['alternate-exchange']);
    const led = from.bindings.filter(({ exchange }) => exchange === name);
    const roles = led.map(({ queue }) => from.queues.find((one) => one.name === queue)?.role);
    if (led.length > 0 && roles.every((role) => role === 'wait')) own.add(name);
  }
  return from.exchanges.map(({ name }) => name).filter((name) => own.has(name) && !stays.has(name));
}

/** The copy for the new topology; undefined: it is not ours, and stays. */
export function newPlaceOf(
  message: AmqpMessage,
  queue: LeavingQueue,
  move: Move & { readonly id: string; readonly wire: HistoryWire | undefined },
): Outgoing | undefined {
  const { wire = respoolWire, id } = move;
  const oldMain = queue.owner ?? oldOwner(message, move);
  const owner = oldMain === undefined ? undefined : move.mains.get(oldMain);
  const plan = move.plans.find((one) => one.queue === owner);
  if (plan === undefined || oldMain === undefined) return undefined;
  if (queue.role === 'wait') return waitCopy(message, queue, { plan, oldMain, wire, id });
  const keepsEnding = queue.role === 'dead' || queue.role === 'parked';
  const to = routeFor(queue.role, plan);
  return changedCopy(message, { to, owner: plan.queue, from: oldMain, id, keepsEnding, wire });
}

/** If our headers name a queue, no other is guessed: that one may belong to another system. */
function oldOwner(message: AmqpMessage, { mains }: Move): string | undefined {
  const sure = sureOwner(message);
  const said = sure === undefined ? [likelyOwner(message), message.fields.routingKey] : [sure];
  return said.find((name) => name !== undefined && mains.has(name));
}

interface Waiting {
  readonly plan: QueuePlan;
  readonly oldMain: string;
  readonly wire: HistoryWire;
  readonly id: string;
}

/** It restarts its wait, in a queue that is long enough: late rather than early. */
function waitCopy(
  amqpMessage: AmqpMessage,
  queue: LeavingQueue,
  { plan, oldMain, wire, id }: Waiting,
): Outgoing {
  const waitMs = queue.waitMs ?? countOf(amqpMessage.properties.expiration);
  const message = outOfWait(amqpMessage);
  const past = wire.read(message, oldMain);
  const { attempts, routingKey } = past;
  const to = plan.wait({ delayMs: waitMs, attempt: attempts, routingKey });
  const restMs = past.restMs + Math.max(0, waitMs - to.waitMs);
  return changedCopy(message, { to, owner: plan.queue, from: oldMain, id, past: { restMs }, wire });
}

function routeFor(role: QueueRole, plan: QueuePlan): Route {
  if (role === 'dead') return plan.dead;
  if (role === 'parked') return plan.parked;
  const unrouted = plan.topology.queues.find((queue) => queue.role === 'unrouted');
  if (role === 'unrouted' && unrouted !== undefined) return { exchange: '', key: unrouted.name };
  return plan.again;
}

function invalid(why: string): RespoolError {
  return new RespoolError('config.invalid', `cannot migrate: ${why}`);
}

/** What a migration works with, and what it has to tell. */
export interface Migration {
  readonly options: MigrateOptions;
  readonly move: Move;
  readonly connection: AmqpConnection;
  readonly clock: Clock;
  readonly steps: MigrateStep[];
  readonly todo: string[];
}

/** Exchanges between the old queues: they are needed until nothing can come back any more. */
export function isInner(exchange: string, { exchanges, leaving }: Move): boolean {
  return (
    exchange === '' ||
    exchanges.includes(exchange) ||
    leaving.some(({ deadLetters }) => deadLetters === exchange)
  );
}

export const NEEDS_MANAGEMENT: string =
  'give the management API: without it, messages that are still being dead-lettered cannot be ' +
  'seen and what is bound, so no old queue is removed';

export function runOut({ waitMs }: LeavingQueue): string {
  const when = waitMs === undefined ? 'when it is empty' : `in ${formatDuration(waitMs)}`;
  return `left to run out: run again ${when}`;
}

export function step(
  kind: MigrateStep['kind'],
  name: string,
  messages: number,
  text: string,
): MigrateStep {
  return { kind, name, messages, text };
}

// How many messages a queue holds, by two sources: a passive declare, which is right now
// and blind to what is in hand or on the way out, and the management API, which may be 5 s old.

export interface Count {
  /** All that it holds, also in hand and on the way out; undefined: unknown. */
  readonly messages: number | undefined;
  /** Of those, what a passive declare shows: right now. */
  readonly ready: number;
  readonly consumers: number;
  /** Consumers only by numbers that may be old: they may have gone. */
  readonly isConsumersOld: boolean;
}

export function messageCountOf(
  passive: PassiveQueue<QueueState> | undefined,
  info: QueueInfo | undefined,
): Count {
  const state = passive !== undefined && 'found' in passive ? passive.found : undefined;
  const ready = state?.messageCount ?? 0;
  const consumers = Math.max(state?.consumerCount ?? 0, info?.consumers ?? 0);
  const isConsumersOld = state?.consumerCount === 0 && consumers > 0;
  const isTold = state !== undefined && info?.messages !== undefined;
  if (!isTold) {
    return { messages: ready === 0 ? undefined : ready, ready, consumers, isConsumersOld };
  }
  const inAll = (info.ready ?? 0) + (info.unacked ?? 0) + (info.deadLettering ?? 0);
  const held = inAll + (info.delayed ?? 0);
  return { messages: Math.max(ready, info.messages ?? 0, held), ready, consumers, isConsumersOld };
}

/** Whether a binding is the way back from the wait queues to a main queue of the old topology. */
export function isReturn(binding: BindingInfo, { bindings, backs, mains }: Move): boolean {
  return (
    mains.has(binding.destination) &&
    backs.includes(binding.exchange) &&
    bindings.some((one) => isSameBinding(one, binding))
  );
}

/** Whether it has to stay for as long as its queue does. */
export function isLastingReturn(binding: BindingInfo, move: Move): boolean {
  const isKept = move.topology.exchanges.some(({ name }) => name === binding.exchange);
  return isKept && isReturn(binding, move);
}

/** A wait queue that stays, with messages that may be of an old main queue. */
export interface SharedWait {
  readonly name: string;
  /** Undefined: the broker has not counted it yet. */
  readonly messages: number | undefined;
  readonly waitMs: number;
  /** The exchange that it leads back through. */
  readonly exchange: string;
  /** Only by numbers that may be old. */
  readonly isUnsettled: boolean;
}

/**
 * A wait queue that stays, has messages or is uncounted, and leads to where a leaving main queue is
 * bound: one with a present count before others, then the longest.
 */
export async function sharedWaitOf(
  { move, connection }: Migration,
  management: Management,
  bindings: readonly BindingInfo[],
): Promise<SharedWait | undefined> {
  const leaving = new Set(move.leaving.map(({ name }) => name));
  const returns = bindings.filter(
    (one) => leaving.has(one.destination) && one.to === 'queue' && isReturn(one, move),
  );
  const backs = new Set(returns.map(({ exchange }) => exchange));
  if (backs.size === 0) return undefined;
  const there = await management.queues();
  const waits = there.flatMap((info) => {
    const { name } = info;
    const [exchange, waitMs] = [of(info, 'dead-letter-exchange'), of(info, 'message-ttl')];
    const isWait = typeof exchange === 'string' && typeof waitMs === 'number';
    if (!isWait || !backs.has(exchange) || leaving.has(name)) return [];
    return [{ info, name, exchange, waitMs }];
  });
  const names = waits.map(({ name }) => name);
  const passive = await passiveQueues(connection, names);
  const full = waits.flatMap(({ info, ...wait }): SharedWait[] => {
    const { messages, ready } = messageCountOf(passive.get(wait.name), info);
    return messages === 0 ? [] : [{ ...wait, messages, isUnsettled: ready === 0 }];
  });
  // A number that is right now comes before one that may be old.
  const [first] = full.toSorted(
    (a, b) => Number(a.isUnsettled) - Number(b.isUnsettled) || b.waitMs - a.waitMs,
  );
  return first;
}

function of({ arguments: args, policyDefinition }: QueueInfo, setting: string): unknown {
  return args[`x-${setting}`] ?? policyDefinition[setting];
}

/** Why a queue stays, and how it ends where other queues keep the wait queues full. */
export function whyShared({ name, messages, waitMs, exchange }: SharedWait): string {
  if (messages === undefined) {
    return `the broker has not counted ${show(name)} yet, from which messages may come; run again`;
  }
  const longest = formatDuration(waitMs);
  return (
    `messages may still wait for it, up to ${longest}: ${show(name)} holds ${messages}, of this ` +
    `queue or of others; run again when it is empty. Where others keep it full: ${longest} ` +
    `after the last consumer of the old queue stopped, unbind the old queue from ` +
    `${show(exchange)} by hand, and run again`
  );
}
