/** Traces across RabbitMQ and across an outbox, with the SDK of OpenTelemetry in memory. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { forward, ladder } from 'respool';
import { http } from 'respool/deliver';
import { createOutbox, type EmitOptions, spoolSink } from 'respool/outbox';
import { createConsumer, createPublisher, rabbitSink, shared } from 'respool/rabbit';
import { expect, onTestFinished, test } from 'vitest';
import { environmentOf } from '../../src/deliver/exec/exec.ts';
import { makeDelivery } from '../deliver/setup.ts';
import { openSqliteOutbox } from '../outbox/core-setup.ts';
import { ground, told } from '../outbox/relay-ground.ts';
import { relayWorld, TestSink } from '../outbox/relay-setup.ts';
import { consume, Hands, nextEvent, ownName } from '../rabbit/ground.ts';
import { service, withService } from '../services/index.ts';
import { failing, MINUTE, setup } from '../spool/setup.ts';
import { type Recorder, record, traceIdsOf } from './spans.ts';

const POLICY = ladder(['50ms', '50ms', '50ms']);
const OURS = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

/** Fails twice, then delivers; what is returned waits for that. */
async function consumeThrice(
  queue: string,
  { tracer }: Recorder,
  more = {},
): Promise<() => Promise<void>> {
  const { handler } = failing(2);
  // Wait queues of its own: those of others are deleted with their tests.
  const topology = shared({ prefix: queue });
  const options = { queue, topology, policy: POLICY, tracing: tracer, ...more };
  const consumer = await consume(options, handler);
  const delivered = nextEvent(consumer, 'delivered');
  return async () => {
    await delivered;
    // The last settle span ends after the event.
    await consumer.stop();
  };
}

withService('rabbitmq', () => {
  test('one trace leads from a publish over wait queues and two failed attempts', async () => {
    const recorder = await record();
    const { tracer, spans, tree, named } = recorder;
    const queue = ownName('trace');
    const publisher = createPublisher({ url: await service('rabbitmq'), tracing: tracer });
    onTestFinished(() => publisher.close());
    const consumed = await consumeThrice(queue, recorder);
    const { id } = await publisher.publish({ key: queue, body: { a: 1 }, correlationId: 'c-1' });
    await consumed();

    expect(traceIdsOf(spans())).toHaveLength(1);
    expect(tree().toSorted()).toEqual(
      [
        `PRODUCER send ${queue} < (none)`,
        ...[1, 2, 3].flatMap((attempt) => [
          `CONSUMER process ${queue} #${attempt} < send ${queue}`,
          `CLIENT settle ${queue} #${attempt} < process ${queue} #${attempt}`,
        ]),
      ].toSorted(),
    );
    const [first, ...retries] = named(`process ${queue}`);
    for (const retry of retries) {
      const linked = retry.links.map(({ context }) => context.spanId);
      expect(linked).toEqual([first?.spanContext().spanId]);
    }
    const common = {
      'messaging.system': 'rabbitmq',
      'messaging.destination.name': queue,
      'messaging.rabbitmq.destination.routing_key': queue,
      'messaging.message.conversation_id': 'c-1',
      'messaging.message.id': id,
    };
    expect(named(`send ${queue}`)[0]?.attributes).toMatchObject(common);
    for (const span of [first, ...retries]) expect(span?.attributes).toMatchObject(common);
  });

  test('a publish names exchange and key, keeps a context it is given, and tells its failure', async () => {
    const { tracer, named } = await record();
    const url = await service('rabbitmq');
    const publisher = createPublisher({ url, exchange: 'amq.topic', tracing: tracer });
    onTestFinished(() => publisher.close());
    const key = ownName('nowhere');
    const headers = { traceparent: OURS, count: 1 };
    await expect(publisher.publish({ key, headers })).rejects.toThrow('no queue');
    const [span] = named(`send amq.topic:${key}`);
    expect(span?.parentSpanContext?.spanId).toBe('b7ad6b7169203331');
    expect(span?.attributes).toMatchObject({ 'error.type': 'broker.unroutable' });
    await expect(publisher.publish({ key, headers: { CC: 'no list' } })).rejects.toThrow('CC');
    expect(named(`send amq.topic:${key}`)[1]?.attributes['error.type']).toBe('message.invalid');
  });

  test('without an SDK a publish carries nothing', async () => {
    const { tracer } = await record();
    const { unregister } = await import('./spans.ts');
    unregister();
    const hands = await Hands.open();
    const queue = ownName('plain');
    await hands.channel.assertQueue(queue);
    onTestFinished(async () => void (await hands.channel.deleteQueue(queue)));
    const publisher = createPublisher({ url: await service('rabbitmq'), tracing: tracer });
    onTestFinished(() => publisher.close());
    await publisher.publish({ key: queue, headers: { tenant: 'a' } });
    expect((await hands.take(queue)).properties.headers).toEqual({ tenant: 'a' });
  });

  test('what a spool forwards to an exchange belongs to its attempt', async () => {
    const recorder = await record();
    const { tracer, spans, tree } = recorder;
    const queue = ownName('forward');
    const sink = rabbitSink({
      url: await service('rabbitmq'),
      exchange: '',
      key: queue,
      tracing: tracer,
    });
    const consumed = await consumeThrice(queue, recorder);
    const { spool } = await setup({ tracing: tracer });
    spool.handle('a', forward(sink));
    await spool.enqueue({ topic: 'a' });
    await consumed();
    await sink.close();
    expect(traceIdsOf(spans())).toHaveLength(1);
    expect(tree()).toEqual(
      expect.arrayContaining([
        'PRODUCER send a < (none)',
        'CONSUMER process a #1 < send a',
        `PRODUCER send ${queue} < process a #1`,
        `CONSUMER process ${queue} #3 < send ${queue}`,
      ]),
    );
  });

  test('a message that fell back to a spool stays in the trace of its publish', async () => {
    const { tracer, spans, tree } = await record();
    const { spool } = await setup({ tracing: tracer, isStarted: false });
    const publisher = createPublisher({
      url: 'amqp://127.0.0.1:1',
      exchange: 'ex',
      fallback: spool,
      fallbackAfter: 0,
      tracing: tracer,
    });
    onTestFinished(() => publisher.close());
    expect((await publisher.publish({ key: 'k' })).via).toBe('spool');
    expect(traceIdsOf(spans())).toHaveLength(1);
    expect(tree()).toEqual(['PRODUCER send ex:k < (none)', 'PRODUCER send rabbit.ex < send ex:k']);
  });
});

