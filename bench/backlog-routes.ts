/**
 * backlog-routes — what the engine's looks for work cost beside many messages that are not due, by
 * how many routes there are, on each entry store.
 *
 *   a spool with real routes ─▶ its claims and nextDueAt are recorded ─▶ asked again, in rounds
 *
 * The backlog is of `big.0` to `big.9`, half of it incoming and half deferred, due in a day. Its
 * route, that of `live` and every fifth of the others have a concurrency of their own, so that the
 * engine asks for each of them separately: for `live` alone, all of the backlog is left out. Both
 * sizes of backlog take turns within one process. At the end come due messages of a paused topic
 * and of a full destination, beside many destinations of which nothing is due.
 */

import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import {
  type ClaimFilter,
  type ClaimRequest,
  createSpool,
  type Entry,
  type EntryStore,
  type Spool,
} from 'respool';
import { filesystem } from 'respool/stores/filesystem';
import { memoryBodies } from 'respool/stores/memory';
import { nats } from 'respool/stores/nats';
import { postgres } from 'respool/stores/postgres';
import { sqlite } from 'respool/stores/sqlite';
import { sampleEntry } from 'respool/testkit';
import { multiply, multiplyRows } from './backlog-fill.ts';
import type { EntryStoreName } from './pairs.ts';
import { dropBuckets, dropSchema, newName } from './places.ts';
import { createServers, type Servers } from './servers.ts';

const ROUTE_COUNTS = [1, 2, 50] as const;
const SMALL = 1_000;
const DAY_MS = 86_400_000;
const SEEDS = 10;
/** Messages of one insert while filling, where nothing can be copied within the store. */
const FILL_BATCH = 1_000;
/** Destinations of which nothing is due, and messages that are due and left out beside them. */
const DESTINATIONS = 50_000;
const LEFT_OUT = 2_000;
const ROUNDS = 41;
const FEW_DUE = 10;
const POSTS = 41;
/** Slots: enough for each kind of work to take its share of the few that are due in one claim. */
const CONCURRENCY = 4 * FEW_DUE;

/** One result: a median with the large backlog, and the same with the small one. */
export interface RoutesLine {
  readonly name: string;
  readonly unit: string;
  readonly ours: number;
  readonly against: string;
  readonly theirs: number;
}

/** A store with a backlog, open. */
interface Filled {
  readonly store: EntryStore;
  readonly clean: () => Promise<void>;
}

/** What the engine asks the store for in one round in which nothing is due. */
interface Looks {
  readonly claims: ClaimRequest[];
  readonly nexts: ClaimFilter[];
}

/** Measures every number of routes on one store. */
export async function routesCost(
  name: EntryStoreName,
  path: string,
  backlog: number,
  print: (line: RoutesLine) => void,
): Promise<void> {
  const servers = createServers();
  const sides: Filled[] = [];
  try {
    for (const count of [backlog, SMALL]) {
      sides.push(await fill(name, join(path, String(count)), count, servers));
    }
    const stores = sides.map(({ store }) => store);
    for (const routes of ROUTE_COUNTS) {
      const tell = (what: string, unit: string, [ours = 0, theirs = 0]: readonly number[]): void =>
        print({
          name: `${name} routes ${routes} ${backlog}${what}`,
          unit,
          ours,
          against: `${name} routes ${routes} ${SMALL}${what}`,
          theirs,
        });
      const looks = await recordLooks(stores[0] as EntryStore, routes);
      tell('', 'ms a round', await medians(stores, (store) => round(store, looks, 0)));
      tell(
        ', few due',
        'ms a round',
        await medians(stores, (store) => round(store, looks, FEW_DUE)),
      );
      tell(', post to live', 'ms a post', await postCosts(stores, routes));
    }
    await leftOutCost(name, stores, print);
  } finally {
    for (const { store, clean } of sides) {
      await store.close();
      await clean();
    }
    await servers.end();
  }
}

