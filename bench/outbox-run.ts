/**
 * outbox-run — one run of one side: a schema, an exchange and a queue of its own, relays and
 * consumers as processes, and somebody who writes.
 *
 *   drain  rows first, then the relays: how fast they get through
 *   flow   everybody at once: this many a second, or as many as go, and how long each took
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from 'amqplib';
import { settle } from './drain.ts';
import { percentile, type Sample } from './measure.ts';
import { type Crew, startConsumer, startRelay } from './outbox-children.ts';
import { ourWriter } from './outbox-ours.ts';
import { peerWriter } from './outbox-peer.ts';
import { rawWriter } from './outbox-raw.ts';
import type { Place, SideName, Writer } from './outbox-words.ts';
import { dropSchema, newName } from './places.ts';

/** What one run is about. */
export interface Errand {
  readonly relays: number;
  readonly consumers: number;
  readonly bodyBytes: number;
  readonly batch: number;
  readonly inFlight: number;
  readonly prefetch: number;
  /** Ours is `listen`; where only the relay is compared, both have amqplib's. */
  readonly isWhole: boolean;
}

/** The servers of a run. */
export interface Ground {
  readonly url: string;
  readonly amqp: string;
}

/** How often is looked whether all have come. */
const LOOK_EVERY_MS = 10;
/** A run in which nothing came for so long has failed. */
const SILENCE_MAX_MS = 60_000;
/** Messages of one transaction while rows are put down before a run. */
const FILL_BATCH = 1_000;
/** The most messages of one transaction while everybody is at work. */
const WRITE_MAX = 1_000;
/** Of one transaction when there is no rate to keep. */
const OPEN_BATCH = 100;
/** Processes have just started, and code gets hot: so much of a drain is not counted. */
const WARM_UP_SHARE = 0.2;
/** Nor are the last, which may be a single one that was tried again. */
const TAIL_SHARE = 0.05;

const WRITERS = { ours: ourWriter, raw: rawWriter, peer: peerWriter };

/** Messages per second through the relays, of so many rows that were there before. */
export function drain(
  ground: Ground,
  side: SideName,
  { waiting, ...errand }: Errand & { readonly waiting: number },
): Promise<Sample> {
  return onPlace(ground, async (place) => {
    const writer = await WRITERS[side](place, errand.bodyBytes);
    for (let at = 0; at < waiting; at += FILL_BATCH) {
      await writer.write(Math.min(FILL_BATCH, waiting - at));
    }
    await writer.close();
    await settle(place.url, place.schema);
    const crews = await started(place, side, errand);
    await until(crews.consumers, waiting);
    const { at } = await stopped(crews);
    at.sort((a, b) => a - b);
    const [from, to] = [at.length * WARM_UP_SHARE, at.length * (1 - TAIL_SHARE)];
    return { value: rateOf(at.slice(Math.floor(from), Math.ceil(to))) };
  });
}

/** Messages per second at the consumers while somebody writes; how long each took to get there. */
export function flow(
  ground: Ground,
  side: SideName,
  {
    ratePerSecond,
    forMs,
    ...errand
  }: Errand & { readonly ratePerSecond: number; readonly forMs: number },
): Promise<Sample> {
  return onPlace(ground, async (place) => {
    const writer = await WRITERS[side](place, errand.bodyBytes);
    const crews = await started(place, side, errand);
    const committedAt = new Map<string, number>();
    await writeAll(writer, { ratePerSecond, forMs }, ({ ids, at }) => {
      for (const id of ids) committedAt.set(id, at);
    });
    await until(crews.consumers, committedAt.size);
    await writer.close();
    const { ids, at } = await stopped(crews);
    const tookMs = ids.map((id, n) => (at[n] ?? 0) - (committedAt.get(id) ?? 0));
    return {
      value: rateOf(at.toSorted((a, b) => a - b)),
      p50Ms: percentile(tookMs, 0.5),
      p95Ms: percentile(tookMs, 0.95),
      p99Ms: percentile(tookMs, 0.99),
    };
  });
}

/** As many as are due by now in one transaction; without a rate, one after the other. */
async function writeAll(
  writer: Writer,
  { ratePerSecond, forMs }: { readonly ratePerSecond: number; readonly forMs: number },
  note: (written: Awaited<ReturnType<Writer['write']>>) => void,
): Promise<void> {
  const beganAt = performance.now();
  let written = 0;
  for (;;) {
    const elapsedMs = Math.min(forMs, performance.now() - beganAt);
    const isOpen = ratePerSecond === Number.POSITIVE_INFINITY;
    const due = isOpen ? OPEN_BATCH : Math.floor((elapsedMs * ratePerSecond) / 1_000) - written;
    if (elapsedMs === forMs && (isOpen || due === 0)) return;
    if (due === 0) await sleep(1);
    else {
      const count = Math.min(due, WRITE_MAX);
      note(await writer.write(count));
      written += count;
    }
  }
}

interface Crews {
  readonly relays: readonly Crew[];
  readonly consumers: readonly Crew[];
}

async function started(place: Place, side: SideName, errand: Errand): Promise<Crews> {
  const { relays, consumers, batch, inFlight, prefetch, isWhole } = errand;
  const by = isWhole && side === 'ours' ? 'listen' : 'amqplib';
  const consuming = Array.from({ length: consumers }, () =>
    startConsumer({ ...place, by, prefetch }),
  );
  // The queue has to be there first: what finds none is not sent.
  await Promise.all(consuming.map(({ ready }) => ready));
  const relaying = Array.from({ length: relays }, () =>
    startRelay({ ...place, side, batch, inFlight }),
  );
  await Promise.all(relaying.map(({ ready }) => ready));
  return { relays: relaying, consumers: consuming };
}

async function stopped({ relays, consumers }: Crews) {
  await Promise.all(relays.map((relay) => relay.stop()));
  const seen = await Promise.all(consumers.map((consumer) => consumer.stop()));
  return { ids: seen.flatMap(({ ids }) => ids), at: seen.flatMap(({ at }) => at) };
}

async function until(consumers: readonly Crew[], wanted: number): Promise<void> {
  let last = 0;
  let changedAt = performance.now();
  for (;;) {
    const seen = consumers.reduce((sum, { count }) => sum + count, 0);
    if (seen >= wanted) return;
    if (seen > last) changedAt = performance.now();
    last = seen;
    if (performance.now() - changedAt > SILENCE_MAX_MS) {
      throw new Error(`only ${seen} of ${wanted} messages came`);
    }
    await sleep(LOOK_EVERY_MS);
  }
}

function rateOf(sorted: readonly number[]): number {
  const [first = 0, last = 0] = [sorted[0], sorted.at(-1)];
  return ((sorted.length - 1) / (last - first)) * 1_000;
}

async function onPlace<Value>(
  { url, amqp }: Ground,
  work: (place: Place) => Promise<Value>,
): Promise<Value> {
  const name = newName();
  const connection = await connect(amqp);
  const channel = await connection.createChannel();
  await channel.assertExchange(name, 'topic', { durable: true });
  try {
    return await work({ url, schema: name, amqp, exchange: name, queue: name });
  } finally {
    await channel.deleteQueue(name);
    await channel.deleteExchange(name);
    await connection.close();
    await dropSchema(url, name);
  }
}
