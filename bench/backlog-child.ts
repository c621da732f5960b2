/** backlog-child — one part of the backlog bench in its own process; prints a JSON line per result. */

import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSpool, type Entry } from 'respool';
import { sqlite } from 'respool/stores/sqlite';
import { type SampleParts, sampleEntry } from 'respool/testkit';

const [part = '', scaleText = '1'] = process.argv.slice(2);
const scale = Number(scaleText);
const path = mkdtempSync(join(tmpdir(), 'respool-backlog-'));
const BATCH = 1_000;
const LEASE_MS = 60_000;
const MIB = 2 ** 20;

try {
  if (part === 'claims') await claims(Math.round(1_000_000 * scale));
  else if (part === 'paused') await paused(Math.round(100_000 * scale));
  else if (part === 'large-body') await largeBody(Math.round(1_024 * scale));
} finally {
  rmSync(path, { recursive: true, force: true });
}

/** Claim cost, start-up and memory with this many deferred messages that are not due. */
async function claims(backlog: number): Promise<void> {
  const small = await claimCost(join(path, 'small'), 1_000);
  const large = await claimCost(join(path, 'large'), backlog);
  print(`sqlite claim of 100 with ${backlog} deferred`, 'ms', large, '1,000 deferred', small);
  const startedAt = performance.now();
  const spool = createSpool({ path: join(path, 'large') });
  spool.handle('none', () => undefined);
  await spool.start();
  await spool.count();
  print(
    `sqlite start-up with ${backlog} deferred`,
    'ms',
    performance.now() - startedAt,
    'limit',
    5_000,
  );
  globalThis.gc?.();
  print(`sqlite memory with ${backlog} deferred`, 'MiB', rssMib(), 'limit', 300);
  await spool.stop();
}

/** The median time of claiming 100 due entries among those that are not due. */
async function claimCost(folder: string, backlog: number): Promise<number> {
  const store = sqlite({ path: folder });
  await store.open();
  const now = Date.now();
  for (let from = 0; from < backlog; from += BATCH) {
    await store.insert(
      entries('later', from, { state: 'deferred', dueAt: now + 86_400_000 + from }),
    );
  }
  const times: number[] = [];
  for (let round = 0; round < 21; round += 1) {
    await store.insert(entries(`now-${round}`, 0, { state: 'deferred', dueAt: now - 1 }, 100));
    const beganAt = performance.now();
    const got = await store.claim({
      ...CLAIM,
      now: Date.now(),
      max: 100,
      holder: holder(store.instance),
    });
    times.push(performance.now() - beganAt);
    if (got.length !== 100) throw new Error(`claimed ${got.length} of 100`);
  }
  await store.close();
  return median(times);
}

/** The claim of one message while many due ones of a paused topic wait. */
async function paused(many: number): Promise<void> {
  const cost = async (folder: string, waiting: number): Promise<number> => {
    const store = sqlite({ path: join(path, folder) });
    await store.open();
    const now = Date.now();
    for (let from = 0; from < waiting; from += BATCH) {
      const count = Math.min(BATCH, waiting - from);
      await store.insert(entries('paused', from, { topic: 'paused', dueAt: now - 1_000 }, count));
    }
    const topics = [
      { pattern: 'paused', take: false },
      { pattern: '#', take: true },
    ];
    const times: number[] = [];
    for (let round = 0; round < 51; round += 1) {
      await store.insert(entries(`go-${round}`, 0, { topic: 'go', dueAt: now }, 1));
      const beganAt = performance.now();
      const got = await store.claim({
        ...CLAIM,
        states: ['incoming'],
        topics,
        now: Date.now(),
        max: 1,
        holder: holder(store.instance),
      });
      times.push(performance.now() - beganAt);
      if (got.length !== 1) throw new Error(`claimed ${got.length} of 1`);
    }
    await store.close();
    return median(times);
  };
  const alone = await cost('alone', 0);
  const beside = await cost('beside', many);
  print(
    `sqlite claim of 1 beside ${many} due of a paused topic`,
    'ms',
    beside,
    'none paused',
    alone,
  );
}

/** A body of this many MiB in and out, and the most memory the process had meanwhile. */
async function largeBody(mib: number): Promise<void> {
  const spool = createSpool({ path: join(path, 'large'), limits: { bodyBytes: 2 * mib * MIB } });
  let mostMib = 0;
  const look = (): void => {
    mostMib = Math.max(mostMib, rssMib());
  };
  const sent = createHash('sha256');
  async function* source(): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < mib; at += 1) {
      const part = Buffer.alloc(MIB, at % 251);
      sent.update(part);
      look();
      yield part;
    }
  }
  const inAt = performance.now();
  const got = createHash('sha256');
  const delivered = new Promise<void>((resolve) => {
    spool.handle('large', async (delivery) => {
      for await (const chunk of delivery.stream()) {
        got.update(chunk);
        look();
      }
      resolve();
    });
  });
  await spool.start();
  await spool.enqueue({ topic: 'large', body: source() });
  await delivered;
  await spool.stop();
  const seconds = (performance.now() - inAt) / 1_000;
  if (sent.digest('hex') !== got.digest('hex')) throw new Error('the body came out differently');
  print(`sqlite+files body of ${mib} MiB in and out, memory`, 'MiB', mostMib, 'limit', 200);
  print(`sqlite+files body of ${mib} MiB in and out`, 'MiB/s', (2 * mib) / seconds, 'one MiB/s', 1);
}

const CLAIM = { lane: 'delivery', states: ['deferred'], leaseMs: LEASE_MS } as const;

function entries(prefix: string, from: number, parts: SampleParts, count = BATCH): Entry[] {
  return Array.from({ length: count }, (_, at) => sampleEntry(`${prefix}-${from + at}`, parts));
}

let claimCalls = 0;
function holder(instance: string): string {
  claimCalls += 1;
  return `${instance}/${claimCalls}`;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

function rssMib(): number {
  return process.memoryUsage.rss() / MIB;
}

function print(name: string, unit: string, ours: number, against: string, theirs: number): void {
  const short = (value: number): number => Number(value.toPrecision(4));
  console.log(
    JSON.stringify({ case: name, unit, ours: short(ours), against, theirs: short(theirs) }),
  );
}
