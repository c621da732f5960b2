/**
 * styles — the three ways to let a message wait: a wait queue for each delay and all queues
 * (`shared`, the default), for each delay and queue (`perDelay`), or for each attempt and queue
 * (`perAttempt`); and how their parts and routes become the plan of one queue (`assemble`). The
 * styles of other systems (rabbit/compat) use the same parts: a name that changes here changes
 * there.
 */

import * as parts from './parts.ts';
import { checkNames } from '../../core/limits.ts';
import { type OptionTable, readOptions } from '../../core/option-table.ts';
import {
  checkName,
  checkNamesOf,
  mergeTopologies,
  type QueuePlanRequest,
  type QueuePlan,
  type Route,
  type TopologyStyle,
  type WaitRequest,
  type WaitRoute,
} from './model.ts';
import { RespoolError, show } from '../../core/errors.ts';
import type { Failure } from '../../core/failure.ts';
import { delayMs, type RetryPolicy } from '../../core/policy.ts';
import { formatDuration, SECOND_MS } from '../../core/duration.ts';
import { deadName, type TopologyPart, parkedName } from './parts.ts';

const SHARED = {
  prefix: {
    kind: 'text',
    type: 'a name',
    default: 'respool',
    about: 'what names of the shared queues and exchanges begin with',
  },
} as const satisfies OptionTable;

const PER_DELAY = {
  by: {
    kind: 'choice',
    choices: ['queue', 'exchange'],
    default: 'queue',
    about: 'wait queues for each queue, or for all queues of an exchange',
  },
  exchange: {
    kind: 'text',
    type: 'a name',
    defaultText: 'the one exchange of the bindings',
    about: "with `by: 'exchange'`: whose name they carry",
  },
} as const satisfies OptionTable;

/** The options of each style. */
export const STYLE_TABLES: Readonly<Record<'shared' | 'perDelay' | 'perAttempt', OptionTable>> = {
  shared: SHARED,
  perDelay: PER_DELAY,
  perAttempt: {},
};

/** How the shared queues and exchanges are called. */
export interface SharedOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** What names of the shared queues and exchanges begin with. Default `respool`. */
  readonly prefix?: string;
}

/**
 * One wait queue per distinct delay, for all queues that use the same prefix.
 *
 *   {prefix}.wait (headers: wait-for) ─▶ {prefix}.wait.2s ─TTL─▶ {prefix}.return (headers:
 *   return-to) ─▶ {queue}
 *
 * Headers do the routing, so a message keeps the routing key that it first came with. Their names
 * do not begin with `x-`: a headers exchange would overlook them, and match everything.
 */
export function shared(options: SharedOptions = {}): TopologyStyle {
  checkNames('shared()', options, Object.keys(SHARED));
  const prefix = checkName('prefix', options.prefix ?? SHARED.prefix.default);
  return { name: 'shared', plan: (request) => planShared(request, prefix) };
}

function planShared(request: QueuePlanRequest, prefix: string): QueuePlan {
  checkPlanRequest(request);
  const { queue, type } = request;
  const into = `${prefix}.wait`;
  const back = `${prefix}.return`;
  // n.b. Not the return exchange: what comes back still has its return-to, and a message that is
  // rejected then would be back in the queue at once, for ever.
  const deadLetters = `${prefix}.dlx`;
  const waits = parts.waitsOf(request);
  const nameOf = (waitMs: number): string => `${into}.${delayLabel(waitMs)}`;
  const waiting: parts.TopologyPart = {
    exchanges: [parts.exchange(into, 'headers')],
    queues: waits.map((waitMs) => parts.waitQueue(nameOf(waitMs), waitMs, type, { to: back })),
    bindings: [
      ...waits.map((waitMs) =>
        parts.binding(nameOf(waitMs), into, '', match({ 'wait-for': delayLabel(waitMs) })),
      ),
      parts.binding(queue, back, '', match({ 'return-to': queue })),
    ],
  };
  const routes = waits.map(
    (waitMs): TopologyRoute => ({
      waitMs,
      route: ({ routingKey }) => ({
        exchange: into,
        key: routingKey,
        headers: { 'wait-for': delayLabel(waitMs), 'return-to': queue },
      }),
    }),
  );
  const ways = { [back]: 'headers', [deadLetters]: 'direct' } as const;
  const way = parts.wayBack(type, ways, `${prefix}.unrouted`);
  return assemble(request, [parts.home(request, deadLetters), way, waiting], routes);
}

function match(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return { 'x-match': 'all', ...headers };
}

/** Whose wait queues they are. */
export interface PerDelayOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Wait queues for each queue, or for all queues of an exchange. Default `queue`. */
  readonly by?: 'queue' | 'exchange';
  /** With `by: 'exchange'`: whose name they carry. Default the one exchange of the bindings. */
  readonly exchange?: string;
}

