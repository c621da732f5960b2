/** What a relay tells: whether its target answers, and its messages, as callback and as stream. */
import { describe, expect, test } from 'vitest';
import { failure, RespoolError, type Sink, type SpoolEvent } from 'respool';
import { ground } from '../outbox/relay-ground.ts';
import { skipReason } from '../services/index.ts';

const reason = skipReason('rabbitmq') ?? skipReason('postgres');

/** A target that is away until it is told otherwise. */
function faultySink(): { readonly sink: Sink; readonly recover: () => void } {
  let isAway = true;
  const away = failure('transient', 'broker.unavailable', 'nobody there');
  const sink: Sink = {
    name: 'far',
    send: async (parcels) => parcels.map(() => (isAway ? away : 'confirmed')),
    close: () => Promise.resolve(),
  };
  const recover = (): void => {
    isAway = false;
  };
  return { sink, recover };
}

describe.skipIf(reason !== undefined)('a relay', () => {
  test('tells when its target is gone and when it answers again', async () => {
    const { emit, relay } = await ground();
    const { sink, recover } = faultySink();
    const one = relay({ to: sink });
    const told: SpoolEvent[] = [];
    one.on('relay', (event) => {
      told.push(event);
      if (told.length === 1) recover();
    });
    await emit(1);
    await one.start();
    // Not by the load: before the first send its target is taken for open.
    await expect.poll(() => told.length).toBe(3);
    const about = { at: expect.any(Number), kind: 'relay', target: 'sink "far"' };
    expect(told).toEqual([
      { ...about, state: 'open' },
      { ...about, state: 'half-open' },
      { ...about, state: 'closed' },
    ]);
  });

  test('has its events as a stream that outlives its stop', async () => {
    const { emit, relay } = await ground();
    const one = relay();
    const [id] = await emit(1);
    const stop = new AbortController();
    const kinds = ['relay', 'delivered', 'engine-stopped'] as const;
    const stream = one.events({ signal: stop.signal, kinds });
    await one.start();
    const seen: unknown[] = [];
    for await (const event of stream) {
      seen.push(event);
      if (event.kind === 'delivered') await one.stop();
      if (event.kind === 'engine-stopped') stop.abort();
    }
    expect(seen).toMatchObject([
      { kind: 'relay', state: 'closed' },
      { kind: 'delivered', id },
      { kind: 'engine-stopped' },
    ]);
    expect(() => one.events({ kinds: ['relais' as never] })).toThrow(RespoolError);
  });
});
