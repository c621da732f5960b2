/** backlog-child — one part of the backlog bench in its own process; prints a JSON line per result. */

import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSpool, type Entry, type EntryStore } from 'respool';
import { sqlite } from 'respool/stores/sqlite';
import { type SampleParts, sampleEntry } from 'respool/testkit';
import { multiply } from './backlog-fill.ts';
import { postgresClaimCost } from './backlog-postgres.ts';
import { routesCost } from './backlog-routes.ts';
import type { EntryStoreName } from './pairs.ts';
import { createServers } from './servers.ts';

const [part = '', store = 'sqlite', count = '1000000'] = process.argv.slice(2);
const path = mkdtempSync(join(tmpdir(), 'respool-backlog-'));
const LEASE_MS = 60_000;
const DAY_MS = 86_400_000;
const MIB = 2 ** 20;
/** As a file or a socket hands them out: 64 KiB. */
const PARTS_PER_MIB = 16;
const CLAIM = { lane: 'delivery', leaseMs: LEASE_MS } as const;

let claimCalls = 0;

try {
  if (part === 'claims') await claims(1_000_000);
  else if (part === 'postgres-claims') await postgresClaims(1_000_000);
  else if (part === 'paused') await paused(100_000);
  else if (part === 'routes') {
    await routesCost(store as EntryStoreName, path, Number(count), (line) => {
      print(line.name, line.unit, line.ours, line.against, line.theirs);
    });
  } else if (part === 'large-body') await largeBody(1_024);
} finally {
  rmSync(path, { recursive: true, force: true });
}

/** Claim cost, start-up and memory with this many deferred messages that are not due. */
async function claims(backlog: number): Promise<void> {
  const large = await claimCost(join(path, 'large'), backlog);
  const small = await claimCost(join(path, 'small'), 1_000);
  print(`sqlite drain 100 3 B, ${backlog} deferred`, 'ms a claim', large, '1,000 deferred', small);
  const startedAt = performance.now();
  const spool = createSpool({ path: join(path, 'large') });
  spool.handle('none', () => undefined);
  await spool.start();
  await spool.count();
  const startMs = performance.now() - startedAt;
  print(`sqlite start-up, ${backlog} deferred`, 'ms', startMs, 'limit', 5_000);
  print(`sqlite memory, ${backlog} deferred`, 'MiB', rssMib(), 'limit', 300);
  await spool.stop();
}

/** The same on a PostgreSQL server, before and after it has measured its tables. */
async function postgresClaims(backlog: number): Promise<void> {
  const servers = createServers();
  try {
    const url = await servers.url('postgres');
    const large = await postgresClaimCost(url, backlog);
    const small = await postgresClaimCost(url, 1_000);
    const name = `postgres drain 100 3 B, ${backlog} deferred`;
    print(`${name}, new`, 'ms a claim', large.freshMs, '1,000 deferred', small.freshMs);
    print(name, 'ms a claim', large.analyzedMs, '1,000 deferred', small.analyzedMs);
  } finally {
    await servers.end();
  }
}

/** The median time of claiming 100 due entries among those that are not due. */
async function claimCost(folder: string, backlog: number): Promise<number> {
  const now = Date.now();
  const store = sqlite({ path: folder });
  await store.open();
  await store.insert([sampleEntry('later-0', { state: 'deferred', dueAt: now + DAY_MS })]);
  await store.close();
  multiply(join(folder, 'respool.db'), backlog);
  await store.open();
  const times: number[] = [];
  for (let round = 0; round < 21; round += 1) {
    await store.insert(entries(`now-${round}`, 100, { state: 'deferred', dueAt: now - 1 }));
    times.push(await timeOfClaim(store, 100, { states: ['deferred'] }));
  }
  await store.close();
  return median(times);
}

/** The claim of one message while many due ones of a paused topic wait. */
async function paused(many: number): Promise<void> {
  const cost = async (folder: string, waiting: number): Promise<number> => {
    const now = Date.now();
    const store = sqlite({ path: join(path, folder) });
    await store.open();
    await store.insert([sampleEntry('paused-0', { topic: 'paused', dueAt: now - 1_000 })]);
    await store.close();
    multiply(join(path, folder, 'respool.db'), waiting);
    await store.open();
    const topics = [
      { pattern: 'paused', take: false },
      { pattern: '#', take: true },
    ];
    const times: number[] = [];
    for (let round = 0; round < 51; round += 1) {
      await store.insert(entries(`go-${round}`, 1, { topic: 'go', dueAt: now }));
      times.push(await timeOfClaim(store, 1, { states: ['incoming'], topics }));
    }
    await store.close();
    return median(times);
  };
  const beside = await cost('beside', many);
  const alone = await cost('alone', 1);
  const name = `sqlite drain 1 3 B, ${many} due of a paused topic`;
  print(name, 'ms a claim', beside, '1 of a paused topic', alone);
}

async function timeOfClaim(
  store: EntryStore,
  max: number,
  filter: Pick<Parameters<EntryStore['claim']>[0], 'states' | 'topics'>,
): Promise<number> {
  claimCalls += 1;
  const holder = `${store.instance}/${claimCalls}`;
  const beganAt = performance.now();
  const got = await store.claim({ ...CLAIM, ...filter, now: Date.now(), max, holder });
  const tookMs = performance.now() - beganAt;
  if (got.length !== max) throw new Error(`claimed ${got.length} of ${max}`);
  return tookMs;
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
    for (let at = 0; at < mib * PARTS_PER_MIB; at += 1) {
      const part = Buffer.alloc(MIB / PARTS_PER_MIB, at % 251);
      sent.update(part);
      look();
      yield part;
    }
  }
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
  if (sent.digest('hex') !== got.digest('hex')) throw new Error('the body came out differently');
  print(`sqlite+files end-to-end 1 ${mib} MiB, memory`, 'MiB', mostMib, 'limit', 200);
}

function entries(prefix: string, count: number, parts: SampleParts): Entry[] {
  return Array.from({ length: count }, (_, at) => sampleEntry(`${prefix}-${at}`, parts));
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