/**
 * One wait queue per distinct delay and queue, or per distinct delay and exchange.
 *
 *   by queue      {queue}.delay_2s ─TTL─▶ {queue}.return (direct, by the queue's name) ─▶ {queue}
 *   by exchange   {exchange}.delay_2s (fanout) ─▶ {exchange}.delay_2s ─TTL─▶ {exchange}.return
 *                 (direct, by the routing key: the failing queue's name) ─▶ {queue}
 *
 * The routing key that a message first came with is in its headers only.
 */
export function perDelay(options: PerDelayOptions = {}): TopologyStyle {
  const { by } = readOptions({ what: 'perDelay()' }, options, PER_DELAY);
  const { exchange } = options;
  if (exchange !== undefined) checkName('exchange', exchange);
  if (exchange !== undefined && by === 'queue') {
    throw new RespoolError(
      'config.invalid',
      `cannot use exchange ${show(exchange)} in perDelay() by queue: it names the wait queues ` +
        "by exchange; add by: 'exchange', or leave it out",
    );
  }
  return {
    name: by === 'queue' ? 'perDelay' : 'perDelay by exchange',
    plan: (request) => {
      checkPlanRequest(request);
      return by === 'queue' ? planByQueue(request) : planByExchange(request, exchange);
    },
  };
}

function planByQueue(request: QueuePlanRequest): QueuePlan {
  const { queue, type } = request;
  const back = `${queue}.return`;
  const waits = parts.waitsOf(request);
  const nameOf = (waitMs: number): string => `${queue}.delay_${delayLabel(waitMs)}`;
  const waiting: parts.TopologyPart = {
    queues: waits.map((waitMs) =>
      parts.waitQueue(nameOf(waitMs), waitMs, type, { to: back, key: queue }),
    ),
    bindings: [parts.binding(queue, back, queue)],
  };
  const routes = waits.map(
    (waitMs): TopologyRoute => ({ waitMs, route: () => ({ exchange: '', key: nameOf(waitMs) }) }),
  );
  const way = parts.wayBack(type, { [back]: 'direct' }, `${queue}.unrouted`);
  return assemble(request, [parts.home(request, back), way, waiting], routes);
}

function planByExchange(request: QueuePlanRequest, text: string | undefined): QueuePlan {
  const { queue, type } = request;
  const base = text ?? exchangeOf(request);
  const back = `${base}.return`;
  const waits = parts.waitsOf(request);
  const nameOf = (waitMs: number): string => `${base}.delay_${delayLabel(waitMs)}`;
  const waiting: parts.TopologyPart = {
    // A fanout takes any routing key, so the key is free to say where the message comes back to.
    exchanges: waits.map((waitMs) => parts.exchange(nameOf(waitMs), 'fanout')),
    queues: waits.map((waitMs) => parts.waitQueue(nameOf(waitMs), waitMs, type, { to: back })),
    bindings: [
      ...waits.map((waitMs) => parts.binding(nameOf(waitMs), nameOf(waitMs), '')),
      parts.binding(queue, back, queue),
    ],
  };
  const routes = waits.map(
    (waitMs): TopologyRoute => ({
      waitMs,
      route: () => ({ exchange: nameOf(waitMs), key: queue }),
    }),
  );
  const way = parts.wayBack(type, { [back]: 'direct' }, `${base}.unrouted`);
  return assemble(request, [parts.home(request, back), way, waiting], routes);
}

function exchangeOf({ queue, bindings }: QueuePlanRequest): string {
  const [name, ...more] = new Set(bindings.map((one) => one.exchange));
  if (name !== undefined && more.length === 0) return name;
  const found = name === undefined ? 'none' : [name, ...more].map(show).join(', ');
  throw new RespoolError(
    'config.invalid',
    `cannot name the wait queues of queue ${show(queue)} by its exchange: its bindings have ` +
      `${found}, exactly one is needed; name it: perDelay({ by: 'exchange', exchange: '…' })`,
  );
}

/**
 * One wait queue per attempt and queue, as in GoQueue.
 *
 *   {queue}__retry_exchange (topic) ─▶ {queue}__retry.{n} ─TTL─▶ {queue}__dlx (direct) ─▶ {queue}
 *
 * Easy to read in the management pages: a queue's name tells which attempt failed. Needs the most
 * queues of the three styles.
 */
export function perAttempt(): TopologyStyle {
  return { name: 'perAttempt', plan: planPerAttempt };
}

interface Level {
  readonly name: string;
  readonly waitMs: number;
  readonly attempt?: number;
}

function planPerAttempt(request: QueuePlanRequest): QueuePlan {
  checkPlanRequest(request);
  const { queue, type } = request;
  const into = `${queue}__retry_exchange`;
  const back = `${queue}__dlx`;
  const levels = levelsOf(request);
  const waiting: parts.TopologyPart = {
    exchanges: [parts.exchange(into, 'topic')],
    queues: levels.map(({ name, waitMs }) =>
      parts.waitQueue(name, waitMs, type, { to: back, key: queue }),
    ),
    bindings: [
      ...levels.map(({ name }) => parts.binding(name, into, name)),
      parts.binding(queue, back, queue),
    ],
  };
  const routes = levels.map(
    ({ name, ...level }): TopologyRoute => ({
      ...level,
      route: () => ({ exchange: into, key: name }),
    }),
  );
  const way = parts.wayBack(type, { [back]: 'direct' }, `${queue}__unrouted`);
  return assemble(request, [parts.home(request, back), way, waiting], routes);
}

