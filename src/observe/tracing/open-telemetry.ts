/**
 * open-telemetry — spans by the messaging conventions, through `@opentelemetry/api` alone.
 *
 *   send <topic> ─headers─▶ process <topic> ─▶ settle <topic>
 *                     └───▶ process <topic> (a retry: linked to the first attempt) ─▶ settle …
 *
 * While no SDK is registered, every call ends at a comparison. One that is registered later is
 * found with the next message.
 *
 * Why: docs/decisions/0042-attempts-are-children-of-the-send.md
 */

import type { Headers } from '../../core/entry.ts';
import { isRespoolError, RespoolError, show, textOf } from '../../core/errors.ts';
import { codeText } from '../../core/failure.ts';
import { type Option, readOptions } from '../../core/option-table.ts';
import type { Outcome, Verdict } from '../../core/verdict.ts';
import { redactText } from '../../core/redact.ts';
import {
  firstAttemptIn,
  GETTER,
  KIND,
  firstAttemptNote,
  type OtelApi,
  type OtelAttributes,
  type OtelContext,
  type OtelPropagator,
  type OtelSpan,
  type OtelSpanContext,
  type OtelTracer,
  type OtelTracerProvider,
  setterBeside,
  STATUS_ERROR,
} from './api.ts';
import type { Claim } from '../../ports/source.ts';
import type { AttemptSpan, Sending, SendSpan, TracedPlace, Tracer } from '../../ports/tracer.ts';
import { importPeer } from '../../system/peer.ts';

/** What is done to a message. */
export type Operation = 'send' | 'process' | 'settle';

/** A message on its way in. */
function sendAttributes(sending: Sending): OtelAttributes {
  const { id, count } = sending;
  return {
    ...placeAttributes(sending, 'send'),
    ...(id === undefined ? {} : { 'messaging.message.id': id }),
    ...(count === undefined ? {} : { 'messaging.batch.message_count': count }),
  };
}

/** An attempt that begins. */
function attemptAttributes(claim: Claim, place: TracedPlace): OtelAttributes {
  return {
    ...placeAttributes(place, 'process'),
    'messaging.message.id': claim.id,
    'messaging.message.body.size': claim.envelope.body.size,
    'respool.retry.attempt': claim.attempt,
    'respool.lane': claim.lane,
  };
}

/** Tells how an attempt ended. */
function setOutcome(span: OtelSpan, outcome: Outcome | undefined): void {
  if (outcome === undefined || outcome.kind === 'delivered') {
    span.setAttributes({ 'respool.outcome': outcome?.kind ?? 'given up' });
    return;
  }
  const { kind } = outcome;
  const { code = kind, reason } = kind === 'failed' ? outcome.failure : outcome;
  span.setAttributes({ 'respool.outcome': kind, 'respool.code': code });
  // It asked to wait: nothing failed.
  if (kind !== 'postponed') tellError(span, code, reason);
}

/** The attributes of a settlement span. */
function settleAttributes(claim: Claim, place: TracedPlace, verdict: Verdict): OtelAttributes {
  return {
    ...placeAttributes(place, 'settle'),
    'messaging.message.id': claim.id,
    'respool.retry.attempt': claim.attempt,
    'respool.verdict': verdict.kind,
    ...(verdict.kind === 'defer' ? { 'respool.retry.delay': verdict.delayMs / 1_000 } : {}),
  };
}

/** The attributes of every span. */
function placeAttributes(place: TracedPlace, operation: Operation): OtelAttributes {
  const { system, destination, routingKey, conversationId } = place;
  return {
    'messaging.system': system,
    'messaging.destination.name': destination,
    'messaging.operation.name': operation,
    'messaging.operation.type': operation,
    ...(routingKey === undefined
      ? {}
      : { 'messaging.rabbitmq.destination.routing_key': routingKey }),
    ...(conversationId === undefined
      ? {}
      : { 'messaging.message.conversation_id': conversationId }),
  };
}

/** Reports what was thrown: the code where it has one, otherwise what kind of error it is. */
function setThrown(span: OtelSpan, thrown: unknown): void {
  const name = thrown instanceof Error ? thrown.name : typeof thrown;
  tellError(span, isRespoolError(thrown) ? thrown.code : name, textOf(thrown));
}

