/** Traces of a spool, with the SDK of OpenTelemetry in memory. */
import { context, ROOT_CONTEXT, SpanStatusCode, trace } from '@opentelemetry/api';
import { AlwaysOffSampler, ParentBasedSampler } from '@opentelemetry/sdk-trace-base';
import { failed, failure, held, ladder, PermanentError, postponed } from 'respool';
import { FIRST_ATTEMPT_NOTE, openTelemetry } from 'respool/observe';
import { expect, test } from 'vitest';
import { codeOf, failing, MINUTE, setup } from '../spool/setup.ts';
import { record, register, traceIdsOf, unregister } from './spans.ts';

const POLICY = { default: ladder(['1m', '1m', '1m']) };
const OURS = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
const UNSAMPLED = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00';

test('one trace leads from the enqueue over two failed attempts to the delivery', async () => {
  const { tracer, spans, tree, named } = await record();
  const { spool, clock } = await setup({ tracing: tracer, policies: POLICY });
  const { handler } = failing(2, () => new Error('greylisted'));
  spool.handle('mail.send', handler);
  const { id } = await spool.enqueue({ topic: 'mail.send', body: 'hello' });
  await clock.advance(5 * MINUTE);

  expect(traceIdsOf(spans())).toHaveLength(1);
  expect(tree().toSorted()).toEqual(
    [
      'PRODUCER send mail.send < (none)',
      ...[1, 2, 3].flatMap((attempt) => [
        `CONSUMER process mail.send #${attempt} < send mail.send`,
        `CLIENT settle mail.send #${attempt} < process mail.send #${attempt}`,
      ]),
    ].toSorted(),
  );
  const [first, second, third] = named('process mail.send');
  expect(first?.links).toEqual([]);
  for (const retry of [second, third]) {
    expect(retry?.links.map((link) => link.context.spanId)).toEqual([first?.spanContext().spanId]);
    expect(retry?.links.map((link) => link.context.traceId)).toEqual(traceIdsOf(spans()));
  }
  expect(first?.attributes).toEqual({
    'messaging.system': 'respool',
    'messaging.destination.name': 'mail.send',
    'messaging.operation.name': 'process',
    'messaging.operation.type': 'process',
    'messaging.message.id': id,
    'messaging.message.body.size': 5,
    'respool.retry.attempt': 1,
    'respool.lane': 'delivery',
    'respool.outcome': 'failed',
    'respool.code': 'error',
    'error.type': 'error',
  });
  expect(first?.status).toEqual({ code: SpanStatusCode.ERROR, message: 'error: greylisted' });
  expect(third?.attributes).toMatchObject({
    'respool.retry.attempt': 3,
    'respool.outcome': 'delivered',
  });
  expect(third?.status).toEqual({ code: SpanStatusCode.UNSET });
  expect(named('send mail.send')[0]?.attributes).toEqual({
    'messaging.system': 'respool',
    'messaging.destination.name': 'mail.send',
    'messaging.operation.name': 'send',
    'messaging.operation.type': 'send',
    'messaging.message.id': id,
  });
  const [defer, , ack] = named('settle mail.send');
  expect(defer?.attributes).toMatchObject({
    'messaging.operation.name': 'settle',
    'messaging.operation.type': 'settle',
    'messaging.message.id': id,
    'respool.verdict': 'defer',
    'respool.retry.delay': 60,
    'respool.answer': 'done',
  });
  expect(ack?.attributes).toMatchObject({ 'respool.verdict': 'ack', 'respool.answer': 'done' });
});

test('what a handler does is a part of its attempt, also after it waited', async () => {
  const { tracer, tree } = await record();
  const { spool, clock } = await setup({ tracing: tracer });
  spool.handle('a', async () => {
    await new Promise<void>((resolve) => clock.after(1_000, resolve));
    trace.getTracer('mine').startSpan('my own').end();
    await spool.enqueue({ topic: 'b' });
  });
  spool.handle('b', () => undefined);
  await spool.enqueue({ topic: 'a' });
  await clock.advance(MINUTE);
  expect(tree().toSorted()).toEqual([
    'CLIENT settle a #1 < process a #1',
    'CLIENT settle b #1 < process b #1',
    'CONSUMER process a #1 < send a',
    'CONSUMER process b #1 < send b',
    'INTERNAL my own < process a #1',
    'PRODUCER send a < (none)',
    'PRODUCER send b < process a #1',
  ]);
});

