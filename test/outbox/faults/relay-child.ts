/**
 * relay-child — one relay of several on one outbox, in a process of its own, to be killed.
 *
 * Words on its input: `stop` ends it in order; `work N` is answered with what it has done so far
 * (RelayWork). It prints what troubles it. What keeps it alive after `stopped` is a leak.
 */
import { writeSync } from 'node:fs';
import { flushCompileCache } from 'node:module';
import { createInterface } from 'node:readline';
import pg from 'pg';
import { createOutbox } from 'respool/outbox';
import { BATCH, LEASE_MS, type RelayOrder, type RelayWork } from './order.ts';

const order = JSON.parse(process.argv[2] ?? '') as RelayOrder;
const counter = countQueries();
const { url, schema, amqp, exchange, pauseMs } = order;
const outbox = createOutbox({ url, schema, listenUrl: url });
const relay = outbox.relay({
  to: { amqp, exchange },
  batch: BATCH,
  concurrency: BATCH,
  lease: LEASE_MS,
  pauseAfter: pauseMs,
});
relay.on('trouble', ({ doing, error }) => {
  writeSync(1, `trouble ${doing}: ${error.message}\n`);
});
await relay.start();
writeSync(1, 'started\n');
flushCompileCache();
const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => {
  if (line.startsWith('work ')) writeSync(1, `${line}${JSON.stringify(workSoFar())}\n`);
  if (line === 'stop') void end();
});

async function end(): Promise<void> {
  lines.close();
  process.stdin.destroy();
  await relay.stop();
  await outbox.close();
  writeSync(1, 'stopped\n');
}

function workSoFar(): RelayWork {
  const { loopCount } = performance.nodeTiming.uvMetricsInfo;
  return { queries: counter.queries, turns: loopCount, atMs: performance.now() };
}

/** Every statement of every connection of this process goes through here. */
function countQueries(): { readonly queries: number } {
  const counted = { queries: 0 };
  const query = Reflect.get(pg.Client.prototype, 'query') as (...words: unknown[]) => unknown;
  const counting = function (this: unknown, ...words: unknown[]): unknown {
    counted.queries += 1;
    return Reflect.apply(query, this, words);
  };
  Reflect.set(pg.Client.prototype, 'query', counting);
  return counted;
}
