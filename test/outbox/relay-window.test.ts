/** How much a crash of a relay may send again: what is sent and not written down, `concurrency`. */
import type { EntryStore } from 'respool';
import { expect, test } from 'vitest';
import { put, relayWorld, TestSink } from './relay-setup.ts';

/** A relay whose store writes nothing down until it is let. */
function slowWorld(concurrency: number) {
  const sink = new TestSink();
  const gate = Promise.withResolvers<void>();
  const base = relayWorld(sink);
  const makeStore = (): EntryStore => {
    const store = base.parts.makeStore();
    return new Proxy(store, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== 'function') return value;
        return async (...given: unknown[]) => {
          if (name === 'commit') await gate.promise;
          return (value as (...args: unknown[]) => unknown).apply(target, given);
        };
      },
    });
  };
  const world = relayWorld(sink, { concurrency, batch: 5 }, { ...base.parts, makeStore });
  return { sink, gate, relay: world.relay, clock: base.clock, spool: base.spool };
}

test('a relay has sent at most "concurrency" messages that are not written down', async () => {
  const { sink, gate, relay, clock, spool } = slowWorld(20);
  await put(spool, 500);
  await relay.start();
  await clock.advance('10s');
  expect(sink.ids).toHaveLength(20);
  gate.resolve();
  await clock.advance('1m');
  expect(new Set(sink.ids).size).toBe(500);
  expect(sink.ids).toHaveLength(500);
  await relay.stop();
});

test('what waits for that is given back by a stop, unsent and at no cost', async () => {
  const { sink, gate, relay, clock, spool } = slowWorld(3);
  await put(spool, 10);
  await relay.start();
  await clock.advance('1s');
  expect(sink.ids).toHaveLength(3);
  const stopped = relay.stop({ within: '1s' });
  await clock.advance('2s');
  gate.resolve();
  await clock.advance('1m');
  await stopped;
  expect(sink.ids).toHaveLength(3);
  for await (const { status } of spool.list()) expect(status).toMatchObject({ attempts: 0 });
});
