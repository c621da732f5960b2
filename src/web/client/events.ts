/**
 * events — the events of a service, for as long as they are read. A stream that ends by itself is
 * an error: who watches must know that nobody tells them anything any more.
 */

import type { Operator, SerializedEvent } from '../../spool/operator/operator.ts';
import { SECOND_MS } from '../../core/duration.ts';
import type { EventKind } from '../../core/event.ts';
import { because, failure, type AnswerForm, fields, lane, list } from './answers.ts';
import { UnexpectedAnswer, number, optional, text } from './answers.ts';
import type { ServiceClient } from './http.ts';

const DATA = 'data: ';
/** A service gives a sign of life every 15 s. */
const QUIET_MS: number = 30 * SECOND_MS;
/** One event is no longer than this; the longest name the ids of one action. */
const LINE_MAX_CHARS = 16_777_216;

/** What happens, until the signal fires. */
export async function* eventsOf(
  client: ServiceClient,
  { signal, kinds }: Parameters<Operator['events']>[0],
): AsyncGenerator<SerializedEvent> {
  const query = new URLSearchParams(kinds === undefined ? {} : { kinds: kinds.join(',') });
  try {
    const answer = await client.send('/v1/events', {
      query,
      signal,
      accept: 'text/event-stream',
    });
    for await (const line of linesOf(client.parts(answer, QUIET_MS))) {
      const event = line.startsWith(DATA) ? eventOf(line.slice(DATA.length)) : undefined;
      if (event !== undefined) yield event;
    }
  } catch (error) {
    // Anyone who fired the signal knows that it is over.
    if (signal.aborted) return;
    throw error instanceof UnexpectedAnswer ? client.strange(error.message) : error;
  }
  if (!signal.aborted) {
    throw client.gone('ended the events: it stopped, or the connection broke');
  }
}

async function* linesOf(parts: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const bytes of parts) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > LINE_MAX_CHARS) throw new UnexpectedAnswer('event', 'endless', 'a line');
    yield* lines;
  }
}

/** The event, or undefined for a kind that only a newer service knows. */
function eventOf(data: string): SerializedEvent | undefined {
  let told: unknown;
  try {
    told = JSON.parse(data);
  } catch {
    throw new UnexpectedAnswer('event', data, 'JSON');
  }
  const { kind } = base(told, 'event');
  if (!Object.hasOwn(FORMS, kind)) return undefined;
  FORMS[kind as Kind](told, 'event');
  return told as SerializedEvent;
}

type Kind = EventKind | 'missed';

const nothing: AnswerForm<object> = fields({});
const message = { id: text, topic: text };
const ofMessage = fields<{ id: string; topic: string }>(message);
const tried = { ...message, lane, attempt: number };
const ofAttempt = fields<{ id: string; topic: string; lane: string; attempt: number }>(tried);
const ofTopic = fields<{ topic: string }>({ topic: text });

/** What each kind says besides its time; as a record, so that none is forgotten. */
const FORMS: Readonly<Record<Kind, AnswerForm<object>>> = {
  accepted: fields<object>({ ...message, state: text, dueAt: number }),
  duplicate: fields<object>({ ...message, duplicateOf: text }),
  claimed: ofAttempt,
  started: ofAttempt,
  ended: fields<object>({ ...tried, outcome: text, code: text, tookMs: number }),
  delivered: fields<object>({ ...tried, tookMs: number, ageMs: number }),
  deferred: fields<object>({ ...tried, dueAt: number, because, failure: optional(failure) }),
  bounced: fields<object>({ ...tried, because, failure: optional(failure) }),
  held: fields<object>({ ...tried, because }),
  announced: ofAttempt,
  released: ofAttempt,
  'lease-lost': ofAttempt,
  stale: ofAttempt,
  archived: fields<object>({ ...message, ending: text }),
  removed: fields<object>({ ...message, by: text }),
  'policy-unknown': fields<object>({ ...message, policy: text }),
  'handler-missing': ofMessage,
  operator: fields<object>({ action: text, by: text, ids: list(text) }),
  paused: ofTopic,
  resumed: ofTopic,
  'engine-started': nothing,
  'engine-stopped': nothing,
  'clock-jumped': fields<object>({ byMs: number }),
  swept: fields<object>({ forgotten: number, orphans: number }),
  topology: fields<object>({
    queue: text,
    act: text,
    exchanges: number,
    queues: number,
    bindings: number,
  }),
  relay: fields<object>({ target: text, state: text }),
  sweep: fields<object>({
    queue: text,
    target: text,
    moved: number,
    left: number,
    error: optional(text),
  }),
  replay: fields<object>({
    replay: text,
    state: text,
    by: text,
    sent: number,
    failed: number,
    again: number,
    because: optional(text),
  }),
  alert: fields<object>({ rule: text, phase: text, episode: number, text }),
  trouble: fields<object>({ doing: text, error: text, code: optional(text) }),
  missed: fields<object>({ count: number }),
};

const base: AnswerForm<{ at: number; kind: string }> = fields<{ at: number; kind: string }>({
  at: number,
  kind: text,
});
