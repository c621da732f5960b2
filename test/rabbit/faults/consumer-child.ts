/**
 * consumer-child — one consumer of several on one queue. Its handlers do as the messages say and
 * tell the ledger; a message with the plan `crash` kills the process every time.
 *
 * Started by flow.ts. `stop` on its input or SIGTERM ends it in order; what keeps it alive after
 * `stopped` is a leak.
 */
import { writeSync } from 'node:fs';
import { flushCompileCache } from 'node:module';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { held, type Outcome, PermanentError, postponed, RetryableError } from 'respool';
import { createConsumer, type RabbitDelivery } from 'respool/rabbit';
import { createChance } from '../../torture/chance.ts';
import type { EffectKind } from '../../torture/ledger.ts';
import { connectLedger } from '../../torture/ledger-client.ts';
import { sha256 } from '../../torture/plans.ts';
import { type ConsumerOrder, optionsOf } from './order.ts';

const order = JSON.parse(process.argv[2] ?? '') as ConsumerOrder;
const ledger = await connectLedger(order.port);
const chance = createChance(order.seed);
const consumer = createConsumer(optionsOf(order), handle);
consumer.on('trouble', ({ doing, error }) =>
  writeSync(1, `trouble ${Date.now() % 1_000_000} ${doing}: ${error.message}\n`),
);
await consumer.start();
await ledger.ask({ kind: 'hello', pid: process.pid });
writeSync(1, 'started\n');
flushCompileCache();
const lines = createInterface({ input: process.stdin });
lines.on('line', () => void end());
process.once('SIGTERM', () => void end());

async function handle(delivery: RabbitDelivery): Promise<Outcome | undefined> {
  const { id, fence, attempt, headers } = delivery;
  if (headers['plan'] === 'crash') process.kill(process.pid, 'SIGKILL');
  if (chance.happens(0.3)) await sleep(chance.between(1, 15));
  const kind = kindOf(headers['plan'] ?? '', attempt, delivery.notes);
  const body = sha256(await delivery.body());
  const effect = { key: id, kind, fence, attempt, sha256: body, pid: process.pid, at: Date.now() };
  await ledger.ask({ kind: 'effect', effect });
  if (chance.happens(0.2)) await sleep(chance.between(1, 5));
  if (kind === 'failed') throw new RetryableError('test.busy', 'try again');
  if (kind === 'permanent') throw new PermanentError('test.never', 'never');
  if (kind === 'held') return held('for a human');
  if (kind !== 'postponed') return undefined;
  delivery.note('waited', 'yes');
  return postponed(`${chance.between(5, 90)}ms`, 'not yet');
}

function kindOf(plan: string, attempt: number, notes: RabbitDelivery['notes']): EffectKind {
  if (plan === 'retry') return attempt <= 2 ? 'failed' : 'delivered';
  if (plan === 'postpone') return notes['waited'] === undefined ? 'postponed' : 'delivered';
  if (plan === 'permanent') return 'permanent';
  return plan === 'hold' ? 'held' : 'delivered';
}

async function end(): Promise<void> {
  lines.close();
  process.stdin.destroy();
  await consumer.stop();
  ledger.close();
  writeSync(1, 'stopped\n');
}