/** As much of a reason as a list of spans shows. Also in docs/reference/traces.md. */
const REASON_MAX_CHARS = 200;

function tellError(span: OtelSpan, code: string, reason: string): void {
  const type = codeText(code);
  const text = redactText(reason).slice(0, REASON_MAX_CHARS);
  span.setAttributes({ 'error.type': type });
  span.setStatus({ code: STATUS_ERROR, message: `${type}: ${text}` });
}

const REGISTERED = 'the one that is registered, now or later';

const OPEN_TELEMETRY = {
  tracerProvider: {
    kind: 'code',
    ts: 'OtelTracerProvider',
    defaultText: REGISTERED,
    about: 'makes the tracer',
  },
  propagator: {
    kind: 'code',
    ts: 'OtelPropagator',
    defaultText: REGISTERED,
    about: 'carries contexts in headers',
  },
} as const;

const API = {
  api: {
    kind: 'code',
    ts: 'OtelApi',
    required: true,
    about: "what `import * as api from '@opentelemetry/api'` gives",
  },
} as const;

/** Every option of `openTelemetry()`, but for the package. */
export const OPEN_TELEMETRY_OPTIONS: Readonly<Record<keyof OpenTelemetryOptions, Option>> =
  OPEN_TELEMETRY;

/** The package at hand, as an option of `openTelemetry()`. */
export const OPEN_TELEMETRY_API_OPTIONS: Readonly<Record<'api', Option>> = API;

/** Which tracer provider and propagator are used. */
export interface OpenTelemetryOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Makes the tracer. Default the one that is registered, now or later. */
  readonly tracerProvider?: OtelTracerProvider;
  /** Carries contexts in headers. Default the one that is registered, now or later. */
  readonly propagator?: OtelPropagator;
}

/** The same, with the package at hand. */
export interface OpenTelemetryApiOptions extends OpenTelemetryOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** What `import * as api from '@opentelemetry/api'` gives. */
  readonly api: OtelApi;
}

const PEER = '@opentelemetry/api';
/** The name of the instrumentation. */
const SCOPE = 'respool';

/**
 * A tracer for the option `tracing`: `await openTelemetry()`. Given the `api`, it is there at once,
 * without an await.
 */
export function openTelemetry(options: OpenTelemetryApiOptions): Tracer;
export function openTelemetry(options?: OpenTelemetryOptions): Promise<Tracer>;
export function openTelemetry(
  options: OpenTelemetryOptions & { readonly api?: OtelApi } = {},
): Tracer | Promise<Tracer> {
  readOptions({ what: 'openTelemetry' }, options, { ...API, ...OPEN_TELEMETRY });
  const { api, tracerProvider, propagator } = options;
  checkPart('tracerProvider', tracerProvider, ['getTracer']);
  checkPart('propagator', propagator, ['inject', 'extract']);
  if (api === undefined) return loaded(options);
  checkPart('api', api, ['isSpanContextValid']);
  return new OpenTelemetry({ ...options, api });
}

async function loaded(options: OpenTelemetryOptions): Promise<Tracer> {
  const api = await importPeer(PEER, 'traces');
  return new OpenTelemetry({ ...options, api: api as unknown as OtelApi });
}