test('an enqueue is a child of the span that is active around it', async () => {
  const { tracer, named } = await record();
  const { spool } = await setup({ tracing: tracer, isStarted: false });
  const outer = trace.getTracer('mine').startSpan('request');
  await context.with(trace.setSpan(context.active(), outer), () => spool.enqueue({ topic: 'a' }));
  outer.end();
  expect(named('send a')[0]?.parentSpanContext?.spanId).toBe(outer.spanContext().spanId);
});

test('a traceparent of the caller is the parent, and the message carries on from there', async () => {
  const { tracer, named } = await record();
  const { spool } = await setup({ tracing: tracer, isStarted: false });
  const headers = { Traceparent: OURS, tenant: 'a' };
  const { id } = await spool.enqueue({ topic: 'a', headers });
  const [span] = named('send a');
  expect(span?.spanContext().traceId).toBe('0af7651916cd43dd8448eb211c80319c');
  expect(span?.parentSpanContext?.spanId).toBe('b7ad6b7169203331');
  expect((await spool.get(id))?.envelope.headers).toEqual({
    Traceparent: `00-0af7651916cd43dd8448eb211c80319c-${span?.spanContext().spanId}-01`,
    tenant: 'a',
  });
});

test('many messages share one span for each topic, and tell how many they are', async () => {
  const { tracer, spans, named } = await record();
  const { spool } = await setup({ tracing: tracer, isStarted: false });
  const enqueued = await spool.enqueueMany([
    { topic: 'a' },
    { topic: 'b' },
    { topic: 'a' },
    { topic: 'a', headers: { traceparent: OURS } },
  ]);
  expect(spans()).toHaveLength(3);
  const [alone, both] = named('send a');
  expect(alone?.attributes['messaging.batch.message_count']).toBeUndefined();
  expect(alone?.attributes['messaging.message.id']).toBe(enqueued[3]?.id);
  expect(alone?.parentSpanContext?.spanId).toBe('b7ad6b7169203331');
  expect(both?.attributes['messaging.batch.message_count']).toBe(2);
  expect(both?.attributes['messaging.message.id']).toBeUndefined();
  expect(named('send b')[0]?.attributes['messaging.batch.message_count']).toBe(1);
  const parents = await Promise.all(
    enqueued.map(async ({ id }) => (await spool.get(id))?.envelope.headers['traceparent']),
  );
  expect(parents[0]).toBe(parents[2]);
  expect(parents[0]).toContain(both?.spanContext().spanId);
  expect(parents[3]).toContain(alone?.spanContext().spanId);
});

test('a duplicate says so, and names the first', async () => {
  const { tracer, named } = await record();
  const { spool } = await setup({ tracing: tracer, isStarted: false });
  const first = await spool.enqueue({ topic: 'a', dedupeKey: 'k' });
  await spool.enqueue({ topic: 'a', dedupeKey: 'k' });
  const [, again] = named('send a');
  expect(again?.attributes).toMatchObject({
    'respool.duplicate': true,
    'messaging.message.id': first.id,
  });
});

test('a streamed enqueue is one span from its begin to its commit', async () => {
  const { tracer, spans, named } = await record();
  const { spool } = await setup({ tracing: tracer, isStarted: false });
  const tx = await spool.begin({ topic: 'a' });
  await tx.write('one');
  tx.setHeader('tenant', 'a');
  expect(spans()).toEqual([]);
  await tx.commit();
  const [span] = named('send a');
  expect(span?.attributes['messaging.message.id']).toBe(tx.id);
  const headers = (await spool.get(tx.id))?.envelope.headers;
  expect(headers).toEqual({
    tenant: 'a',
    traceparent: `00-${span?.spanContext().traceId}-${span?.spanContext().spanId}-01`,
  });
});

test('a streamed enqueue that is aborted ends its span, and one keeps a later traceparent', async () => {
  const { tracer, spans } = await record();
  const { spool } = await setup({ tracing: tracer, isStarted: false });
  const aborted = await spool.begin({ topic: 'a' });
  await aborted.abort();
  expect(spans()).toHaveLength(1);
  const tx = await spool.begin({ topic: 'b' });
  tx.setHeader('traceparent', OURS);
  await tx.commit();
  expect((await spool.get(tx.id))?.envelope.headers).toEqual({ traceparent: OURS });
});

