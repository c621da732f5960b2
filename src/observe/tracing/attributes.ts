/**
 * attributes — what spans tell: the names of the messaging conventions of OpenTelemetry, and names
 * of our own for what has none. Never a body, never a header.
 */

import { isRespoolError, textOf } from '../../core/errors.ts';
import { codeText } from '../../core/failure.ts';
import type { Outcome } from '../../core/outcome.ts';
import { redactText } from '../../core/redact.ts';
import type { Verdict } from '../../core/verdict.ts';
import type { Claim } from '../../ports/source.ts';
import type { Sending, TracedPlace } from '../../ports/tracer.ts';
import { type OtelAttributes, type OtelSpan, STATUS_ERROR } from './api.ts';

/** What is done to a message. */
export type Operation = 'send' | 'process' | 'settle';

/** A message on its way in. */
export function sendAttributes(sending: Sending): OtelAttributes {
  const { id, count } = sending;
  return {
    ...placeAttributes(sending, 'send'),
    ...(id === undefined ? {} : { 'messaging.message.id': id }),
    ...(count === undefined ? {} : { 'messaging.batch.message_count': count }),
  };
}

/** An attempt that begins. */
export function attemptAttributes(claim: Claim, place: TracedPlace): OtelAttributes {
  return {
    ...placeAttributes(place, 'process'),
    'messaging.message.id': claim.id,
    'messaging.message.body.size': claim.envelope.body.size,
    'respool.retry.attempt': claim.attempt,
    'respool.lane': claim.lane,
  };
}

/** Tells how an attempt ended. */
export function setOutcome(span: OtelSpan, outcome: Outcome | undefined): void {
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

/** What a verdict on its way tells. */
export function settleAttributes(
  claim: Claim,
  place: TracedPlace,
  verdict: Verdict,
): OtelAttributes {
  return {
    ...placeAttributes(place, 'settle'),
    'messaging.message.id': claim.id,
    'respool.retry.attempt': claim.attempt,
    'respool.verdict': verdict.kind,
    ...(verdict.kind === 'defer' ? { 'respool.retry.delay': verdict.delayMs / 1_000 } : {}),
  };
}

/** What every span tells. */
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

/** Tells of what was thrown: the code where it has one, otherwise what kind of error it is. */
export function setThrown(span: OtelSpan, thrown: unknown): void {
  const name = thrown instanceof Error ? thrown.name : typeof thrown;
  tellError(span, isRespoolError(thrown) ? thrown.code : name, textOf(thrown));
}

/** As much of a reason as a list of spans shows. */
const REASON_MAX_CHARS = 200;

function tellError(span: OtelSpan, code: string, reason: string): void {
  const type = codeText(code);
  const text = redactText(reason).slice(0, REASON_MAX_CHARS);
  span.setAttributes({ 'error.type': type });
  span.setStatus({ code: STATUS_ERROR, message: `${type}: ${text}` });
}
