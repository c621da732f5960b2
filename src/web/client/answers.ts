/**
 * answers — the answers of a service, checked, since anything may answer at an address. No schema
 * library: a command should start quickly.
 *
 * A form returns the value as it is, or throws a Misfit. What it does not know it lets through.
 */

import type {
  BulkProgress,
  MessageView,
  NamedPolicy,
  Shape,
  ShapeRow,
} from '../../spool/operator/operator.ts';
import type { AttemptRecord, Because, BodyInfo, Envelope, Status } from '../../core/entry.ts';
import { show } from '../../core/errors.ts';
import type { Failure } from '../../core/failure.ts';
import { ID_PATTERN } from '../../core/limits.ts';
import type { RetryPolicy } from '../../core/policy.ts';
import { type State, STATES } from '../../core/state.ts';
import type { CorruptEntry, TallyRow } from '../../ports/entry-store.ts';
import type { Enqueued } from '../../spool/enqueue.ts';
import type { ActionResult, AuditRecord } from '../../spool/actions.ts';
import type { CleanupResult } from '../../spool/caretaker.ts';
import type { CheckProgress, CheckReport, Finding } from '../../spool/check.ts';
import type { ListFilter } from '../../spool/list.ts';
import type { Pause } from '../../spool/pauses.ts';

/** A value that has another form than it should; where, and what was expected. */
export class UnexpectedAnswer extends Error {
  override readonly name = 'Misfit';

  constructor(at: string, value: unknown, expected: string) {
    super(`${at === '' ? 'the answer' : `"${at}"`} is ${show(value)}, not ${expected}`);
  }
}

/** Gives back a value that has the form, throws a Misfit otherwise; `at` is where it stands. */
export type AnswerForm<T> = (value: unknown, at: string) => T;

/** A string. */
export const text: AnswerForm<string> = (value, at) => {
  if (typeof value === 'string') return value;
  throw new UnexpectedAnswer(at, value, 'text');
};

/** A finite number. */
export const number: AnswerForm<number> = (value, at) => {
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new UnexpectedAnswer(at, value, 'a number');
};

/** True or false. */
export const flag: AnswerForm<boolean> = (value, at) => {
  if (typeof value === 'boolean') return value;
  throw new UnexpectedAnswer(at, value, 'true or false');
};

export const yes: AnswerForm<true> = (value, at) => {
  if (value === true) return value;
  throw new UnexpectedAnswer(at, value, 'true');
};

/** The id of a message. */
export const id: AnswerForm<string> = (value, at) => {
  if (typeof value === 'string' && ID_PATTERN.test(value)) return value;
  throw new UnexpectedAnswer(at, value, 'a message id');
};

/** One of these words. */
function oneOf<const T extends string>(words: readonly T[]): AnswerForm<T> {
  return (value, at) => {
    const found = words.find((word) => word === value);
    if (found !== undefined) return found;
    throw new UnexpectedAnswer(at, value, `one of ${words.join(', ')}`);
  };
}

/** A list of values of one form. */
export function list<T>(form: AnswerForm<T>): AnswerForm<T[]> {
  return (value, at) => {
    if (!Array.isArray(value)) throw new UnexpectedAnswer(at, value, 'a list');
    for (const [place, item] of value.entries()) form(item, `${at}[${place}]`);
    return value as T[];
  };
}

/** An object with at least these fields. */
export function fields<T extends object>(
  forms: Readonly<{ [K in keyof T]-?: AnswerForm<T[K]> }>,
): AnswerForm<T> {
  const pairs = Object.entries(forms) as [string, AnswerForm<unknown>][];
  return (value, at) => {
    const given = objectOf(value, at);
    for (const [name, form] of pairs) {
      form(
        Object.hasOwn(given, name) ? given[name] : undefined,
        at === '' ? name : `${at}.${name}`,
      );
    }
    return value as T;
  };
}

