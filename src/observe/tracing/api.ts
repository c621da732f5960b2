/**
 * api — the part of `@opentelemetry/api` that is used, by its shape, since types of an optional
 * package must not be in ours; and how a trace travels: its context in the headers of a message,
 * the first attempt in a note, for later attempts.
 */

import type { Headers } from '../../core/entry.ts';

/** An opaque context. */
export interface OtelContext {
  getValue(key: symbol): unknown;
  setValue(key: symbol, value: unknown): OtelContext;
  deleteValue(key: symbol): OtelContext;
}

/** Where a span is known by. */
export interface OtelSpanContext {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceFlags: number;
  readonly isRemote?: boolean;
}

/** The attributes of a span. */
export type OtelAttributes = Record<string, string | number | boolean>;

/** A span. */
export interface OtelSpan {
  spanContext(): OtelSpanContext;
  isRecording(): boolean;
  setAttributes(attributes: OtelAttributes): unknown;
  setStatus(status: { code: number; message?: string }): unknown;
  end(): void;
}

/** How a span begins. */
interface OtelSpanOptions {
  kind: number;
  attributes: OtelAttributes;
  links: { context: OtelSpanContext; attributes?: OtelAttributes }[];
}

/** Makes spans. */
export interface OtelTracer {
  startSpan(name: string, options: OtelSpanOptions, context: OtelContext): OtelSpan;
}

/** Gives tracers; an SDK registers one. */
export interface OtelTracerProvider {
  getTracer(name: string): OtelTracer;
}

/** Writes a context into headers, and reads it from there. */
export interface OtelPropagator {
  inject(context: OtelContext, carrier: unknown, setter: OtelSetter): void;
  extract(context: OtelContext, carrier: unknown, getter: OtelGetter): OtelContext;
}

/** Writes one header. */
interface OtelSetter {
  set(carrier: unknown, name: string, value: string): void;
}

/** Reads headers. */
interface OtelGetter {
  keys(carrier: unknown): string[];
  get(carrier: unknown, name: string): string | undefined;
}

/** The package, as far as it is used. */
export interface OtelApi {
  readonly trace: {
    getTracerProvider(): OtelTracerProvider;
    setSpan(context: OtelContext, span: OtelSpan): OtelContext;
    getSpanContext(context: OtelContext): OtelSpanContext | undefined;
  };
  readonly context: {
    active(): OtelContext;
    with<T>(context: OtelContext, work: () => T): T;
  };
  readonly propagation: OtelPropagator;
  readonly ROOT_CONTEXT: OtelContext;
  isSpanContextValid(context: OtelSpanContext): boolean;
}

/** Kinds of spans, by the numbers of the API. */
export const KIND = { client: 2, producer: 3, consumer: 4 } as const;
/** The status of a span that failed. */
export const STATUS_ERROR = 2;

/**
 * The note that names the span of the first attempt to later ones, in W3C format: `00-…-…-01`.
 *
 * @example
 * import { FIRST_ATTEMPT_NOTE } from 'respool/observe';
 * const message = await spool.get(id);
 * console.log(message?.status.notes[FIRST_ATTEMPT_NOTE]);
 */
export const FIRST_ATTEMPT_NOTE = 'respool.trace.first-attempt';

/** Reads headers, whatever the case of their names; those of AMQP may be no texts. */
export const GETTER: OtelGetter = {
  keys: (carrier) => Object.keys(carrier as Headers),
  get: (carrier, name) => {
    const headers = carrier as Readonly<Record<string, unknown>>;
    const value = headers[nameIn(headers, name)];
    return typeof value === 'string' ? value : undefined;
  },
};

/** Writes beside headers that are there: under the name that one of them has already. */
export function setterBeside(own: object): OtelSetter {
  return {
    set: (carrier, name, value) => {
      (carrier as Record<string, string>)[nameIn(own, name)] = value;
    },
  };
}

/** The first attempt, as it is noted. */
export function firstAttemptNote({ traceId, spanId, traceFlags }: OtelSpanContext): Headers {
  const flags = (traceFlags & 0xff).toString(16).padStart(2, '0');
  return { [FIRST_ATTEMPT_NOTE]: `00-${traceId}-${spanId}-${flags}` };
}

/** The span of the first attempt from the notes; undefined without one. */
export function firstAttemptIn(notes: Headers): OtelSpanContext | undefined {
  const parts = NOTED.exec(notes[FIRST_ATTEMPT_NOTE] ?? '');
  const [, traceId, spanId, flags] = parts ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
}

const NOTED = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

function nameIn(headers: object, name: string): string {
  if (Object.hasOwn(headers, name)) return name;
  const wanted = name.toLowerCase();
  return Object.keys(headers).find((one) => one.toLowerCase() === wanted) ?? name;
}
