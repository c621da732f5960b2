/**
 * node-child — one node of several on one store: producers and handlers, all of them telling the
 * ledger what they do.
 *
 * Started by fleet.ts, and led by words on its input: `finish` (produce no more), `drain` (go on
 * until nothing is left in the store, then stop), `sockets` (how many are open). It never ends its
 * process by force: what keeps it alive after `stopped` is a leak.
 */
import { writeSync } from 'node:fs';
import { flushCompileCache } from 'node:module';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Entry, type EntryStore, isRespoolError, type Spool } from 'respool';
import { createChance } from '../torture/chance.ts';
import { connectLedger, type LedgerClient } from '../torture/ledger-client.ts';
import { type ClaimTime, handleWork, produce, quiet, takeAway } from '../torture/load.ts';
import { spoolAt } from '../torture/places.ts';
import { planMessage } from '../torture/plans.ts';
import { NODE_OPTIONS, type NodeOrder } from './node-order.ts';

/** Where a store was away, before the same is tried again. */
const AGAIN_MS = 50;

const order = JSON.parse(process.argv[2] ?? '') as NodeOrder;
const ledger = await connectLedger(order.port);
const claimTimes = new Map<string, ClaimTime>();
const options = { ...NODE_OPTIONS, settle: order.settle, lease: order.leaseMs };
const spool = spoolAt(order.place, order.path, options, 'auto', timed);
const { isRough } = order;
const leading = { isFinishing: false };

spool.on('trouble', ({ doing, error }) => {
  // Said aloud where nothing should be wrong; elsewhere it has to be an error with a name.
  const isExpected = isRough && isRespoolError(error, 'store.unavailable');
  writeSync(isExpected ? 1 : 2, `trouble ${doing}: ${isExpected ? error.message : error.stack}\n`);
});
handleWork(spool, {
  ledger,
  chance: createChance(order.seed),
  running: new Map(),
  claimTimes,
});
await spool.start();
writeSync(1, 'started\n');
flushCompileCache();
const { again = [] } = await ledger.ask({ kind: 'hello', pid: process.pid });
const producing = Promise.all([
  ...again.map((message) => produce(spool, ledger, message, { isRough })),
  ...Array.from({ length: order.producers }, (_, producer) =>
    produceAll(spool, ledger, `${order.name}-${producer}`, order.seed + producer),
  ),
]);
listen();

function listen(): void {
  const lines = createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    if (line.startsWith('sockets')) writeSync(1, `${line}${socketCount()}\n`);
    if (line === 'finish') {
      leading.isFinishing = true;
      void producing.then(() => writeSync(1, 'finished\n'));
    }
    if (line === 'drain') {
      lines.close();
      process.stdin.destroy();
      void end();
    }
  });
}

async function end(): Promise<void> {
  await producing;
  await persist(() => quiet(spool));
  await spool.stop();
  ledger.close();
  writeSync(1, 'stopped\n');
}

function socketCount(): number {
  return process.getActiveResourcesInfo().filter((name) => name.includes('TCP')).length;
}

async function produceAll(
  spool: Spool,
  ledger: LedgerClient,
  name: string,
  seed: number,
): Promise<void> {
  const chance = createChance(seed);
  for (let count = 0; !leading.isFinishing; count += 1) {
    const message = planMessage(`${name}-${count}`, chance);
    if (isRough && message.plan === 'crash') continue;
    let id = await produce(spool, ledger, message, { isRough });
    // With an id of its own it may be enqueued again, as a careful producer does.
    while (id === undefined && message.hasOwnId) {
      await sleep(AGAIN_MS);
      id = await produce(spool, ledger, message, { isRough });
    }
    if (message.plan === 'remove' && id !== undefined) {
      const found = id;
      await persist(() => takeAway(spool, ledger, message.key, found));
    }
    await sleep(chance.between(0, order.paceMs * 2));
  }
}

/** Does it until the store is there. */
async function persist(work: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!isRough || !isRespoolError(error, 'store.unavailable')) throw error;
      await sleep(AGAIN_MS);
    }
  }
}

/** The same store, which notes when entries were claimed, and when new ones came in claimed. */
function timed(store: EntryStore): EntryStore {
  const note = (entries: readonly Entry[], askedAt: number): void => {
    for (const { envelope, status } of entries) {
      const times = { askedAt, answeredAt: Date.now() };
      if (status.state === 'active') claimTimes.set(`${envelope.id}:${status.revision}`, times);
    }
  };
  const own: Partial<EntryStore> = {
    async claim(request) {
      const askedAt = Date.now();
      const entries = await store.claim(request);
      note(entries, askedAt);
      return entries;
    },
    async insert(entries) {
      const askedAt = Date.now();
      const results = await store.insert(entries);
      note(entries, askedAt);
      return results;
    },
  };
  return new Proxy(store, {
    get(target, name) {
      const value = Reflect.get(own, name) ?? Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}