test('an enqueue that is refused ends its span with the code', async () => {
  const { tracer, named } = await record();
  const { spool } = await setup({ tracing: tracer, isStarted: false });
  const many = Object.fromEntries(Array.from({ length: 65 }, (_, at) => [`h${at}`, 'x']));
  expect(await codeOf(spool.enqueue({ topic: 'a', headers: many }))).toBe('limit.exceeded');
  expect(await codeOf(spool.enqueueMany([{ topic: 'a', headers: many }]))).toBe('limit.exceeded');
  const types = named('send a').map(({ attributes }) => attributes['error.type']);
  expect(types).toEqual(['limit.exceeded', 'limit.exceeded']);
  const wrong = { topic: 'a', headers: null } as never;
  expect(await codeOf(spool.enqueue(wrong))).toBe('message.invalid');
  expect(await codeOf(spool.enqueue(undefined as never))).toBe('message.invalid');
  expect(await codeOf(spool.enqueueMany([undefined as never]))).toBe('message.invalid');
});

test('a message whose headers are full is accepted without its trace', async () => {
  const { tracer, named } = await record();
  const { spool } = await setup({ tracing: tracer, isStarted: false });
  const full = Object.fromEntries(Array.from({ length: 64 }, (_, at) => [`h${at}`, 'x']));
  const { id } = await spool.enqueue({ topic: 'a', headers: full });
  expect((await spool.get(id))?.envelope.headers).toEqual(full);
  const tx = await spool.begin({ topic: 'a', headers: full });
  await tx.commit();
  expect((await spool.get(tx.id))?.envelope.headers).toEqual(full);
  expect(named('send a')).toHaveLength(2);
});

test('a notice is a part of the trace, and linked to the first attempt', async () => {
  const { tracer, spans, named } = await record();
  const { spool, clock } = await setup({ tracing: tracer });
  spool.handle('a', () => failed(failure('permanent', 'smtp.550', 'no such user')));
  spool.onBounce('a', () => undefined);
  await spool.enqueue({ topic: 'a' });
  await clock.advance(MINUTE);
  const [delivery, notice] = named('process a');
  expect(traceIdsOf(spans())).toHaveLength(1);
  expect(delivery?.attributes).toMatchObject({ 'error.type': 'smtp.550' });
  expect(delivery?.status.message).toBe('smtp.550: no such user');
  expect(notice?.attributes).toMatchObject({
    'respool.lane': 'notice',
    'respool.retry.attempt': 1,
  });
  expect(notice?.links.map((link) => link.context.spanId)).toEqual([
    delivery?.spanContext().spanId,
  ]);
  const verdicts = named('settle a').map(({ attributes }) => attributes['respool.verdict']);
  expect(verdicts).toEqual(['bounce', 'ack']);
});

test('a postponement is no error, a hold is one, and no reason shows a secret', async () => {
  const { tracer, named } = await record();
  const { spool, clock } = await setup({ tracing: tracer });
  spool.handle('later', () => postponed('1h', 'the other side sleeps'));
  spool.handle('held', () => held('look at amqp://ada:secret-word@host/x', 'look'));
  spool.handle('dead', () => {
    throw new PermanentError('gone', 'x'.repeat(1_000));
  });
  await spool.enqueueMany([{ topic: 'later' }, { topic: 'held' }, { topic: 'dead' }]);
  await clock.advance(1_000);
  const [later] = named('process later');
  expect(later?.status.code).toBe(SpanStatusCode.UNSET);
  expect(later?.attributes).toMatchObject({ 'respool.outcome': 'postponed' });
  expect(later?.attributes['error.type']).toBeUndefined();
  const [kept] = named('process held');
  expect(kept?.attributes).toMatchObject({ 'respool.outcome': 'held', 'error.type': 'look' });
  expect(kept?.status.message).toMatch(/^look: look at/);
  expect(kept?.status.message).not.toContain('secret-word');
  expect(named('process dead')[0]?.status.message?.length).toBeLessThan(250);
});

test('an attempt that nobody waited for is given up, one that took too long has timed out', async () => {
  const { tracer, named } = await record();
  const { spool, clock } = await setup({ tracing: tracer });
  spool.handle('slow', () => new Promise<void>(() => undefined), { timeout: '1s' });
  spool.handle('endless', () => new Promise<void>(() => undefined));
  await spool.enqueueMany([{ topic: 'slow' }, { topic: 'endless' }]);
  await clock.advance(2_000);
  expect(named('process slow')[0]?.attributes['error.type']).toBe('timeout');
  const stopping = spool.stop({ within: 0 });
  await clock.advance(10_000);
  await stopping;
  expect(named('process endless')[0]?.attributes['respool.outcome']).toBe('given up');
  expect(named('settle endless')[0]?.attributes['respool.verdict']).toBe('release');
});

