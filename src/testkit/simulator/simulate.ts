/**
 * simulate — one world from its first message to its rest, from one seed. The same seed gives the
 * same world, step by step. First random producers, operators and faults (kills, pauses, power
 * cuts, outages, clock jumps) act on it: how often is drawn in plan.ts; this file picks when and
 * what happens; world.ts, process.ts, connection.ts and disk.ts carry it out; checks/ judges every
 * step. Then everything is healed and must come to rest, which is judged here (`liveness`,
 * `prompt`, `orphans`, and in part `early` and `conservation`):
 *
 *   heal ─▶ rest: every message has ended, or waits as it may ─▶ probes: new messages start in time
 *   ─▶ stop: no timer is left ─▶ retention and orphan grace pass ─▶ two cleanups ─▶ nothing is left
 *   that should not be
 *
 * One more draw, or another weight, gives every seed another world: the seeds of
 * test/sim/regressions.json then prove nothing; what must stay is a test in test/sim/found.test.ts.
 * A new act of an operator also goes into `isCarriedOut` of checks/writes.ts. The wait in `cleanUp`
 * is longer than the orphan grace, every retention and the dedupe window of plan.ts.
 */

import { createHash } from 'node:crypto';
import { HOUR_MS, MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import type { Entry } from '../../core/entry.ts';
import type { Message, MessageOptions } from '../../spool/message.ts';
import type { Spool } from '../../spool/spool.ts';
import type { Violation } from './checks/check-scene.ts';
import { checkWhole, turnsOf } from './checks/world.ts';
import { isServed, ODD_TOPIC, ORPHAN_GRACE_MS, routeFor, type SimPlan, TOPICS } from './plan.ts';
import { SimProcess } from './process.ts';
import { type Invocation, NUMBER_HEADER, type HandlerBehaviour } from './sim-ledger.ts';
import type { Chance } from './timeline.ts';
import { type PlantedBug, type ProcessSlot, SimWorld } from './world.ts';

/** What came of a world. */
export interface SimReport {
  readonly seed: number;
  readonly plan: SimPlan;
  /** The first broken promise, if any. */
  readonly violation: Violation | undefined;
  /** Moments that passed, and calls of stores. */
  readonly events: number;
  readonly messages: number;
  readonly starts: number;
  readonly effects: number;
  /** Effects beyond the first, each of them excused by a loss or a replay. */
  readonly duplicates: number;
  readonly kills: number;
  readonly powerCuts: number;
  /** How long the world lasted, in its own time. */
  readonly virtualMs: number;
}

/** More moments than this mean that something spins. */
const STEPS_MAX = 400_000;
/** The whole is looked at after this many moments. */
const LOOK_EVERY = 100;

/**
 * Runs the world of a seed.
 *
 * @example
 * import { commandFor, SimBodyDisk, SimDisk, simulate } from 'respool/testkit';
 * // Keeps what it is asked to remove, on purpose.
 * class LeakyDisk extends SimBodyDisk {
 *   override remove(): void {}
 * }
 * const { seed, violation } = await simulate(7, {
 *   disk: (timeline) => new SimDisk(timeline),
 *   bodyDisk: (timeline) => new LeakyDisk(timeline),
 * });
 * if (violation !== undefined) console.error(violation, commandFor(seed));
 */
export async function simulate(seed: number, bug: PlantedBug = {}): Promise<SimReport> {
  const world = new SimWorld(seed, bug);
  const { timeline, findings, plan, ledger } = world;
  let lookAt = LOOK_EVERY;
  const isOver = (): boolean => {
    if (timeline.steps >= lookAt) {
      lookAt = timeline.steps + LOOK_EVERY;
      checkWhole(world.scene);
    }
    if (timeline.steps > STEPS_MAX) findings.add('liveness', `no rest in ${STEPS_MAX} steps`);
    return findings.first !== undefined;
  };
  const run = (spanMs: number): Promise<void> => timeline.runTo(timeline.nowMs + spanMs, isOver);
  startProducers(world);
  startOperators(world);
  startFaults(world);
  await run(plan.faultsForMs);
  checkWhole(world.scene);
  if (findings.first === undefined) await finish(world, run);
  let effects = 0;
  let duplicates = 0;
  for (const history of ledger.histories.values()) {
    effects += history.effects;
    duplicates += Math.max(0, history.effects - 1);
  }
  return {
    seed,
    plan,
    violation: findings.first,
    events: timeline.steps + timeline.calls,
    messages: ledger.histories.size,
    starts: ledger.starts + ledger.notices,
    effects,
    duplicates,
    kills: world.kills,
    powerCuts: world.faults.powerCuts,
    virtualMs: timeline.nowMs,
  };
}

/** The command that shows a seed again: as an argument, and for what reads the environment. */
export function commandFor(seed: number): string {
  return `SEED=${seed} npm run sim -- --seed ${seed}`;
}

/** Everything must be at rest this long after the last fault, by a clock that was not set back. */
const REST_WITHIN_MS: number = 6 * HOUR_MS;
/** A message that is due starts within this, when nothing is in the way. */
const PROMPT_MS = 2_000;
/** Without news from others it may take as long as `poll`: more than its default of 30 s. */
const UNTOLD_MS = 40_000;

/** Heals the world and sees it to its end. */
async function finish(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  const isBroken = (): boolean => world.findings.first !== undefined;
  await heal(world, run);
  await rest(world, run);
  if (isBroken()) return;
  await probes(world, run);
  if (isBroken()) return;
  await stopAll(world, run);
  if (isBroken()) return;
  await cleanUp(world, run);
  checkWhole(world.scene);
}

async function heal(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  world.isHealed = true;
  world.faults.heal();
  for (const { process } of world.processSlots) {
    process.plannedFault = undefined;
    process.resume(world.chance);
  }
  // Processes that were down boot within a minute; stops that are under way end.
  await run(2 * MINUTE_MS);
  for (const pattern of world.ledger.pausedSinceMs.keys()) {
    const processSlot = world.runningSlot();
    if (processSlot === undefined) {
      world.findings.add('liveness', 'no process is up two minutes after the last fault');
      return;
    }
    processSlot.spool
      .operator({ by: 'simulator' })
      .resume(pattern)
      .catch((error: unknown) => {
        world.findings.add('liveness', `resume() failed on a healthy store: ${String(error)}`);
      });
  }
  // Without notifications every process finds out by itself that nothing is paused any more.
  await run(MINUTE_MS);
}

async function rest(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  const { timeline, findings, disk } = world;
  const behindMs = world.scene.latestNow() - world.storeNow();
  const untilMs = timeline.nowMs + behindMs + REST_WITHIN_MS;
  for (;;) {
    // What waits for its turn rests as long as what it waits for does.
    const isInTurn = turnsOf(world.scene);
    const restless = [...disk.entries()].find(
      (entry) => isInTurn(entry) && !isAtRest(world, entry),
    );
    if (restless === undefined || findings.first !== undefined) return;
    if (timeline.nowMs >= untilMs) {
      const { envelope, status } = restless;
      const text = `"${envelope.id}" (${envelope.topic}) is still in ${status.state}`;
      findings.add('liveness', `${text}, due ${status.dueAt}, now ${world.storeNow()}`);
      return;
    }
    await run(30 * SECOND_MS);
  }
}

function isAtRest(world: SimWorld, { envelope, status }: Entry): boolean {
  const { plan } = world;
  switch (status.state) {
    case 'hold':
    case 'archived':
      return true;
    case 'bounce':
      return status.dueAt === null || !isServed(plan, 'notice', envelope.topic);
    case 'active':
      // Left by a lost holder, without a handler, and `unhandled` is not `hold`.
      return isLeft(plan, envelope.topic) && (status.dueAt ?? 0) <= world.storeNow();
    default:
      return isLeft(plan, envelope.topic);
  }
}

function isLeft(plan: SimPlan, topic: string): boolean {
  return plan.unhandled === 'leave' && !isServed(plan, 'delivery', topic);
}

async function probes(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  const { plan, chance } = world;
  for (const delayMs of [0, 10 * SECOND_MS, 0]) {
    const processSlot = world.runningSlot();
    if (processSlot === undefined) return;
    const strange = TOPICS.filter(
      (topic) => !routeFor(plan, processSlot.number, 'delivery', topic),
    );
    const topic = chance.pick(strange.length > 0 ? strange : TOPICS);
    await probeOnce(
      world,
      processSlot,
      { topic, ...(delayMs === 0 ? {} : { delay: delayMs }) },
      run,
    );
  }
}

async function probeOnce(
  world: SimWorld,
  processSlot: ProcessSlot,
  message: MessageOptions,
  run: (spanMs: number) => Promise<void>,
): Promise<void> {
  const { plan, timeline, findings, ledger } = world;
  const dueAtMs = timeline.nowMs + Number(message.delay ?? 0);
  const invocation = sendProbe(world, processSlot, message);
  const isOwn = routeFor(plan, processSlot.number, 'delivery', message.topic) !== undefined;
  const limitMs = plan.wakes || isOwn ? PROMPT_MS : UNTOLD_MS;
  await run(dueAtMs - timeline.nowMs + limitMs);
  const history = [...ledger.histories.values()].find((one) => one.invocation === invocation);
  const starts = [...(history?.claims.values() ?? [])].flatMap((claim) => claim.startedAtMs ?? []);
  const startedAtMs = Math.min(...starts);
  if (startedAtMs < dueAtMs)
    findings.add('early', `a probe started ${dueAtMs - startedAtMs} ms early`);
  if (Number.isFinite(startedAtMs)) return;
  const text = `${limitMs} ms after it was due, with every process idle`;
  findings.add('prompt', `a probe (${message.topic}) did not start within ${text}`);
}

async function stopAll(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  let running = 0;
  for (const { process, spool } of world.processSlots) {
    running += 1;
    void world.stop(process, spool, 10_000).then(() => {
      running -= 1;
    });
  }
  await run(MINUTE_MS);
  if (running > 0) world.findings.add('liveness', `${running} spools did not stop in a minute`);
  for (const { process } of world.processSlots) process.kill();
  // One whose holder was lost waits like any other while an earlier one of its key is held.
  const isInTurn = turnsOf(world.scene);
  for (const entry of world.disk.entries()) {
    const { envelope, status } = entry;
    if (status.state !== 'active' || isLeft(world.plan, envelope.topic)) continue;
    if (!isInTurn(entry)) continue;
    world.findings.add('liveness', `"${envelope.id}" is active and no process runs`);
  }
}

async function cleanUp(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  const { timeline, disk, bodyDisk, findings } = world;
  const wall = (): number => world.storeNow();
  const process = new SimProcess(99, 1, { timeline, wall });
  const spool = world.makeSpool(process);
  const onTrouble = (error: unknown): void =>
    findings.add('liveness', `cleanUp(): ${String(error)}`);
  // A clock that was set back has to show again what it had shown before.
  const behindMs = world.scene.latestNow() - world.storeNow();
  await run(behindMs + ORPHAN_GRACE_MS + 2 * HOUR_MS);
  const operator = spool.operator({ by: 'simulator' });
  for (let round = 0; round < 2; round += 1) {
    operator.cleanUp().catch(onTrouble);
    await run(20 * MINUTE_MS);
  }
  await world.stop(process, spool, 1_000);
  const needed = new Set<string>();
  for (const { envelope, status } of disk.entries()) {
    if (envelope.body.place === 'store') needed.add(envelope.body.ref);
    const isOver = status.state === 'archived' && (status.dueAt ?? 0) <= world.storeNow() - HOUR_MS;
    if (isOver) findings.add('liveness', `"${envelope.id}" is kept past its retention`);
  }
  for (const ref of bodyDisk.bodies.keys()) {
    if (!needed.has(ref)) findings.add('orphans', `body "${ref}" has no entry and was not removed`);
  }
}

// What happens to a world at random: kills, pauses, restarts, power cuts, clock changes, stores
// that go away or are full, and operators who inspect and change messages at any moment.

/** Causes faults for as long as the plan says. */
function startFaults(world: SimWorld): void {
  const { chance, plan, timeline } = world;
  const next = (): void => {
    const spanMs = -Math.log(1 - chance.random()) * plan.trouble.faultEveryMs;
    timeline.after(spanMs, () => {
      if (world.isHealed) return;
      strike(world);
      next();
    });
  };
  next();
}

function strike(world: SimWorld): void {
  const { chance, faults } = world;
  const processSlot = world.runningSlot();
  const kind = chance.weighted({
    kill: 5,
    pause: 5,
    restart: 3,
    powerCut: 2,
    jump: 2,
    down: 2,
    full: 1,
  });
  switch (kind) {
    case 'powerCut':
      world.powerCut();
      return;
    case 'down':
      faults.goDown(chance.between(100, 20_000));
      return;
    case 'full':
      faults.fillUp(chance.between(1_000, 30_000));
      return;
    case 'jump':
      world.jump(Math.round((chance.random() * 2 - 1) * HOUR_MS), processSlot);
      return;
    default:
      if (processSlot !== undefined) strikeAt(world, processSlot, kind);
  }
}

/** Hits one process: at this moment, or just after a call of its has had its effect. */
function strikeAt(
  world: SimWorld,
  processSlot: ProcessSlot,
  kind: 'kill' | 'pause' | 'restart',
): void {
  const { chance, plan } = world;
  if (kind === 'restart') {
    world.restart(processSlot, chance.pick([0, 1_000, 10_000]), chance.between(0, 5_000));
    return;
  }
  const { process } = processSlot;
  const downMs = chance.between(0, 60_000);
  const strike = (): void => {
    if (process.isDead) return;
    if (kind === 'kill') world.kill(processSlot, downMs);
    else pause(world, processSlot, plan.leaseMs);
  };
  if (chance.happens(0.5)) strike();
  else process.plannedFault = { callsLeft: chance.between(1, 10), strike };
}

function pause(world: SimWorld, { process }: ProcessSlot, leaseMs: number): void {
  const { chance, timeline } = world;
  // From a tenth of a lease to ten of them.
  const spanMs = leaseMs * 10 ** (chance.random() * 2 - 1);
  process.pause();
  timeline.after(spanMs, () => process.resume(chance));
}

const PATTERNS = ['#', 'mail.*', 'web.hook', 'sms.#'];

/** Lets operators act for as long as faults happen. */
function startOperators(world: SimWorld): void {
  const { chance, plan, timeline } = world;
  const next = (): void => {
    const spanMs = -Math.log(1 - chance.random()) * plan.trouble.actEveryMs;
    timeline.after(spanMs, () => {
      if (world.isHealed) return;
      act(world);
      next();
    });
  };
  next();
}

function act(world: SimWorld): void {
  const processSlot = world.runningSlot();
  if (processSlot === undefined) return;
  const ids = someIds(world);
  // Refusals, and failures of a faulty store, are ignored: these operators look at no results.
  perform(world, processSlot, ids).catch(() => undefined);
}

async function perform(
  world: SimWorld,
  { spool, handler }: ProcessSlot,
  ids: readonly string[],
): Promise<unknown> {
  const { chance, plan } = world;
  const [id = 'nobody'] = ids;
  const kind = chance.weighted({
    hold: 3,
    release: 5,
    retry: 4,
    bounce: 2,
    remove: 2,
    pause: 2,
    resume: 3,
    setPolicy: 2,
    setHeaders: 2,
    look: 2,
    process: 2,
    check: 1,
    cleanUp: 1,
  });
  const operator = spool.operator({ by: 'operator' });
  switch (kind) {
    case 'hold':
      return operator.hold(ids);
    case 'release':
      return operator.release(ids);
    case 'retry':
      return operator.retry(ids);
    case 'bounce':
      return operator.bounce(ids);
    case 'remove':
      return operator.remove(ids, { hard: chance.happens(0.3) });
    case 'pause':
      return operator.pause(chance.pick(PATTERNS));
    case 'resume':
      return operator.resume(chance.pick(PATTERNS));
    case 'setPolicy':
      return operator.setPolicy([id], chance.pick(Object.keys(plan.policies)));
    case 'setHeaders':
      return operator.setHeaders(id, { 'x-touched': String(chance.between(0, 9)) });
    case 'process':
      return spool.process(id, handler);
    case 'check':
      return operator.check({ repair: chance.happens(0.5) });
    case 'cleanUp':
      return operator.cleanUp();
    default:
      return spool.count();
  }
}

function someIds({ chance, disk }: SimWorld): string[] {
  const all = [...disk.entries()];
  if (all.length === 0) return [];
  const ids = new Set<string>();
  const count = chance.between(1, 3);
  for (let at = 0; at < count; at += 1) {
    // What waits for an operator is what operators look at most.
    const stuck = all.filter(({ status }) => status.dueAt === null || status.state === 'bounce');
    const from = stuck.length > 0 && chance.happens(0.5) ? stuck : all;
    ids.add(chance.pick(from).envelope.id);
  }
  return [...ids];
}

// Producers enqueue messages one by one, in batches, or streamed, with or without retrying, and
// record every result.

/** A message and the note about it. */
interface SampleMessage {
  readonly invocation: Invocation;
  readonly message: MessageOptions;
  readonly bytes: Uint8Array;
}

const BEHAVIOURS: Readonly<Partial<Record<HandlerBehaviour, number>>> = {
  calm: 45,
  flaky: 20,
  bad: 10,
  picky: 5,
  killer: 5,
  slow: 15,
};

/** Lets all producers of a world begin. */
function startProducers(world: SimWorld): void {
  const { chance, plan, timeline } = world;
  for (let number = 0; number < plan.messages; number += 1) {
    const producer = number % plan.producers;
    timeline.after(chance.between(0, plan.faultsForMs), () => produce(world, producer));
  }
}

/** Puts one message down that must start soon; returns the note about it. */
function sendProbe(world: SimWorld, processSlot: ProcessSlot, message: MessageOptions): Invocation {
  const sample = pack(world, message, 'probe');
  void enqueue(world, processSlot.process, processSlot.spool, sample);
  return sample.invocation;
}

function produce(world: SimWorld, producer: number): void {
  const { chance, processSlots } = world;
  // A producer lives in one process, and goes to another when that is not there.
  const home = processSlots[producer % processSlots.length];
  const isHome = home !== undefined && home.isUp && home.process.isRunning;
  const processSlot = isHome ? home : world.runningSlot();
  if (processSlot === undefined) {
    world.timeline.after(1_000, () => produce(world, producer));
    return;
  }
  const { process, spool } = processSlot;
  const way = chance.weighted({ one: 6, many: 1, stream: 2 });
  if (way === 'one') void enqueue(world, process, spool, drawSample(world));
  else if (way === 'stream') void stream(world, process, spool, drawSample(world));
  else {
    const samples = Array.from({ length: chance.between(2, 4) }, () => drawSample(world));
    void enqueueMany(world, process, spool, samples);
  }
}

async function enqueue(
  world: SimWorld,
  process: SimProcess,
  spool: Spool,
  sample: SampleMessage,
): Promise<void> {
  try {
    noteAnswer(world, process, sample, await spool.enqueue(whole(sample)));
  } catch {
    noteFailure(world, process, sample);
  }
}

async function enqueueMany(
  world: SimWorld,
  process: SimProcess,
  spool: Spool,
  samples: readonly SampleMessage[],
): Promise<void> {
  try {
    const answers = await spool.enqueueMany(samples.map(whole));
    for (const [at, answer] of answers.entries()) {
      noteAnswer(world, process, samples[at] as SampleMessage, answer);
    }
  } catch {
    for (const sample of samples) noteFailure(world, process, sample);
  }
}

async function stream(
  world: SimWorld,
  process: SimProcess,
  spool: Spool,
  sample: SampleMessage,
): Promise<void> {
  const { chance } = world;
  const { bytes, invocation } = sample;
  const pauseMs = chance.happens(0.5) ? 0 : chance.spanMs(60_000);
  const isAborted = chance.happens(0.25);
  try {
    const tx = await spool.begin(sample.message);
    const half = bytes.length >> 1;
    await tx.write(bytes.subarray(0, half));
    if (pauseMs > 0) await new Promise<void>((resolve) => process.later(pauseMs, resolve));
    await tx.write(bytes.subarray(half));
    if (isAborted) {
      invocation.answer = 'aborted';
      await tx.abort();
    } else noteAnswer(world, process, sample, await tx.commit());
  } catch {
    if (!isAborted) noteFailure(world, process, sample);
  }
}

function noteAnswer(
  { ledger, findings, plan }: SimWorld,
  process: SimProcess,
  { invocation }: SampleMessage,
  { id, duplicate }: { readonly id: string; readonly duplicate: boolean },
): void {
  // A dead process reports nothing.
  if (process.isDead) return;
  invocation.id = id;
  invocation.answer = duplicate ? 'duplicate' : 'ok';
  if (duplicate) return;
  const history = ledger.histories.get(id);
  if (history?.invocation !== invocation) {
    findings.add('conservation', `"${id}" was accepted at ${plan.site} and never stored`);
    return;
  }
  history.isAccepted = true;
}

function noteFailure(world: SimWorld, process: SimProcess, sample: SampleMessage): void {
  const { invocation, message } = sample;
  invocation.answer = 'unknown';
  const isSafe = message.id !== undefined || message.dedupeKey !== undefined;
  if (process.isDead || !isSafe || world.isHealed || !world.chance.happens(0.7)) return;
  // A producer that can be recognised tries again, maybe at another process.
  world.timeline.after(world.chance.between(100, 5_000), () => {
    const processSlot = world.runningSlot();
    if (processSlot !== undefined)
      void enqueue(world, processSlot.process, processSlot.spool, sample);
  });
}

function whole({ message, bytes }: SampleMessage): Message {
  return { ...message, body: bytes };
}

function drawSample(world: SimWorld): SampleMessage {
  const { chance, chanceOfKeys, plan } = world;
  const topic = chance.happens(0.03) ? ODD_TOPIC : chance.pick(TOPICS);
  const behaviour = chance.weighted<HandlerBehaviour>(BEHAVIOURS);
  const message: MessageOptions = {
    topic,
    ...maybe(chance, 0.3, () => ({ priority: chance.between(0, 9) })),
    ...maybe(chance, 0.25, () => ({ delay: chance.spanMs(120_000) })),
    ...maybe(chance, 0.15, () => ({ expires: chance.between(0, 60_000) })),
    ...maybe(chance, 0.5, () => ({ destination: chance.pick(['north', 'south', 'west']) })),
    ...maybe(chance, 0.35, () => ({
      policy: chance.pick([...Object.keys(plan.policies), 'ghost']),
    })),
    ...maybe(chance, 0.12, () => ({ dedupeKey: `key-${chance.between(1, 5)}` })),
    ...maybe(chance, 0.12, () => ({ id: `own-${chance.between(1, 8)}` })),
    ...(plan.orderKeys.length === 0
      ? {}
      : maybe(chanceOfKeys, 0.4, () => ({ orderKey: chanceOfKeys.pick(plan.orderKeys) }))),
  };
  return pack(world, message, behaviour);
}

function pack(
  world: SimWorld,
  message: MessageOptions,
  behaviour: HandlerBehaviour,
): SampleMessage {
  const { chance, ledger } = world;
  const size = chance.between(0, 90);
  const bytes = Uint8Array.from({ length: size }, () => chance.between(0, 255));
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  const invocation = ledger.invoke({ topic: message.topic, behaviour, digest });
  const headers = { ...message.headers, [NUMBER_HEADER]: String(invocation.number) };
  return { invocation, bytes, message: { ...message, headers } };
}

function maybe<T extends object>(chance: Chance, probability: number, make: () => T): T | object {
  return chance.happens(probability) ? make() : {};
}
