/** What may be given as a tracer, and tracers that misbehave. */
import { propagation } from '@opentelemetry/api';
import * as api from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { ladder } from 'respool';
import { openTelemetry, type Tracer } from 'respool/observe';
import { expect, test } from 'vitest';
import { bytesOf, codeOf, failing, MINUTE, rejection, setup } from '../spool/setup.ts';
import { unregister } from './spans.ts';

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

test('a tracer that throws everywhere harms no message', async () => {
  const thrown: string[] = [];
  const bad = (where: string) => (): never => {
    thrown.push(where);
    throw new Error(`the tracer is broken at ${where}`);
  };
  const broken: Tracer = {
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
  expect(new Set(thrown).size).toBe(9);

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
