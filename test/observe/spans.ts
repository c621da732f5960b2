/** spans — the SDK of OpenTelemetry in memory, registered for one test and gone after it. */

import { context, propagation, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  type Sampler,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { openTelemetry } from 'respool/observe';
import type { Tracer } from 'respool/observe';
import { onTestFinished } from 'vitest';

const KINDS = ['INTERNAL', 'SERVER', 'CLIENT', 'PRODUCER', 'CONSUMER'];

/** What was recorded. */
export interface Recorder {
  readonly tracer: Tracer;
  /** All spans that ended, in the order of their ends. */
  readonly spans: () => ReadableSpan[];
  /** Those of this name. */
  readonly named: (name: string) => ReadableSpan[];
  /** Every span as `KIND name < its parent`, in the order of their beginnings. */
  readonly tree: () => string[];
}

/** Registers the SDK, and makes a tracer of ours. */
export async function record(options: { readonly sampler?: Sampler } = {}): Promise<Recorder> {
  const tracer = await openTelemetry();
  return { tracer, ...register(options) };
}

/** Registers the SDK alone, until the test is over. */
export function register(options: { readonly sampler?: Sampler } = {}): Omit<Recorder, 'tracer'> {
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(exporter)],
    ...options,
  });
  trace.setGlobalTracerProvider(provider);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  onTestFinished(unregister);
  const spans = (): ReadableSpan[] => exporter.getFinishedSpans();
  return {
    spans,
    named: (name) => spans().filter((span) => span.name === name),
    tree: () => treeOf(spans()),
  };
}

/** Leaves nothing behind. */
export function unregister(): void {
  trace.disable();
  context.disable();
  propagation.disable();
}

/** The one id that all spans share. */
export function traceIdsOf(spans: readonly ReadableSpan[]): string[] {
  return [...new Set(spans.map((span) => span.spanContext().traceId))];
}

function treeOf(spans: readonly ReadableSpan[]): string[] {
  const names = new Map(spans.map((span) => [span.spanContext().spanId, nameOf(span)]));
  return [...spans].toSorted(byBeginning).map((span) => {
    const parent = span.parentSpanContext?.spanId;
    const above = parent === undefined ? '(none)' : (names.get(parent) ?? '(unknown)');
    return `${KINDS[span.kind]} ${nameOf(span)} < ${above}`;
  });
}

/** With the number of the attempt, where it has one. */
function nameOf({ name, attributes }: ReadableSpan): string {
  const attempt = attributes['respool.retry.attempt'];
  return attempt === undefined ? name : `${name} #${String(attempt)}`;
}

function byBeginning(a: ReadableSpan, b: ReadableSpan): number {
  const [seconds, nanos] = a.startTime;
  const [otherSeconds, otherNanos] = b.startTime;
  return seconds - otherSeconds || nanos - otherNanos;
}
