/** What may be given as a tracer, and tracers that misbehave. */
import { propagation } from '@opentelemetry/api';
import * as api from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { fixed, forward, ladder } from 'respool';
import { openTelemetry, type Tracer } from 'respool/observe';
import { spoolSink } from 'respool/outbox';
import { expect, test } from 'vitest';
import { bytesOf, codeOf, failing, MINUTE, rejection, setup } from '../spool/setup.ts';
import { record, unregister } from './spans.ts';

const POLICY = { default: ladder(['1m', '1m', '1m']) };

test('openTelemetry takes a provider and a propagator beside those that are registered', async () => {
  unregister();
  const exporter = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(exporter)],
  });
  const propagator = new W3CTraceContextPropagator();
  const tracer = openTelemetry({ api, tracerProvider, propagator });
  const { spool } = await setup({ tracing: tracer, isStarted: false });
  const { id } = await spool.enqueue({ topic: 'a' });
  const [span] = exporter.getFinishedSpans();
  expect(span?.name).toBe('send a');
  expect((await spool.get(id))?.envelope.headers['traceparent']).toContain(
    span?.spanContext().spanId,
  );
  // Without a propagator nothing can be carried.
  const mute = openTelemetry({ api, tracerProvider });
  const second = await setup({ tracing: mute, isStarted: false });
  const other = await second.spool.enqueue({ topic: 'a' });
  expect((await second.spool.get(other.id))?.envelope.headers).toEqual({});
  expect(propagation.fields()).toEqual([]);
});

test('what is no tracer, provider or propagator is refused', async () => {
  const tracing = openTelemetry() as never;
  expect(await rejection(setup({ tracing }))).toMatchObject({
    code: 'config.invalid',
    message: expect.stringContaining('cannot use a promise as "tracing"') as string,
  });
  expect(await codeOf(setup({ tracing: {} as never }))).toBe('config.invalid');
  expect(() => openTelemetry({ tracerProvider: {} as never })).toThrow('"tracerProvider"');
  expect(() => openTelemetry({ propagator: 1 as never })).toThrow('"propagator"');
  expect(() => openTelemetry({ api: {} as never })).toThrow('"api"');
  expect(() => openTelemetry({ tracer: 1 } as never)).toThrow('there is no option "tracer"');
});

test('a tracer that is idle is asked nothing, until it is not', async () => {
  let isIdle = true;
  const asked: string[] = [];
  const tracing: Tracer = {
    isIdle: () => isIdle,
    send: ({ destination }) => void asked.push(`send ${destination}`),
    attempt: (_, { destination }) => void asked.push(`attempt ${destination}`),
    carries: () => asked.push('carries') > 0,
  };
  const { spool, clock } = await setup({ tracing });
  spool.handle('#', () => undefined);
  await spool.enqueue({ topic: 'a' });
  await spool.enqueueMany([{ topic: 'a' }, { topic: 'b' }]);
  await clock.settle();
  expect(asked).toEqual([]);
  isIdle = false;
  await spool.enqueue({ topic: 'c' });
  await clock.settle();
  expect(asked).toEqual(['send c', 'attempt c']);
});

test('a tracer that throws everywhere harms no message', async () => {
  const thrown: string[] = [];
  const bad = (where: string) => (): never => {
    thrown.push(where);
    throw new Error(`the tracer is broken at ${where}`);
  };
  const broken: Tracer = {
    isIdle: bad('isIdle'),
    carries: bad('carries'),
    send: () => ({
      get headers(): never {
        return bad('headers of a send')();
      },
      run: bad('run of a send'),
      end: bad('end of a send'),
    }),
    attempt: () => ({
      get headers(): never {
        return bad('headers of an attempt')();
      },
      get notes(): never {
        return bad('notes')();
      },
      run: bad('run of an attempt'),
      end: bad('end of an attempt'),
      settle: () => ({ end: bad('end of a settle') }),
    }),
  };
  const { spool, clock, events } = await setup({ tracing: broken, policies: POLICY });
  const { handler, attempts } = failing(2);
  spool.handle('a', handler);
  const { id } = await spool.enqueue({ topic: 'a', body: 'x' });
  await clock.advance(5 * MINUTE);
  expect(attempts).toEqual([1, 2, 3]);
  await spool.enqueueMany([{ topic: 'b' }, { topic: 'c' }]);
  const tx = await spool.begin({ topic: 'b' });
  await tx.write('two');
  await tx.commit();
  expect((await bytesOf(await spool.body(tx.id))).toString()).toBe('two');
  expect(events.filter(({ kind }) => kind === 'delivered')).toMatchObject([{ id }]);
  expect(events.filter(({ kind }) => kind === 'trouble')).toEqual([]);
  expect(new Set(thrown).size).toBe(10);

  const all = { send: bad('send'), attempt: bad('attempt'), carries: bad('carries') };
  const second = await setup({ tracing: all });
  second.spool.handle('a', () => undefined);
  await second.spool.enqueue({ topic: 'a' });
  await second.clock.advance(1_000);
  expect(second.kinds()).toContain('delivered');
});