test('what is no tracer is refused by publishers, consumers, sinks and outboxes', async () => {
  const url = 'amqp://127.0.0.1:1';
  const tracing = {} as never;
  const wrong = 'cannot use {} as "tracing"';
  expect(() => createPublisher({ url, tracing })).toThrow(wrong);
  expect(() => createConsumer({ url, queue: 'q', tracing }, () => undefined)).toThrow(wrong);
  expect(() => rabbitSink({ url, exchange: 'e', tracing })).toThrow(wrong);
  expect(() => createOutbox({ url: 'postgres://127.0.0.1:1/x', tracing })).toThrow(wrong);
  await expect(openSqliteOutbox({ tracing })).rejects.toThrow(wrong);
});

withService('rabbitmq', () => {
  test('a tracer that throws harms neither publisher, consumer nor outbox', async () => {
    const bad = (): never => {
      throw new Error('the tracer is broken');
    };
    const span = { headers: {}, notes: undefined, run: bad, end: bad, settle: bad };
    for (const tracing of [
      { send: bad, attempt: bad, carries: bad },
      { send: () => span, attempt: () => span, carries: bad },
    ]) {
      const queue = ownName('broken');
      const url = await service('rabbitmq');
      const recorder = { tracer: tracing } as unknown as Recorder;
      const consumed = await consumeThrice(queue, recorder);
      const publisher = createPublisher({ url, tracing });
      onTestFinished(() => publisher.close());
      await publisher.publish({ key: queue });
      await consumed();
      const { database, outbox } = await openSqliteOutbox({ tracing });
      const sink = new TestSink();
      const relay = outbox.relay({ to: sink });
      onTestFinished(() => relay.stop());
      const delivered = told(relay, 'delivered', 2);
      await relay.start();
      database.transaction(() => {
        outbox.emit(database, 'a', {});
        outbox.emitMany(database, [{ routingKey: 'b' }]);
      })();
      outbox.wake();
      await delivered;
      const topics = sink.sends.flat().map(({ topic }) => topic);
      expect(topics.toSorted()).toEqual(['a', 'b']);
      // Before its file is gone: it writes down what it has sent.
      await relay.stop();
    }
  });
});

withService('postgres', () => {
  withService('rabbitmq', () => {
    test('one trace leads from an emit over the relay and RabbitMQ to the delivery', async () => {
      const recorder = await record();
      const { tracer, spans, tree } = recorder;
      const { pool, schema, broker } = await ground();
      const outbox = createOutbox({ pool, schema, tracing: tracer });
      onTestFinished(() => outbox.close());
      const queue = ownName('outbox');
      const bindings = [{ exchange: broker.exchange, key: 'o.#' }];
      const consumed = await consumeThrice(queue, recorder, { bindings });
      const relay = outbox.relay({ to: { amqp: broker.url, exchange: broker.exchange } });
      onTestFinished(() => relay.stop({ within: '2s' }));
      await relay.start();
      await outbox.transaction((tx) => outbox.emit(tx, 'o.new', { orderId: 1 }));
      await consumed();
      await relay.stop();
      expect(traceIdsOf(spans())).toHaveLength(1);
      const way = `send ${broker.exchange}:o.new`;
      expect(tree().toSorted()).toEqual(
        [
          'PRODUCER send o.new < (none)',
          'CONSUMER process o.new #1 < send o.new',
          `PRODUCER ${way} < process o.new #1`,
          'CLIENT settle o.new #1 < process o.new #1',
          ...[1, 2, 3].flatMap((attempt) => [
            `CONSUMER process ${queue} #${attempt} < ${way}`,
            `CLIENT settle ${queue} #${attempt} < process ${queue} #${attempt}`,
          ]),
        ].toSorted(),
      );
    });

    test('many emits share a span, and one that fails tells it', async () => {
      const { tracer, named } = await record();
      const { pool, schema } = await ground();
      const outbox = createOutbox({ pool, schema, tracing: tracer });
      onTestFinished(() => outbox.close());
      const messages = [{ routingKey: 'a' }, { routingKey: 'a' }];
      await outbox.transaction((tx) => outbox.emitMany(tx, messages));
      expect(named('send a')[0]?.attributes['messaging.batch.message_count']).toBe(2);
      await expect(outbox.emit({} as never, 'b')).rejects.toThrow();
      expect(named('send b')[0]?.attributes['error.type']).toBeDefined();
    });
  });
});

