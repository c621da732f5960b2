/** The sink suite, against a sink made of a spool; and that it finds what a sink does wrong. */
import { describe, expect, test } from 'vitest';
import { classify, type OutgoingMessage, type Sink } from 'respool';
import { type Arrival, sinkSuite, type SinkUnderTest } from 'respool/testkit';
import { setup } from '../spool/setup.ts';
import { runSuite } from '../suite.ts';

/** Another spool as the other side: parcels are enqueued there under their own ids. */
async function makeSpoolSink(change = (sink: Sink): Sink => sink): Promise<SinkUnderTest> {
  const { spool, store } = await setup({ isStarted: false });
  let isClosed = false;
  const onTheirWay = new Set<Promise<unknown>>();
  const put = async ({ id, topic, headers, body }: OutgoingMessage): Promise<'confirmed'> => {
    await spool.enqueue({ id, topic, headers, body });
    return 'confirmed';
  };
  const sink: Sink = {
    name: 'spool',
    send(parcels) {
      if (isClosed) return Promise.reject(new Error('closed'));
      const sending = Promise.all(parcels.map((parcel) => put(parcel).catch(classify)));
      onTheirWay.add(sending);
      return sending.finally(() => onTheirWay.delete(sending));
    },
    async close() {
      isClosed = true;
      await Promise.all(onTheirWay);
    },
  };
  return {
    sink: change(sink),
    async arrived() {
      const arrivals: Arrival[] = [];
      for await (const { envelope } of spool.list({ order: 'id' })) {
        const { id, topic, headers } = envelope;
        const chunks: Uint8Array[] = [];
        for await (const chunk of await spool.body(id)) chunks.push(chunk);
        arrivals.push({ id, topic, headers, body: Buffer.concat(chunks) });
      }
      return arrivals;
    },
    breakDown: async () => {
      store.faults.plan = () => 'before';
    },
    recover: async () => {
      store.faults.plan = () => 'ok';
    },
    refusable: (parcel) => ({ ...parcel, topic: 'not a topic' }),
    dispose: () => spool.stop(),
  };
}

const CAN = { canBreak: true, canRefuse: true, keepsOrder: true } as const;

runSuite('a spool as a sink', sinkSuite(makeSpoolSink, CAN));

describe('the sink suite', () => {
  const FORGETS = (sink: Sink): Sink => ({
    ...sink,
    send: async (parcels) => [
      ...(await sink.send(parcels.slice(1))),
      ...parcels.slice(0, 1).map(() => 'confirmed' as const),
    ],
  });
  const THROWS = (sink: Sink): Sink => ({
    ...sink,
    send: async (parcels) => {
      const answers = await sink.send(parcels);
      if (answers.some((answer) => answer !== 'confirmed')) throw new Error('one failed');
      return answers;
    },
  });
  const HURRIES = (sink: Sink): Sink => ({ ...sink, close: async () => undefined });
  const TURNS = (sink: Sink): Sink => ({
    ...sink,
    send: (parcels) =>
      sink.send(parcels.map((parcel, at) => ({ ...parcel, id: `p-${parcels.length - at}` }))),
  });

  test.each([
    ['confirms what it did not send', FORGETS, /has arrived/],
    ['throws when one of many fails', THROWS, /those beside it|transient/],
    ['goes on after its close', HURRIES, /closed twice/],
    ['changes ids', TURNS, /same id|has arrived|in order/],
  ])('finds a sink that %s', async (_, change, named) => {
    const cases = sinkSuite(() => makeSpoolSink(change), CAN).filter((one) => named.test(one.name));
    expect(cases).not.toEqual([]);
    for (const { run } of cases) await expect(run()).rejects.toThrow();
  });

  test('leaves out what a sink cannot be asked, and names a way the maker does not give', async () => {
    const none = { canBreak: false, canRefuse: false, keepsOrder: false };
    const names = sinkSuite(makeSpoolSink, none).map(({ name }) => name);
    expect(names.filter((name) => /arrive in order|refused|gone/.test(name))).toEqual([]);
    const without = async (): Promise<SinkUnderTest> => {
      const { refusable: _, ...rest } = await makeSpoolSink();
      return rest;
    };
    const refused = sinkSuite(without, CAN).find(({ name }) => name.startsWith('a refused'));
    await expect(refused?.run()).rejects.toThrow(/promised "refusable"/);
  });
});
