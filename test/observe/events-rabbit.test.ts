/** What a consumer tells of its topology and its messages, and a sweep of its queues; real broker. */
import { PermanentError, type SpoolEvent, type StreamedEvent } from 'respool';
import { expect, expectTypeOf, onTestFinished, test, vi } from 'vitest';
import { sweepShell } from '../cli/sweep-ground.ts';
import { consume, Hands, ownName } from '../rabbit/ground.ts';
import { died, openGround } from '../rabbit/queues/sweep-ground.ts';
import { withService } from '../services/index.ts';

withService('rabbitmq', () => {
  test('a consumer tells when it has declared its topology, and when it has compared it', async () => {
    const queue = ownName();
    const told: SpoolEvent[] = [];
    const applied = await consume({ queue }, () => undefined, { isStarted: false });
    applied.on('topology', (event) => void told.push(event));
    await applied.start();
    const { exchanges, queues, bindings } = applied.plan.topology;
    const counts = {
      exchanges: exchanges.length,
      queues: queues.length,
      bindings: bindings.length,
    };
    const about = { at: expect.any(Number), kind: 'topology', queue, ...counts };
    expect(counts.queues).toBeGreaterThan(1);
    expect(told).toEqual([{ ...about, act: 'applied' }]);
    await applied.stop();
    const options = { queue, declare: 'verify' } as const;
    const verified = await consume(options, () => undefined, { isStarted: false });
    verified.on('topology', (event) => void told.push(event));
    await verified.start();
    expect(told.slice(1)).toEqual([{ ...about, act: 'verified' }]);
  });

  test('a topology that does not fit is not told as compared', async () => {
    const queue = ownName();
    const options = { queue, declare: 'verify' } as const;
    const consumer = await consume(options, () => undefined, { isStarted: false });
    const kinds: string[] = [];
    consumer.on('*', ({ kind }) => void kinds.push(kind));
    await expect(consumer.start()).rejects.toMatchObject({ code: 'topology.mismatch' });
    expect(kinds).not.toContain('topology');
  });

  test('a consumer has its events as a stream that outlives its stop', async () => {
    const queue = ownName();
    const consumer = await consume(
      { queue },
      ({ id }) => {
        if (id === 'bad') throw new PermanentError('no.good', 'no');
      },
      { isStarted: false },
    );
    const stop = new AbortController();
    const stream = consumer.events({ signal: stop.signal });
    expectTypeOf(stream).toEqualTypeOf<AsyncIterableIterator<StreamedEvent>>();
    await consumer.start();
    const hands = await Hands.open();
    await hands.publish('', queue, {}, { messageId: 'good' });
    const seen: string[] = [];
    for await (const event of stream) {
      seen.push(event.kind);
      if (event.kind === 'delivered') await hands.publish('', queue, {}, { messageId: 'bad' });
      if (event.kind === 'bounced') {
        expect(event).toMatchObject({ id: 'bad', attempt: 1 });
        await consumer.stop();
      }
      if (event.kind === 'engine-stopped') stop.abort();
    }
    const attempt = ['claimed', 'started', 'ended'];
    expect(seen).toEqual([
      'topology',
      'engine-started',
      ...attempt,
      'delivered',
      ...attempt,
      'bounced',
      'engine-stopped',
    ]);
    expect(() => consumer.events({ kinds: ['topologie' as never] })).toThrow(/"topologie"/);
  });

  test('a sweep tells of each queue, also of one that failed', async () => {
    const { queues, pair, sweepAll } = await openGround();
    const [one, other] = [await pair(), await pair()];
    await queues.fill(one.queue, 4, () => died(9));
    await queues.fill(other.queue, 2, () => died(9));
    await queues.hands.channel.assertQueue(one.target, { durable: true });
    const told: SpoolEvent[] = [];
    const options = { limit: 3, createsTarget: false };
    const isTold = vi.fn();
    const first = { ...options, patterns: [one.queue], target: one.target };
    await sweepAll({ ...first, dryRun: true, onEvent: isTold });
    expect(isTold).not.toHaveBeenCalled();
    const onEvent = (event: SpoolEvent): void => {
      told.push(event);
      throw new Error('the listener is broken');
    };
    await sweepAll({ ...first, onEvent });
    await sweepAll({ ...options, patterns: [other.queue], target: other.target, onEvent });
    const about = { at: expect.any(Number), kind: 'sweep' };
    expect(told).toEqual([
      { ...about, queue: one.queue, target: one.target, moved: 3, left: 1 },
      {
        ...about,
        queue: other.queue,
        target: other.target,
        moved: 0,
        left: expect.any(Number),
        error: expect.stringContaining(other.target),
      },
    ]);
  });

  test('a sweep of the command line tells the service that its record goes through', async () => {
    const { lay, sweep, prefix, start } = await sweepShell();
    const service = start(['serve', '--port', '0', '--store', 'memory:']);
    onTestFinished(async () => {
      service.signal('SIGTERM');
      await service.ended;
    });
    const [, url = ''] = await service.printed(/"url":"(http:[^"]+)"/);
    const queue = await lay('dlq', [9, 1]);
    const told = service.printed(/"kind":"sweep".*/);
    const ran = await sweep('--queue', queue, '--target', `${prefix}.safe`, '--url', url);
    expect(ran, ran.stderr).toMatchObject({ code: 0 });
    const [line] = await told;
    expect(line).toContain(`"queue":"${queue}","target":"${prefix}.safe","moved":1,"left":1`);
  });
});
