/**
 * api — what is used of `@opentelemetry/api`, by its shape: types of an optional package must not
 * be in ours.
 */

/** A context; nobody looks into it here. */
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

/** What a span tells. */
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
export interface OtelSpanOptions {
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
export interface OtelSetter {
  set(carrier: unknown, name: string, value: string): void;
}

/** Reads headers. */
export interface OtelGetter {
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