/** The same, or nothing there. */
export function optional<T>(form: AnswerForm<T>): AnswerForm<T | undefined> {
  return (value, at) => (value === undefined ? undefined : form(value, at));
}

/** The same, or null. */
export function orNull<T>(form: AnswerForm<T>): AnswerForm<T | null> {
  return (value, at) => (value === null ? null : form(value, at));
}

function byName<T>(form: AnswerForm<T>): AnswerForm<Readonly<Record<string, T>>> {
  return (value, at) => {
    const given = objectOf(value, at);
    for (const [name, item] of Object.entries(given)) form(item, `${at}.${name}`);
    return given as Record<string, T>;
  };
}

function objectOf(value: unknown, at: string): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
    return value as Record<string, unknown>;
  }
  throw new UnexpectedAnswer(at, value, 'an object');
}

/** Written out by those who made it, and only shown by us. */
const anyObject: AnswerForm<Readonly<Record<string, unknown>>> = objectOf;

/** One of the states. */
export const state: AnswerForm<State> = oneOf(STATES);
/** Which handler it is for. */
export const lane: AnswerForm<'delivery' | 'notice'> = oneOf(['delivery', 'notice']);

/** Why a message is where it is. */
export const because: AnswerForm<Because> = fields<Because>({ code: text, text, by: text });

/** Why an attempt failed. */
export const failure: AnswerForm<Failure> = fields<Failure>({
  permanence: oneOf(['transient', 'permanent']),
  code: text,
  reason: text,
  retryAfterMs: optional(number),
  fingerprint: text,
});

const bodyInfo = fields<BodyInfo>({
  ref: text,
  place: oneOf(['inline', 'store', 'none']),
  size: number,
  storedSize: number,
  digest: text,
  encodings: list(text),
});

const envelope = fields<Envelope>({
  id,
  topic: text,
  headers: byName(text),
  enqueuedAt: number,
  expiresAt: optional(number),
  eta: optional(number),
  priority: number,
  dedupeKey: optional(text),
  ownId: optional(yes),
  destination: optional(text),
  orderKey: optional(text),
  body: bodyInfo,
});

const attempt = fields<AttemptRecord>({
  at: number,
  tookMs: number,
  by: text,
  lane,
  attempt: number,
  code: text,
  reason: optional(text),
});

const status = fields<Status>({
  state,
  lane,
  policy: orNull(text),
  revision: number,
  attempts: number,
  postponed: number,
  lost: number,
  replays: number,
  notices: number,
  dueAt: orNull(number),
  holder: optional(text),
  claimedFrom: optional(oneOf(['incoming', 'deferred', 'bounce', 'active'])),
  because: optional(because),
  ending: optional(oneOf(['delivered', 'bounced', 'removed', 'expired'])),
  lastFailure: optional(failure),
  history: list(attempt),
  notes: byName(text),
  updatedAt: number,
});

/** One message without its body. */
export const view: AnswerForm<MessageView> = fields<MessageView>({
  envelope,
  status,
  unhandled: optional(yes),
});

/** One page of messages. */
export interface PageAnswer {
  readonly messages: readonly MessageView[];
  readonly corrupt: readonly CorruptEntry[];
  readonly next?: string;
}

/** One page of messages. */
export const page: AnswerForm<PageAnswer> = fields<PageAnswer>({
  messages: list(view),
  corrupt: list(fields<CorruptEntry>({ id: optional(text), where: text, reason: text })),
  next: optional(text),
});

/** What was put down. */
export const enqueued: AnswerForm<Enqueued> = fields<Enqueued>({ id, duplicate: flag });

const result = fields<ActionResult>({
  id: text,
  result: oneOf(['done', 'refused', 'unknown']),
  why: optional(text),
});

/** What became of messages, by id. */
export const results: AnswerForm<{ results: ActionResult[] }> = fields<{ results: ActionResult[] }>(
  {
    results: list(result),
  },
);

/** A count before an action. */
export interface DryRun {
  readonly count: number;
  readonly confirm: string;
  readonly filter: ListFilter;
}