/** A custom policy may ask for any of its rungs at any attempt: its queues are named by delay. */
function levelsOf(request: QueuePlanRequest): Level[] {
  const { policy } = request;
  const isCustom = policy.backoff.kind === 'custom';
  const attempts = isCustom ? [] : attemptLevels(request);
  const waits = isCustom ? parts.waitsOf(request) : parts.extraWaits(request);
  const covered = new Set(attempts.map((level) => level.waitMs));
  const others = waits.filter((waitMs) => !covered.has(waitMs));
  return [
    ...attempts,
    ...others.map((waitMs) => ({
      name: `${request.queue}__retry.wait_${delayLabel(waitMs)}`,
      waitMs,
    })),
  ];
}

function attemptLevels({ queue, policy }: QueuePlanRequest): Level[] {
  const retries = policy.maxAttempts - 1;
  if (retries > parts.RUNGS_MAX) {
    throw new RespoolError(
      'policy.invalid',
      `cannot make a wait queue per attempt for queue ${show(queue)}: its policy has ` +
        `${retries} retries, allowed are ${parts.RUNGS_MAX}; use fewer attempts, ` +
        'or shared() or perDelay(), which have one wait queue per delay',
    );
  }
  const levels: Level[] = [];
  for (let attempt = 1; attempt <= retries; attempt += 1) {
    const waitMs = parts.cappedWait(plainDelayMs(policy, attempt));
    if (waitMs > 0) levels.push({ name: `${queue}__retry.${attempt}`, waitMs, attempt });
  }
  return levels;
}

/** The delay after an attempt as the policy has it, without chance. */
export function plainDelayMs(policy: RetryPolicy, attempt: number): number {
  return delayMs({ policy: { ...policy, jitter: 0 }, attempt, failure: ANY_FAILURE, random: 0 });
}

/** The delay of a plain policy does not depend on the failure. */
const ANY_FAILURE: Failure = { permanence: 'transient', code: 'any', reason: '', fingerprint: '' };

/** A wait queue by its wait, and the route into it. */
export interface TopologyRoute {
  readonly waitMs: number;
  /** The attempt that it is there for, where a style has a queue for each. */
  readonly attempt?: number;
  route(request: WaitRequest): Route;
}

/** A delay as a part of a name: `2s` for whole seconds, else `250ms`. */
export function delayLabel(delayMs: number): string {
  return delayMs % SECOND_MS === 0 ? `${delayMs / SECOND_MS}s` : `${delayMs}ms`;
}

/** Checks a request before a style builds names from it. */
export function checkPlanRequest(request: QueuePlanRequest): void {
  checkName('queue', request.queue);
}

/** The plan; the same thing twice in the parts is there once. */
export function assemble(
  request: QueuePlanRequest,
  parts: readonly TopologyPart[],
  routes: readonly TopologyRoute[],
): QueuePlan {
  const { queue, type } = request;
  const topology = mergeTopologies(
    parts.map(({ exchanges = [], queues = [], bindings = [] }) => ({
      exchanges,
      queues,
      bindings,
      policies: [],
    })),
  );
  checkNamesOf(topology, queue);
  const sorted = routes.toSorted((a, b) => a.waitMs - b.waitMs);
  const again = straightTo(queue);
  return {
    queue,
    type,
    topology,
    waitsMs: [...new Set(sorted.map((route) => route.waitMs))],
    wait(request): WaitRoute {
      if (request.delayMs <= 0) return { ...again, waitMs: 0 };
      const route = chooseRoute(sorted, request);
      if (route === undefined) throw nowhereToWait(queue, request.delayMs);
      return { ...route.route(request), waitMs: route.waitMs };
    },
    again,
    dead: straightTo(deadName(queue)),
    parked: straightTo(parkedName(queue)),
  };
}

/**
 * We publish to these through the default exchange: there a missing queue comes back as unroutable,
 * while an exchange with an alternate would take the message for good.
 */
function straightTo(queue: string): Route {
  return { exchange: '', key: queue };
}

/** Among equally long waits the one of the attempt itself. */
function chooseRoute(
  sorted: readonly TopologyRoute[],
  request: WaitRequest,
): TopologyRoute | undefined {
  const waitMs = (sorted.find((route) => route.waitMs >= request.delayMs) ?? sorted.at(-1))?.waitMs;
  const fitting = sorted.filter((route) => route.waitMs === waitMs);
  return fitting.find((route) => route.attempt === request.attempt) ?? fitting[0];
}

/** Not "at once instead": a message that must wait and cannot would go round and round. */
function nowhereToWait(queue: string, delayMs: number): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot let a message of queue ${show(queue)} wait for ${formatDuration(delayMs)}: ` +
      'it has no wait queue; give its policy a delay, or name waits of your own',
  );
}