/** The same where messages are due and left out, beside as many destinations of nothing due. */
async function leftOutCost(
  name: EntryStoreName,
  stores: readonly EntryStore[],
  print: (line: RoutesLine) => void,
): Promise<void> {
  const now = Date.now();
  const counts = [DESTINATIONS, SMALL];
  for (const [at, store] of stores.entries()) {
    const others = (n: number): Entry =>
      sampleEntry(`other-${n}`, {
        topic: `mail.${n % SEEDS}`,
        destination: `d${n}`,
        dueAt: now + DAY_MS,
      });
    const out = (n: number): Entry =>
      sampleEntry(`out-${n}`, { topic: 'out', destination: 'down', dueAt: now - DAY_MS });
    await insertMany(store, counts[at] ?? SMALL, others);
    await insertMany(store, LEFT_OUT, out);
  }
  const work = { lane: 'delivery', states: ['deferred', 'incoming'], leaseMs: 60_000 } as const;
  const topics = [
    { pattern: 'out', take: false },
    { pattern: '#', take: true },
  ];
  for (const [why, part] of [
    ['paused', { topics }],
    ['full', { exceptDestinations: ['down'] }],
  ] as const) {
    const filter = { ...work, ...part };
    const looks: Looks = {
      claims: [{ ...filter, max: CONCURRENCY, now, holder: '' }],
      nexts: [filter],
    };
    for (const due of [0, FEW_DUE]) {
      const [ours = 0, theirs = 0] = await medians(stores, (store) => round(store, looks, due));
      const what = `, ${why}${due === 0 ? '' : ', few due'}`;
      print({
        name: `${name} destinations ${DESTINATIONS}${what}`,
        unit: 'ms a round',
        ours,
        against: `${name} destinations ${SMALL}${what}`,
        theirs,
      });
    }
  }
}

async function insertMany(
  store: EntryStore,
  count: number,
  make: (at: number) => Entry,
): Promise<void> {
  for (let at = 0; at < count; at += FILL_BATCH) {
    const length = Math.min(FILL_BATCH, count - at);
    await store.insert(Array.from({ length }, (_, n) => make(at + n)));
  }
}

/** Opens a store with this number of messages that are not due. */
async function fill(
  name: EntryStoreName,
  path: string,
  count: number,
  servers: Servers,
): Promise<Filled> {
  const dueAt = Date.now() + DAY_MS;
  const waiting = (at: number): Entry =>
    sampleEntry(`big-${at}`, {
      topic: `big.${at % SEEDS}`,
      state: at % 2 === 0 ? 'incoming' : 'deferred',
      dueAt: dueAt + (at % 1_000),
    });
  const seeds = Array.from({ length: SEEDS }, (_, at) => waiting(at));
  const nothing = async (): Promise<void> => undefined;
  const space = newName();
  if (name === 'sqlite') {
    // Both sizes in this thread: which of them is moved to another one is no matter of its size.
    const store = sqlite({ path, thread: false });
    await store.open();
    await store.insert(seeds);
    await store.close();
    multiply(join(path, 'respool.db'), count);
    await store.open();
    return { store, clean: nothing };
  }
  if (name === 'postgres') {
    const url = await servers.url('postgres');
    const store = postgres({ url, schema: space });
    await store.open();
    await store.insert(seeds);
    await multiplyRows(url, space, count);
    return { store, clean: () => dropSchema(url, space) };
  }
  const url = name === 'nats' ? await servers.url('nats') : '';
  const make = (sync: 'none' | 'batch'): EntryStore =>
    name === 'nats' ? nats({ url, bucket: space }) : filesystem({ path, sync });
  const filling = make('none');
  await filling.open();
  for (let at = 0; at < count; at += FILL_BATCH) {
    await filling.insert(Array.from({ length: FILL_BATCH }, (_, n) => waiting(at + n)));
  }
  await filling.close();
  // What was not brought to the disk while filling must not be waited for while measuring.
  if (name === 'filesystem') execFileSync('sync', ['-f', path]);
  const store = make('batch');
  await store.open();
  return { store, clean: name === 'nats' ? () => dropBuckets(url, space) : nothing };
}

/** What a spool with this number of routes asks for when nothing is due. */
async function recordLooks(store: EntryStore, routes: number): Promise<Looks> {
  const looks: Looks = { claims: [], nexts: [] };
  let finish = (): void => undefined;
  const isIdle = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const spool = routed(
    lent(store, {
      claim(request) {
        looks.claims.push(request);
        return store.claim(request);
      },
      async nextDueAt(filter) {
        looks.nexts.push(filter);
        const dueAt = await store.nextDueAt(filter);
        finish();
        return dueAt;
      },
    }),
    routes,
    () => undefined,
  );
  await spool.start();
  await isIdle;
  await spool.stop();
  return looks;
}