test('a verdict that does not get through tells why', async () => {
  const { tracer, named } = await record();
  const { spool, clock, store } = await setup({ tracing: tracer });
  spool.handle('a', () => undefined);
  store.faults.plan = (operation) => (operation === 'commit' ? 'before' : 'ok');
  await spool.enqueue({ topic: 'a' });
  await clock.advance(5 * MINUTE);
  expect(named('settle a')[0]?.attributes).toMatchObject({
    'respool.answer': 'lost',
    'error.type': 'store.unavailable',
  });
  expect(named('settle a')[0]?.status.code).toBe(SpanStatusCode.ERROR);
});

test('a message of a process that does not trace begins a trace of its own', async () => {
  const { tracer, spans, named } = await record();
  const plain = await setup({ isStarted: false });
  await plain.spool.enqueue({ topic: 'a' });
  const outer = trace.getTracer('mine').startSpan('whoever starts it');
  const traced = await setup({ with: plain, tracing: tracer, isStarted: false });
  traced.spool.handle('a', () => undefined);
  await context.with(trace.setSpan(ROOT_CONTEXT, outer), () => traced.spool.start());
  await traced.clock.advance(MINUTE);
  expect(named('process a')[0]?.parentSpanContext).toBeUndefined();
  expect(traceIdsOf(spans())).not.toContain(outer.spanContext().traceId);
});

test('a trace that is not sampled is carried on, and nothing of it is recorded', async () => {
  const sampler = new ParentBasedSampler({ root: new AlwaysOffSampler() });
  const { tracer, spans } = await record({ sampler });
  const { spool, clock, status } = await setup({ tracing: tracer, policies: POLICY });
  const seen: (string | undefined)[] = [];
  spool.handle('a', ({ trace: carried }) => {
    seen.push(carried?.['traceparent']);
    throw new Error('no');
  });
  const { id } = await spool.enqueue({ topic: 'a', headers: { traceparent: UNSAMPLED } });
  await clock.advance(1_000);
  const stored = (await spool.get(id))?.envelope.headers['traceparent'];
  expect(stored).toMatch(/^00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-00$/);
  expect(seen[0]).toMatch(/^00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-00$/);
  expect((await status(id)).notes).toEqual({});
  expect(spans()).toEqual([]);
});

test('without an SDK nothing is added to a message, and one that comes later is found', async () => {
  unregister();
  const tracer = await openTelemetry();
  const { spool, clock, status } = await setup({ tracing: tracer, policies: POLICY });
  const seen: unknown[] = [];
  spool.handle('a', (delivery) => {
    seen.push(delivery.trace);
    throw new Error('no');
  });
  const headers = { traceparent: OURS, tenant: 'a' };
  const { id } = await spool.enqueue({ topic: 'a', headers });
  const [many] = await spool.enqueueMany([{ topic: 'a', headers: { tenant: 'b' } }]);
  const tx = await spool.begin({ topic: 'a' });
  await tx.commit();
  await clock.advance(1_000);
  expect((await spool.get(id))?.envelope.headers).toEqual(headers);
  expect((await spool.get(many?.id ?? ''))?.envelope.headers).toEqual({ tenant: 'b' });
  expect((await spool.get(tx.id))?.envelope.headers).toEqual({});
  expect((await status(id)).notes).toEqual({});
  expect(seen).toEqual([undefined, undefined, undefined]);

  const { named } = register();
  await clock.advance(MINUTE);
  const late = named('process a').filter(
    ({ attributes }) => attributes['messaging.message.id'] === id,
  );
  expect(late[0]?.attributes['respool.retry.attempt']).toBe(2);
  expect(late[0]?.parentSpanContext?.spanId).toBe('b7ad6b7169203331');
  expect((await status(id)).notes).toEqual({
    [FIRST_ATTEMPT_NOTE]: expect.stringContaining(late[0]?.spanContext().spanId ?? '?') as string,
  });
});

test('a delivered message keeps no note of its trace', async () => {
  const { tracer } = await record();
  const retention = { delivered: { archive: '1d' } } as const;
  const { spool, clock, status } = await setup({ tracing: tracer, retention });
  spool.handle('a', (delivery) => delivery.note('mine', 'yes'));
  const { id } = await spool.enqueue({ topic: 'a' });
  await clock.advance(1_000);
  expect((await status(id)).notes).toEqual({ mine: 'yes' });
});
