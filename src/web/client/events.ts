/**
 * events — the events of a service, for as long as they are read. A stream that ends by itself is
 * an error: who watches must know that nobody tells them anything any more.
 */

import type { Operator, SerializedEvent } from '../../spool/operator/operator.ts';
import { SECOND_MS } from '../../core/duration.ts';
import type { EventKind } from '../../core/event.ts';
import {
  becauseForm,
  failureForm,
  type AnswerForm,
  fields,
  laneForm,
  listForm,
} from './answers.ts';
import { UnexpectedAnswer, numberForm, optional, textForm } from './answers.ts';
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
const message = { id: textForm, topic: textForm };
const ofMessage = fields<{ id: string; topic: string }>(message);
const tried = { ...message, lane: laneForm, attempt: numberForm };
const ofAttempt = fields<{ id: string; topic: string; lane: string; attempt: number }>(tried);
const ofTopic = fields<{ topic: string }>({ topic: textForm });

/** What each kind says besides its time; as a record, so that none is forgotten. */
const FORMS: Readonly<Record<Kind, AnswerForm<object>>> = {
  accepted: fields<object>({ ...message, state: textForm, dueAt: numberForm }),
  duplicate: fields<object>({ ...message, duplicateOf: textForm }),
  claimed: ofAttempt,
  started: ofAttempt,
  ended: fields<object>({ ...tried, outcome: textForm, code: textForm, tookMs: numberForm }),
  delivered: fields<object>({ ...tried, tookMs: numberForm, ageMs: numberForm }),
  deferred: fields<object>({
    ...tried,
    dueAt: numberForm,
    because: becauseForm,
    failure: optional(failureForm),
  }),
  bounced: fields<object>({ ...tried, because: becauseForm, failure: optional(failureForm) }),
  held: fields<object>({ ...tried, because: becauseForm }),
  announced: ofAttempt,
  released: ofAttempt,
  'lease-lost': ofAttempt,
  stale: ofAttempt,
  archived: fields<object>({ ...message, ending: textForm }),
  removed: fields<object>({ ...message, by: textForm }),
  'policy-unknown': fields<object>({ ...message, policy: textForm }),
  'handler-missing': ofMessage,
  operator: fields<object>({ action: textForm, by: textForm, ids: listForm(textForm) }),
  paused: ofTopic,
  resumed: ofTopic,
  'engine-started': nothing,
  'engine-stopped': nothing,
  'clock-jumped': fields<object>({ byMs: numberForm }),
  swept: fields<object>({ forgotten: numberForm, orphans: numberForm }),
  topology: fields<object>({
    queue: textForm,
    act: textForm,
    exchanges: numberForm,
    queues: numberForm,
    bindings: numberForm,
  }),
  relay: fields<object>({ target: textForm, state: textForm }),
  sweep: fields<object>({
    queue: textForm,
    target: textForm,
    moved: numberForm,
    left: numberForm,
    error: optional(textForm),
  }),
  replay: fields<object>({
    replay: textForm,
    state: textForm,
    by: textForm,
    sent: numberForm,
    failed: numberForm,
    again: numberForm,
    because: optional(textForm),
  }),
  alert: fields<object>({ rule: textForm, phase: textForm, episode: numberForm, text: textForm }),
  trouble: fields<object>({ doing: textForm, error: textForm, code: optional(textForm) }),
  missed: fields<object>({ count: numberForm }),
};

const base: AnswerForm<{ at: number; kind: string }> = fields<{ at: number; kind: string }>({
  at: numberForm,
  kind: textForm,
});