/** One round of looks with this number of `live` messages due; only the looks are timed. */
async function round(store: EntryStore, looks: Looks, due: number): Promise<number> {
  calls += 1;
  const now = Date.now();
  const live = Array.from({ length: due }, (_, at) =>
    sampleEntry(`live-${calls}-${at}`, {
      topic: 'live',
      state: at % 2 === 0 ? 'incoming' : 'deferred',
      dueAt: now - 1,
    }),
  );
  if (due > 0) await store.insert(live);
  const got: Entry[] = [];
  const beganAt = performance.now();
  for (const [at, request] of looks.claims.entries()) {
    const holder = `${store.instance}/${calls}-${at}`;
    got.push(...(await store.claim({ ...request, now: Date.now(), holder })));
  }
  await Promise.all(looks.nexts.map((filter) => store.nextDueAt(filter)));
  const tookMs = performance.now() - beganAt;
  if (got.length !== due) throw new Error(`claimed ${got.length} of ${due}`);
  await store.commit(
    got.map(({ envelope: { id }, status: { revision, holder = '' } }) => ({
      id,
      revision,
      holder,
      to: 'remove' as const,
    })),
  );
  return tookMs;
}

let calls = 0;

/** The median time from a post to `live` to the start of its handler, while the engine runs. */
async function postCosts(stores: readonly EntryStore[], routes: number): Promise<number[]> {
  const waiting = new Map<string, () => void>();
  const spools = stores.map((store) =>
    routed(lent(store, {}), routes, (key) => waiting.get(key)?.()),
  );
  for (const spool of spools) await spool.start();
  try {
    return await medians(
      spools,
      async (spool) => {
        calls += 1;
        const key = String(calls);
        const isDelivered = new Promise<void>((resolve) => waiting.set(key, resolve));
        const beganAt = performance.now();
        await spool.enqueue({ topic: 'live', body: key, headers: { key } });
        await isDelivered;
        return performance.now() - beganAt;
      },
      POSTS,
    );
  } finally {
    for (const spool of spools) await spool.stop();
  }
}

/** A spool with this number of routes: one for all, or `big.#`, `live` and others. */
function routed(store: EntryStore, routes: number, onLive: (key: string) => void): Spool {
  const spool = createSpool({ entries: store, bodies: memoryBodies(), concurrency: CONCURRENCY });
  const patterns =
    routes === 1
      ? ['#']
      : ['big.#', 'live', ...Array.from({ length: routes - 2 }, (_, at) => `other-${at}.#`)];
  for (const [at, pattern] of patterns.entries()) {
    const limit = routes > 1 && (at < 2 || at % 5 === 0) ? { concurrency: CONCURRENCY / 2 } : {};
    spool.handle(pattern, (delivery) => onLive(delivery.headers['key'] ?? ''), limit);
  }
  return spool;
}

/** The store for a spool that does not open and close it, with some of its methods replaced. */
function lent(store: EntryStore, own: Partial<EntryStore>): EntryStore {
  const nothing = async (): Promise<void> => undefined;
  const replaced: Partial<EntryStore> = { open: nothing, close: nothing, ...own };
  return new Proxy(store, {
    get(target, key) {
      const value: unknown = Reflect.get(Object.hasOwn(replaced, key) ? replaced : target, key);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** The median for each of several sides that take turns; the first turns warm up. */
async function medians<Side>(
  sides: readonly Side[],
  measure: (side: Side) => Promise<number>,
  rounds = ROUNDS,
): Promise<number[]> {
  const times = sides.map((): number[] => []);
  const warmUp = Math.ceil(rounds / 4);
  for (let turn = -warmUp; turn < rounds; turn += 1) {
    for (const [at, side] of sides.entries()) {
      const tookMs = await measure(side);
      if (turn >= 0) times[at]?.push(tookMs);
    }
  }
  return times.map(
    (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)] ?? Number.NaN,
  );
}