test('a tracer that forgets the work, or does it twice, changes nothing about it', async () => {
  const runs: number[] = [];
  const span = (run: (work: () => unknown) => unknown) => ({
    headers: { traceparent: 1 as never, ok: 'yes' },
    notes: undefined,
    run: run as never,
    end: () => undefined,
    settle: () => undefined,
  });
  for (const run of [() => undefined, (work: () => unknown) => [work(), work()]]) {
    const tracing = {
      send: () => span(run),
      attempt: () => span(run),
      carries: () => false,
    };
    const { spool, clock, kinds } = await setup({ tracing });
    spool.handle('a', ({ headers, attempt }) => {
      expect(headers).toEqual({ ok: 'yes' });
      runs.push(attempt);
    });
    await spool.enqueue({ topic: 'a' });
    await clock.advance(1_000);
    expect(kinds().filter((kind) => kind === 'delivered')).toHaveLength(1);
    expect(kinds().filter((kind) => kind === 'accepted')).toHaveLength(1);
  }
  expect(runs).toEqual([1, 1]);
});

test('a tracer that is written async and fails later, or talks nonsense, harms no message', async () => {
  const later = async (work?: () => unknown): Promise<never> => {
    await work?.();
    throw new Error('the tracer is broken later');
  };
  const odd = { 'no header': 'x', 'line-end': 'a\r\nb: c', long: 'x'.repeat(20_000), ok: 'yes' };
  const span = {
    headers: odd,
    notes: 'nonsense' as never,
    run: later as never,
    end: later as never,
    settle: later as never,
  };
  const tracing = { send: () => span, attempt: () => span, carries: later as never };
  const { spool, clock, kinds } = await setup({ tracing, policies: POLICY });
  const seen: unknown[] = [];
  spool.handle('a', ({ headers, trace, notes, attempt }) => {
    seen.push({ headers, trace, notes });
    if (attempt === 1) throw new Error('try again');
  });
  await spool.enqueue({ topic: 'a' });
  expect(await codeOf(spool.enqueue({ topic: 'a', id: 'NO' }))).toBe('message.invalid');
  await clock.advance(5 * MINUTE);
  const clean = { headers: { ok: 'yes' }, trace: { ok: 'yes' }, notes: {} };
  expect(seen).toEqual([clean, clean]);
  expect(kinds().filter((kind) => kind === 'delivered')).toHaveLength(1);

  const none = { send: later, attempt: later, carries: later } as never;
  const second = await setup({ tracing: none });
  second.spool.handle('a', () => undefined);
  await second.spool.enqueue({ topic: 'a' });
  await second.clock.advance(1_000);
  expect(second.kinds()).toContain('delivered');
});

test('the first attempt is linked to, however much is noted after it', async () => {
  const { tracer, named } = await record();
  const { spool, clock } = await setup({
    tracing: tracer,
    policies: { default: fixed('1m', { attempts: 6 }) },
  });
  spool.handle('a', (delivery) => {
    for (let at = 0; at < 60; at += 1) delivery.note(`n${delivery.attempt}.${at}`, 'x');
    if (delivery.attempt < 5) throw new Error('try again');
  });
  await spool.enqueue({ topic: 'a' });
  await clock.advance(10 * MINUTE);
  const [first, ...retries] = named('process a');
  expect(retries).toHaveLength(4);
  for (const { links } of retries) {
    expect(links.map(({ context }) => context.spanId)).toEqual([first?.spanContext().spanId]);
  }
});

test('what is forwarded with full headers goes without its trace, and is not refused', async () => {
  const { tracer } = await record();
  const target = await setup({ isStarted: false });
  const { spool, clock, kinds } = await setup({ tracing: tracer });
  spool.handle('a', forward(spoolSink(target.spool)));
  const headers = { full: 'x'.repeat(32 * 2 ** 10 - 10) };
  await spool.enqueue({ topic: 'a', headers });
  await clock.advance(1_000);
  expect(kinds()).toContain('delivered');
  for await (const { envelope } of target.spool.list()) expect(envelope.headers).toEqual(headers);
});