/** A count before an action. */
export const dryRun: AnswerForm<DryRun> = fields<DryRun>({
  count: number,
  confirm: text,
  filter: anyObject,
});

/** How far an action is, and where it goes on. */
export const progress: AnswerForm<BulkProgress & { next?: string }> = fields<
  BulkProgress & { next?: string }
>({
  seen: number,
  done: number,
  refused: number,
  unknown: number,
  refusals: list(result),
  next: optional(text),
});

/** Done. */
export const ok: AnswerForm<{ ok: true }> = fields<{ ok: true }>({ ok: yes });

/** What became of a guarded write. */
export const doneOrStale: AnswerForm<{ result: 'done' | 'stale' }> = fields<{
  result: 'done' | 'stale';
}>({ result: oneOf(['done', 'stale']) });

/** What a round of the caretaker removed. */
export const cleanup: AnswerForm<CleanupResult> = fields<CleanupResult>({
  forgotten: number,
  orphans: number,
  unhandled: number,
});

export const pause: AnswerForm<Pause> = fields<Pause>({ topic: text, by: text, at: number });

/** What is paused. */
export const pauses: AnswerForm<{ pauses: Pause[] }> = fields<{ pauses: Pause[] }>({
  pauses: list(pause),
});

const policy = fields<RetryPolicy>({
  maxAttempts: number,
  maxAgeMs: orNull(number),
  backoff: fields<{ kind: string }>({ kind: text }) as AnswerForm<unknown> as AnswerForm<
    RetryPolicy['backoff']
  >,
  jitter: number,
});

/** Policies by name. */
export const policies: AnswerForm<{ policies: NamedPolicy[] }> = fields<{
  policies: NamedPolicy[];
}>({
  policies: list(fields<NamedPolicy>({ name: text, policy })),
});

type Recorded = AuditRecord & { sequence: number };

const recorded = fields<Recorded>({
  sequence: number,
  at: number,
  by: text,
  action: text,
  ids: list(text),
  details: optional(anyObject),
});
const unread = fields<Pick<Recorded, 'sequence'>>({ sequence: number });

/** A record that the service could not read, such as a sealed one, has no action. */
const record: AnswerForm<Recorded> = (value, at) =>
  Object.hasOwn(objectOf(value, at), 'action')
    ? recorded(value, at)
    : (unread(value, at) as Recorded);

/** What operators did. */
export const audit: AnswerForm<{ records: Recorded[] }> = fields<{ records: Recorded[] }>({
  records: list(record),
});

/** Counts by one property. */
export const tally: AnswerForm<{ rows: TallyRow[] }> = fields<{ rows: TallyRow[] }>({
  rows: list(
    fields<TallyRow>({
      key: text,
      count: number,
      oldestAt: orNull(number),
      approximate: optional(yes),
    }),
  ),
});

const shapeRow = fields<ShapeRow>({ key: text, total: number, counts: list(number) });

/** Messages by age. */
export const shape: AnswerForm<Shape> = fields<Shape>({
  at: number,
  by: oneOf(['topic', 'destination']),
  boundsMs: list(number),
  rows: list(shapeRow),
  total: shapeRow,
});

/** The checks that run in a service, the oldest first. */
export const checks: AnswerForm<{ readonly running: readonly CheckProgress[] }> = fields({
  running: list(fields<CheckProgress>({ seen: number, total: number })),
});

/** What a check found. */
export const report: AnswerForm<CheckReport> = fields<CheckReport>({
  entries: number,
  bodies: number,
  findings: list(
    fields<Finding>({
      kind: oneOf([
        'body.missing',
        'body.corrupt',
        'body.orphan',
        'key.unavailable',
        'transform.missing',
        'peer.missing',
        'store.unavailable',
        'entry.corrupt',
        'lease',
      ]),
      id: optional(text),
      where: text,
      text,
      repaired: optional(text),
    }),
  ),
});