test('an emit in SQLite carries its trace, and a relay to a spool goes on with it', async () => {
  const { tracer, spans, tree, named } = await record();
  const { database, outbox } = await openSqliteOutbox({ tracing: tracer });
  const { spool } = await setup({ tracing: tracer });
  spool.handle('order.new', () => undefined);
  const relay = outbox.relay({ to: spoolSink(spool) });
  onTestFinished(() => relay.stop());
  await relay.start();
  const delivered = told(relay, 'delivered', 1);
  database.transaction(() => outbox.emit(database, 'order.new', { at: 1 }))();
  outbox.wake();
  await delivered;
  await relay.stop();
  expect(traceIdsOf(spans())).toHaveLength(1);
  expect(tree()).toEqual(
    expect.arrayContaining([
      'PRODUCER send order.new < (none)',
      'CONSUMER process order.new #1 < send order.new',
      'PRODUCER send order.new < process order.new #1',
    ]),
  );
  expect(named('process order.new')).toHaveLength(2);
  // A row that is full of headers is emitted without.
  const full = Object.fromEntries(Array.from({ length: 62 }, (_, at) => [`h${at}`, 'x']));
  const emit = database.transaction((options: EmitOptions) =>
    outbox.emit(database, 'order.full', { at: 2 }, options),
  );
  const { id } = emit({ headers: full });
  expect((await outbox.spool.get(id))?.envelope.headers['traceparent']).toBeUndefined();
  expect(() => emit({ key: '' })).toThrow('key');
  expect(named('send order.full')[1]?.attributes['error.type']).toBe('message.invalid');
});

test('a sink of another kind is sent the trace of the attempt', async () => {
  const { tracer, named } = await record();
  const sink = new TestSink();
  const { relay, spool } = relayWorld(sink, {}, { tracer });
  await spool.enqueue({ topic: 'a', headers: { tenant: 'a' } });
  const delivered = told(relay, 'delivered');
  await relay.start();
  await delivered;
  const [span] = named('process a');
  expect(sink.sends.flat()[0]?.headers).toEqual({
    tenant: 'a',
    traceparent: `00-${span?.spanContext().traceId}-${span?.spanContext().spanId}-01`,
  });
});

test('a request over HTTP carries the trace of its attempt, and none without a tracer', async () => {
  const seen: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    const { traceparent } = request.headers;
    seen.push(typeof traceparent === 'string' ? traceparent : undefined);
    response.writeHead(seen.length < 3 ? 503 : 200).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const { tracer, named } = await record();
  const world = await setup({ tracing: tracer, policies: { default: ladder(['1m', '1m']) } });
  const deliver = http({ url: `http://127.0.0.1:${port}/`, allow: ['127.0.0.1'] });
  onTestFinished(() => deliver.close?.());
  world.spool.handle('a', deliver);
  await world.spool.enqueue({ topic: 'a' });
  for (const count of [1, 2, 3]) {
    await expect.poll(() => seen.length).toBe(count);
    await expect.poll(() => named('settle a').length).toBe(count);
    await world.clock.advance(MINUTE);
  }
  const spanIds = named('process a').map((span) => span.spanContext().spanId);
  expect(seen.map((header) => header?.split('-')[2])).toEqual(spanIds);
  const plain = await setup();
  plain.spool.handle('a', deliver);
  await plain.spool.enqueue({ topic: 'a', headers: { traceparent: OURS } });
  await expect.poll(() => seen.length).toBe(4);
  expect(seen[3]).toBeUndefined();
});

test('a command knows the trace of its attempt by its environment', () => {
  const { delivery } = makeDelivery({ headers: { traceparent: OURS, tenant: 'a' } });
  const settings = { inherit: [], env: {} } as never;
  const plain = environmentOf(delivery, settings, {});
  expect(plain['RESPOOL_HEADER_TRACEPARENT']).toBe(OURS);
  const traced = environmentOf({ ...delivery, trace: { traceparent: 'of it' } }, settings, {});
  expect(traced['RESPOOL_HEADER_TRACEPARENT']).toBe('of it');
  expect(traced['RESPOOL_HEADER_TENANT']).toBe('a');
});