function checkPart(what: string, part: object | undefined, methods: readonly string[]): void {
  if (part === undefined) return;
  const isFit =
    typeof part === 'object' &&
    part !== null &&
    methods.every((name) => typeof Reflect.get(part, name) === 'function');
  if (isFit) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(part)} as "${what}" of openTelemetry: it has no ${methods.join(', ')}`,
  );
}

/** n.b. The API stands in for an SDK that is not there, and says so only by this method. */
interface StandIn {
  getDelegate(): OtelTracerProvider;
  getDelegateTracer(name: string): OtelTracer | undefined;
}

class OpenTelemetry implements Tracer {
  readonly #api: OtelApi;
  readonly #own: OtelTracerProvider | undefined;
  readonly #propagator: OtelPropagator;
  /** The last provider and its tracer; none while the provider is a no-op. */
  #known: OtelTracerProvider | undefined;
  #tracer: OtelTracer | undefined;

  constructor({ api, tracerProvider, propagator }: OpenTelemetryApiOptions) {
    this.#api = api;
    this.#own = tracerProvider;
    this.#propagator = propagator ?? api.propagation;
  }

  isIdle(): boolean {
    return this.#current() === undefined;
  }

  send(sending: Sending): SendSpan | undefined {
    const tracer = this.#current();
    if (tracer === undefined) return undefined;
    const { context } = this.#api;
    const { headers } = sending;
    const parent = this.#carried(headers) ?? context.active();
    const options = { kind: KIND.producer, attributes: sendAttributes(sending), links: [] };
    const span = tracer.startSpan(`send ${sending.destination}`, options, parent);
    if (!this.#api.isSpanContextValid(span.spanContext())) return undefined;
    const within = this.#api.trace.setSpan(parent, span);
    return {
      headers: this.#inject(within, headers),
      run: (work) => context.with(within, work),
      end: ({ id, duplicate, error }) => {
        if (id !== undefined) span.setAttributes({ 'messaging.message.id': id });
        if (duplicate === true) span.setAttributes({ 'respool.duplicate': true });
        if (error !== undefined) setThrown(span, error);
        span.end();
      },
    };
  }

  attempt(claim: Claim, place: TracedPlace): AttemptSpan | undefined {
    const tracer = this.#current();
    if (tracer === undefined) return undefined;
    const { headers } = claim.envelope;
    // Never what happens to be active: an engine takes a message from wherever it was woken.
    const parent = this.#propagator.extract(this.#api.ROOT_CONTEXT, headers, GETTER);
    const first = firstAttemptIn(claim.notes);
    const options = {
      kind: KIND.consumer,
      attributes: attemptAttributes(claim, place),
      links: first === undefined ? [] : [linkTo(first)],
    };
    const span = tracer.startSpan(`process ${place.destination}`, options, parent);
    if (!this.#api.isSpanContextValid(span.spanContext())) return undefined;
    const within = this.#api.trace.setSpan(parent, span);
    const known = first ?? (span.isRecording() ? span.spanContext() : undefined);
    return {
      headers: this.#inject(within, headers),
      run: (work) => this.#api.context.with(within, work),
      // Again each time: of many notes the oldest are forgotten.
      notes: known === undefined ? undefined : firstAttemptNote(known),
      end: (outcome) => {
        setOutcome(span, outcome);
        span.end();
      },
      settle: (verdict) => {
        const attributes = settleAttributes(claim, place, verdict);
        const settling = { kind: KIND.client, attributes, links: [] };
        return settleSpan(tracer.startSpan(`settle ${place.destination}`, settling, within));
      },
    };
  }

  carries(headers: Headers): boolean {
    return this.#current() !== undefined && this.#carried(headers) !== undefined;
  }

  /** The context that a message has already. */
  #carried(headers: Headers): OtelContext | undefined {
    const found = this.#propagator.extract(this.#api.ROOT_CONTEXT, headers, GETTER);
    const context = this.#api.trace.getSpanContext(found);
    return context !== undefined && this.#api.isSpanContextValid(context) ? found : undefined;
  }

  #inject(context: OtelContext, own: Headers): Headers {
    const carrier: Record<string, string> = {};
    this.#propagator.inject(context, carrier, setterBeside(own));
    return carrier;
  }

  /** The tracer that records now; undefined without one. */
  #current(): OtelTracer | undefined {
    const provider = this.#own ?? this.#api.trace.getTracerProvider();
    const { getDelegate, getDelegateTracer } = provider as Partial<StandIn>;
    const isStandIn = getDelegate !== undefined && getDelegateTracer !== undefined;
    const real = isStandIn ? (provider as unknown as StandIn).getDelegate() : provider;
    if (real !== this.#known) {
      this.#known = real;
      this.#tracer = isStandIn
        ? (provider as unknown as StandIn).getDelegateTracer(SCOPE)
        : provider.getTracer(SCOPE);
    }
    return this.#tracer;
  }
}

function linkTo(context: OtelSpanContext): {
  context: OtelSpanContext;
  attributes: Record<string, string>;
} {
  return { context, attributes: { 'respool.link': 'first attempt' } };
}

function settleSpan(span: OtelSpan): ReturnType<AttemptSpan['settle']> {
  return {
    end: (answer, error) => {
      span.setAttributes({ 'respool.answer': answer });
      if (error !== undefined) setThrown(span, error);
      span.end();
    },
  };
}
