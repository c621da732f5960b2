/**
 * life-child — a program with slow handlers, poisonous ones and ones that get stuck; SIGTERM stops
 * it as a service manager would. Started by pause.ts, poison.ts and shutdown.ts.
 */
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Delivery, Outcome, Spool } from 'respool';
import { connectLedger, type LedgerClient } from './ledger-client.ts';
import type { EffectKind } from './ledger.ts';
import { type LifeOrder, type Poison, SPOOL_OPTIONS, STOP_WITHIN_MS } from './life-order.ts';
import { spoolAt } from './places.ts';
import { sha256 } from './plans.ts';

const order = JSON.parse(process.argv[2] ?? '') as LifeOrder;
const ledger = await connectLedger(order.port);
const spool = spoolAt(order.place, order.path, SPOOL_OPTIONS);
const keys = new Map<string, string>();

watch(spool, ledger);
spool.handle('good', (delivery) => effect(delivery, 'delivered'));
spool.handle('slow', async (delivery) => {
  await effect(delivery, 'begun');
  await sleep(order.slowMs);
  await effect(delivery, 'delivered');
});
spool.handle('stuck', async (delivery) => {
  await effect(delivery, 'begun');
  // Does not listen to its signal either.
  await new Promise(() => undefined);
});
spool.handle('poison.*', poison, { timeout: '300ms' });
process.once('SIGTERM', () => void end());
await spool.start();
writeSync(1, 'started\n');
if (order.endsWhenQuiet) {
  await quiet();
  await end();
}

async function end(): Promise<void> {
  const beganAt = performance.now();
  await spool.stop({ within: STOP_WITHIN_MS });
  writeSync(1, `stopped ${Math.round(performance.now() - beganAt)}\n`);
  ledger.close();
}

function watch(spool: Spool, ledger: LedgerClient): void {
  spool.on('trouble', ({ doing, error }) => writeSync(2, `trouble ${doing}: ${error.stack}\n`));
  for (const kind of ['delivered', 'stale', 'lease-lost'] as const) {
    spool.on(kind, (event) => {
      const key = keys.get(event.id);
      const said = { delivered: 'completed', stale: 'stale', 'lease-lost': 'expired' } as const;
      if (key !== undefined) ledger.tell({ kind: said[kind], key });
    });
  }
}

async function effect(delivery: Delivery, kind: EffectKind): Promise<void> {
  const { id, headers, fence, attempt } = delivery;
  const key = headers['key'] ?? id;
  keys.set(id, key);
  const hash = sha256(await delivery.body());
  const { pid } = process;
  await ledger.ask({ kind: 'effect', effect: { key, kind, fence, attempt, sha256: hash, pid } });
}

async function poison(delivery: Delivery): Promise<Outcome | undefined> {
  await effect(delivery, 'begun');
  switch (delivery.topic.slice('poison.'.length) as Poison) {
    case 'kill':
      process.kill(process.pid, 'SIGKILL');
      return undefined;
    case 'exit':
      return process.exit(7);
    case 'loop':
      for (;;);
    case 'undefined':
      // What a careless library may throw.
      // oxlint-disable-next-line typescript/prefer-promise-reject-errors
      return Promise.reject<undefined>(undefined);
    case 'huge':
      throw new Error('x'.repeat(50_000_000));
    default:
      await new Promise(() => undefined);
      return undefined;
  }
}

async function quiet(): Promise<void> {
  for (;;) {
    const { incoming, active, deferred } = await spool.count();
    if (incoming + active + deferred === 0) return;
    await sleep(20);
  }
}
