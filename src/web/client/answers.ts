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
export const textForm: AnswerForm<string> = (value, at) => {
  if (typeof value === 'string') return value;
  throw new UnexpectedAnswer(at, value, 'text');
};

/** A finite number. */
export const numberForm: AnswerForm<number> = (value, at) => {
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new UnexpectedAnswer(at, value, 'a number');
};

/** True or false. */
export const flagForm: AnswerForm<boolean> = (value, at) => {
  if (typeof value === 'boolean') return value;
  throw new UnexpectedAnswer(at, value, 'true or false');
};

export const yesForm: AnswerForm<true> = (value, at) => {
  if (value === true) return value;
  throw new UnexpectedAnswer(at, value, 'true');
};

/** The id of a message. */
export const idForm: AnswerForm<string> = (value, at) => {
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
export function listForm<T>(form: AnswerForm<T>): AnswerForm<T[]> {
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
export const stateForm: AnswerForm<State> = oneOf(STATES);
/** Which handler it is for. */
export const laneForm: AnswerForm<'delivery' | 'notice'> = oneOf(['delivery', 'notice']);

/** Why a message is where it is. */
export const becauseForm: AnswerForm<Because> = fields<Because>({
  code: textForm,
  text: textForm,
  by: textForm,
});

/** Why an attempt failed. */
export const failureForm: AnswerForm<Failure> = fields<Failure>({
  permanence: oneOf(['transient', 'permanent']),
  code: textForm,
  reason: textForm,
  retryAfterMs: optional(numberForm),
  fingerprint: textForm,
});

const bodyInfo = fields<BodyInfo>({
  ref: textForm,
  place: oneOf(['inline', 'store', 'none']),
  size: numberForm,
  storedSize: numberForm,
  digest: textForm,
  encodings: listForm(textForm),
});

const envelope = fields<Envelope>({
  id: idForm,
  topic: textForm,
  headers: byName(textForm),
  enqueuedAt: numberForm,
  expiresAt: optional(numberForm),
  eta: optional(numberForm),
  priority: numberForm,
  dedupeKey: optional(textForm),
  ownId: optional(yesForm),
  destination: optional(textForm),
  orderKey: optional(textForm),
  body: bodyInfo,
});

const attempt = fields<AttemptRecord>({
  at: numberForm,
  tookMs: numberForm,
  by: textForm,
  lane: laneForm,
  attempt: numberForm,
  code: textForm,
  reason: optional(textForm),
});

const status = fields<Status>({
  state: stateForm,
  lane: laneForm,
  policy: orNull(textForm),
  revision: numberForm,
  attempts: numberForm,
  postponed: numberForm,
  lost: numberForm,
  replays: numberForm,
  notices: numberForm,
  dueAt: orNull(numberForm),
  holder: optional(textForm),
  claimedFrom: optional(oneOf(['incoming', 'deferred', 'bounce', 'active'])),
  because: optional(becauseForm),
  ending: optional(oneOf(['delivered', 'bounced', 'removed', 'expired'])),
  lastFailure: optional(failureForm),
  history: listForm(attempt),
  notes: byName(textForm),
  updatedAt: numberForm,
});

/** One message without its body. */
export const viewForm: AnswerForm<MessageView> = fields<MessageView>({
  envelope,
  status,
  unhandled: optional(yesForm),
});

/** One page of messages. */
export interface PageAnswer {
  readonly messages: readonly MessageView[];
  readonly corrupt: readonly CorruptEntry[];
  readonly next?: string;
}

/** One page of messages. */
export const pageForm: AnswerForm<PageAnswer> = fields<PageAnswer>({
  messages: listForm(viewForm),
  corrupt: listForm(
    fields<CorruptEntry>({ id: optional(textForm), where: textForm, reason: textForm }),
  ),
  next: optional(textForm),
});

/** What was put down. */
export const enqueuedForm: AnswerForm<Enqueued> = fields<Enqueued>({
  id: idForm,
  duplicate: flagForm,
});

const result = fields<ActionResult>({
  id: textForm,
  result: oneOf(['done', 'refused', 'unknown']),
  why: optional(textForm),
});

/** What became of messages, by id. */
export const resultsForm: AnswerForm<{ results: ActionResult[] }> = fields<{
  results: ActionResult[];
}>({
  results: listForm(result),
});

/** A count before an action. */
export interface DryRun {
  readonly count: number;
  readonly confirm: string;
  readonly filter: ListFilter;
}

/** A count before an action. */
export const dryRunForm: AnswerForm<DryRun> = fields<DryRun>({
  count: numberForm,
  confirm: textForm,
  filter: anyObject,
});

/** How far an action is, and where it goes on. */
export const progressForm: AnswerForm<BulkProgress & { next?: string }> = fields<
  BulkProgress & { next?: string }
>({
  seen: numberForm,
  done: numberForm,
  refused: numberForm,
  unknown: numberForm,
  refusals: listForm(result),
  next: optional(textForm),
});

/** Done. */
export const okForm: AnswerForm<{ ok: true }> = fields<{ ok: true }>({ ok: yesForm });

/** What became of a guarded write. */
export const doneOrStaleForm: AnswerForm<{ result: 'done' | 'stale' }> = fields<{
  result: 'done' | 'stale';
}>({ result: oneOf(['done', 'stale']) });

/** What a round of the caretaker removed. */
export const cleanupForm: AnswerForm<CleanupResult> = fields<CleanupResult>({
  forgotten: numberForm,
  orphans: numberForm,
  unhandled: numberForm,
});

export const pauseForm: AnswerForm<Pause> = fields<Pause>({
  topic: textForm,
  by: textForm,
  at: numberForm,
});

/** What is paused. */
export const pausesForm: AnswerForm<{ pauses: Pause[] }> = fields<{ pauses: Pause[] }>({
  pauses: listForm(pauseForm),
});

const policy = fields<RetryPolicy>({
  maxAttempts: numberForm,
  maxAgeMs: orNull(numberForm),
  backoff: fields<{ kind: string }>({ kind: textForm }) as AnswerForm<unknown> as AnswerForm<
    RetryPolicy['backoff']
  >,
  jitter: numberForm,
});

/** Policies by name. */
export const policiesForm: AnswerForm<{ policies: NamedPolicy[] }> = fields<{
  policies: NamedPolicy[];
}>({
  policies: listForm(fields<NamedPolicy>({ name: textForm, policy })),
});

type Recorded = AuditRecord & { sequence: number };

const recorded = fields<Recorded>({
  sequence: numberForm,
  at: numberForm,
  by: textForm,
  action: textForm,
  ids: listForm(textForm),
  details: optional(anyObject),
});
const unread = fields<Pick<Recorded, 'sequence'>>({ sequence: numberForm });

/** A record that the service could not read, such as a sealed one, has no action. */
const record: AnswerForm<Recorded> = (value, at) =>
  Object.hasOwn(objectOf(value, at), 'action')
    ? recorded(value, at)
    : (unread(value, at) as Recorded);

/** What operators did. */
export const auditForm: AnswerForm<{ records: Recorded[] }> = fields<{ records: Recorded[] }>({
  records: listForm(record),
});

/** Counts by one property. */
export const tallyForm: AnswerForm<{ rows: TallyRow[] }> = fields<{ rows: TallyRow[] }>({
  rows: listForm(
    fields<TallyRow>({
      key: textForm,
      count: numberForm,
      oldestAt: orNull(numberForm),
      approximate: optional(yesForm),
    }),
  ),
});

const shapeRow = fields<ShapeRow>({
  key: textForm,
  total: numberForm,
  counts: listForm(numberForm),
});

/** Messages by age. */
export const shapeForm: AnswerForm<Shape> = fields<Shape>({
  at: numberForm,
  by: oneOf(['topic', 'destination']),
  boundsMs: listForm(numberForm),
  rows: listForm(shapeRow),
  total: shapeRow,
});

/** The checks that run in a service, the oldest first. */
export const checksForm: AnswerForm<{ readonly running: readonly CheckProgress[] }> = fields({
  running: listForm(fields<CheckProgress>({ seen: numberForm, total: numberForm })),
});

/** What a check found. */
export const reportForm: AnswerForm<CheckReport> = fields<CheckReport>({
  entries: numberForm,
  bodies: numberForm,
  findings: listForm(
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
      id: optional(textForm),
      where: textForm,
      text: textForm,
      repaired: optional(textForm),
    }),
  ),
});
