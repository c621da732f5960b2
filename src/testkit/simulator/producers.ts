/**
 * producers — enqueue messages one by one, in batches, or streamed, with or without patience, and
 * record every result.
 */

import { createHash } from 'node:crypto';
import type { Message, MessageOptions } from '../../spool/message.ts';
import type { Spool } from '../../spool/spool.ts';
import type { Chance } from './timeline.ts';
import { type Invocation, NUMBER_HEADER, type Temper } from './sim-ledger.ts';
import { ODD_TOPIC, TOPICS } from './plan.ts';
import type { SimProcess } from './process.ts';
import type { ProcessSlot, SimWorld } from './world.ts';

/** A message and the note about it. */
interface Parcel {
  readonly invocation: Invocation;
  readonly message: MessageOptions;
  readonly bytes: Uint8Array;
}

const TEMPERS: Readonly<Partial<Record<Temper, number>>> = {
  calm: 45,
  flaky: 20,
  bad: 10,
  picky: 5,
  killer: 5,
  slow: 15,
};

/** Lets all producers of a world begin. */
export function startProducers(world: SimWorld): void {
  const { chance, plan, timeline } = world;
  for (let number = 0; number < plan.messages; number += 1) {
    const producer = number % plan.producers;
    timeline.after(chance.between(0, plan.stormMs), () => produce(world, producer));
  }
}

/** Puts one message down that must start soon; returns the note about it. */
export function sendProbe(world: SimWorld, seat: ProcessSlot, message: MessageOptions): Invocation {
  const parcel = pack(world, message, 'probe');
  void enqueue(world, seat.process, seat.spool, parcel);
  return parcel.invocation;
}

function produce(world: SimWorld, producer: number): void {
  const { chance, seats } = world;
  // A producer lives in one process, and goes to another when that is not there.
  const home = seats[producer % seats.length];
  const isHome = home !== undefined && home.isUp && home.process.isRunning;
  const seat = isHome ? home : world.someone();
  if (seat === undefined) {
    world.timeline.after(1_000, () => produce(world, producer));
    return;
  }
  const { process, spool } = seat;
  const way = chance.weighted({ one: 6, many: 1, stream: 2 });
  if (way === 'one') void enqueue(world, process, spool, drawParcel(world));
  else if (way === 'stream') void stream(world, process, spool, drawParcel(world));
  else {
    const parcels = Array.from({ length: chance.between(2, 4) }, () => drawParcel(world));
    void enqueueMany(world, process, spool, parcels);
  }
}

async function enqueue(
  world: SimWorld,
  process: SimProcess,
  spool: Spool,
  parcel: Parcel,
): Promise<void> {
  try {
    noteAnswer(world, process, parcel, await spool.enqueue(whole(parcel)));
  } catch {
    noteFailure(world, process, parcel);
  }
}

async function enqueueMany(
  world: SimWorld,
  process: SimProcess,
  spool: Spool,
  parcels: readonly Parcel[],
): Promise<void> {
  try {
    const answers = await spool.enqueueMany(parcels.map(whole));
    for (const [at, answer] of answers.entries()) {
      noteAnswer(world, process, parcels[at] as Parcel, answer);
    }
  } catch {
    for (const parcel of parcels) noteFailure(world, process, parcel);
  }
}

async function stream(
  world: SimWorld,
  process: SimProcess,
  spool: Spool,
  parcel: Parcel,
): Promise<void> {
  const { chance } = world;
  const { bytes, invocation } = parcel;
  const pauseMs = chance.happens(0.5) ? 0 : chance.spanMs(60_000);
  const isAborted = chance.happens(0.25);
  try {
    const tx = await spool.begin(parcel.message);
    const half = bytes.length >> 1;
    await tx.write(bytes.subarray(0, half));
    if (pauseMs > 0) await new Promise<void>((resolve) => process.later(pauseMs, resolve));
    await tx.write(bytes.subarray(half));
    if (isAborted) {
      invocation.answer = 'aborted';
      await tx.abort();
    } else noteAnswer(world, process, parcel, await tx.commit());
  } catch {
    if (!isAborted) noteFailure(world, process, parcel);
  }
}

function noteAnswer(
  { ledger, findings, plan }: SimWorld,
  process: SimProcess,
  { invocation }: Parcel,
  { id, duplicate }: { readonly id: string; readonly duplicate: boolean },
): void {
  // A dead process reports nothing.
  if (process.isDead) return;
  invocation.id = id;
  invocation.answer = duplicate ? 'duplicate' : 'ok';
  if (duplicate) return;
  const story = ledger.stories.get(id);
  if (story?.invocation !== invocation) {
    findings.add('conservation', `"${id}" was accepted at ${plan.site} and never stored`);
    return;
  }
  story.isAccepted = true;
}

function noteFailure(world: SimWorld, process: SimProcess, parcel: Parcel): void {
  const { invocation, message } = parcel;
  invocation.answer = 'unknown';
  const isSafe = message.id !== undefined || message.dedupeKey !== undefined;
  if (process.isDead || !isSafe || world.isHealed || !world.chance.happens(0.7)) return;
  // A producer that can be recognised tries again, maybe at another process.
  world.timeline.after(world.chance.between(100, 5_000), () => {
    const seat = world.someone();
    if (seat !== undefined) void enqueue(world, seat.process, seat.spool, parcel);
  });
}

function whole({ message, bytes }: Parcel): Message {
  return { ...message, body: bytes };
}

function drawParcel(world: SimWorld): Parcel {
  const { chance, chanceOfKeys, plan } = world;
  const topic = chance.happens(0.03) ? ODD_TOPIC : chance.pick(TOPICS);
  const temper = chance.weighted<Temper>(TEMPERS);
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
  return pack(world, message, temper);
}

function pack(world: SimWorld, message: MessageOptions, temper: Temper): Parcel {
  const { chance, ledger } = world;
  const size = chance.between(0, 90);
  const bytes = Uint8Array.from({ length: size }, () => chance.between(0, 255));
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  const invocation = ledger.invoke({ topic: message.topic, temper, digest });
  const headers = { ...message.headers, [NUMBER_HEADER]: String(invocation.number) };
  return { invocation, bytes, message: { ...message, headers } };
}

function maybe<T extends object>(chance: Chance, probability: number, make: () => T): T | object {
  return chance.happens(probability) ? make() : {};
}
