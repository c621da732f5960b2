/**
 * carrier — how a trace is carried: its context in the headers of a message, and the first attempt
 * in a note, for the attempts after it.
 */

import type { Headers } from '../../core/entry.ts';
import type { OtelGetter, OtelSetter, OtelSpanContext } from './api.ts';

/** The note that tells later attempts of the first, as W3C writes a span: `00-…-…-01`. */
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
export function noteOf({ traceId, spanId, traceFlags }: OtelSpanContext): Headers {
  const flags = (traceFlags & 0xff).toString(16).padStart(2, '0');
  return { [FIRST_ATTEMPT_NOTE]: `00-${traceId}-${spanId}-${flags}` };
}

/** The first attempt, as it was noted; undefined: nobody did. */
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
