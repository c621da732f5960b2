/**
 * settle — what becomes of letters of a spool: those of one fate go in one call.
 *
 * A call without an answer, and a refusal, are looked into before they are told: what carries the
 * mark of this replay was sent by it, whatever was said.
 */

import { AMQP_HEADER, CANARY_HEADER, REPLAY_HEADER } from '../core/reserved-headers.ts';
import type { Entry, Envelope, Headers, Status } from '../core/entry.ts';
import { isRespoolError, textOf, unreachable } from '../core/errors.ts';
import { groupOf } from '../core/group.ts';
import type { State } from '../core/state.ts';
import type { Operator } from '../spool/operator/operator.ts';
import type { Fate, Letter, LetterKind, LetterRoute, SettleResult } from '../ports/dead-letters.ts';
import type { ActionResult } from '../spool/actions.ts';
import type { ReplayOrder } from '../spool/replay.ts';

/** A letter and its fate. */
export interface SettleOrder {
  readonly letter: Letter;
  readonly fate: Fate;
}

type SendFate = Extract<Fate, { kind: 'send' }>;
type Found = Awaited<ReturnType<Operator['page']>>['entries'][number];

/** Ids that can be asked for at once. */
const ASKED_MAX = 500;

/** Settles them; results in their order. */
export async function settleTogether(
  operator: Operator,
  orders: readonly SettleOrder[],
): Promise<readonly SettleResult[]> {
  const groups = new Map<string, number[]>();
  for (const [at, order] of orders.entries()) {
    const name = nameOf(order, at);
    const same = groups.get(name);
    if (same === undefined) groups.set(name, [at]);
    else same.push(at);
  }
  const settled: SettleResult[] = [];
  // One after the other: a repaired body is in memory as long as its call.
  for (const places of groups.values()) {
    const some = places.map((at) => orders[at]).filter((order) => order !== undefined);
    const results = await settleAlike(operator, some);
    for (const [at, place] of places.entries()) settled[place] = results[at] ?? { kind: 'gone' };
  }
  return settled;
}

/** The same for those that can go in one call; a body of its own makes a call of its own. */
function nameOf({ letter, fate }: SettleOrder, at: number): string {
  if (fate.kind !== 'send') return JSON.stringify(fate);
  if (fate.change?.body !== undefined) return String(at);
  const { replay, isCanary, change } = fate;
  return JSON.stringify([replay, isCanary, topicOf(letter, fate.to), change, letter.replays]);
}

function settleAlike(
  operator: Operator,
  orders: readonly SettleOrder[],
): Promise<readonly SettleResult[]> {
  const [first] = orders;
  const letters = orders.map(({ letter }) => letter);
  const fate: Fate = first?.fate ?? { kind: 'leave' };
  switch (fate.kind) {
    case 'leave':
      return Promise.resolve(letters.map(() => ({ kind: 'done' })));
    case 'send':
      return send(operator, letters, fate);
    case 'park':
      return park(operator, letters, fate);
    case 'remove':
      return remove(operator, letters, fate);
    default:
      return unreachable(fate);
  }
}

async function send(
  operator: Operator,
  letters: readonly Letter[],
  { to, replay, isCanary, change: repair }: SendFate,
): Promise<readonly SettleResult[]> {
  if (to?.kind === 'queue') {
    const reason =
      'a message of a spool is sent to a topic, not to a queue: give a topic whose handler ' +
      'publishes to the queue';
    return letters.map(() => ({ kind: 'failed', code: 'route.invalid', reason }));
  }
  const [first] = letters;
  const topic = first === undefined ? undefined : topicOf(first, to);
  const change =
    isCanary === true
      ? { ...repair, headers: { ...repair?.headers, [CANARY_HEADER]: replay } }
      : repair;
  const order: ReplayOrder = {
    replay,
    ...(topic === undefined ? {} : { topic }),
    ...(change === undefined ? {} : { change }),
    ...(first === undefined ? {} : { replays: first.replays }),
  };
  const call = (ids: readonly string[]): Promise<ActionResult[]> => operator.replay(ids, order);
  return settledBy(operator, letters, {
    call,
    isDone: ({ letter, found }) =>
      replayedBy(found.envelope.headers) === replay && found.status.replays > letter.replays,
  });
}

/** The other topic it goes to, if any. */
function topicOf({ topic }: Letter, to: LetterRoute | undefined): string | undefined {
  return to?.kind === 'topic' && to.topic !== topic ? to.topic : undefined;
}

function park(
  operator: Operator,
  letters: readonly Letter[],
  { code, reason }: Extract<Fate, { kind: 'park' }>,
): Promise<readonly SettleResult[]> {
  return ifThere(operator, letters, {
    call: (ids) => operator.hold(ids, { reason: `${code}: ${reason}` }),
    isDone: ({ found }) => found.status.state === 'hold',
  });
}

function remove(
  operator: Operator,
  letters: readonly Letter[],
  { hard, reason }: Extract<Fate, { kind: 'remove' }>,
): Promise<readonly SettleResult[]> {
  return ifThere(operator, letters, {
    call: (ids) => operator.remove(ids, { hard, reason }),
    isDone: ({ found }) => !hard && found.status.ending === 'removed',
  });
}

interface Doing {
  readonly call: (ids: readonly string[]) => Promise<ActionResult[]>;
  /** Whether a message that is not as it was is so by this. */
  readonly isDone: (pair: { readonly letter: Letter; readonly found: Found }) => boolean;
}

/** A hold or a removal asks nobody how often the message was replayed: so we look before. */
async function ifThere(
  operator: Operator,
  letters: readonly Letter[],
  doing: Doing,
): Promise<readonly SettleResult[]> {
  const found = await look(operator, letters);
  if (!(found instanceof Map)) return letters.map(() => found);
  const isHere = (letter: Letter): boolean => isSame(letter, found.get(letter.id));
  const here = letters.filter(isHere);
  const results = await settledBy(operator, here, doing);
  const byId = new Map(here.map(({ id }, at) => [id, results[at]]));
  return letters.map(({ id }) => byId.get(id) ?? { kind: 'gone' });
}

async function settledBy(
  operator: Operator,
  letters: readonly Letter[],
  { call, isDone }: Doing,
): Promise<readonly SettleResult[]> {
  if (letters.length === 0) return [];
  let results: readonly ActionResult[];
  try {
    results = await call(letters.map(({ id }) => id));
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    const { code, message } = error;
    results = letters.map(({ id }) => ({ id, result: 'refused', why: message }));
    return looked(operator, letters, { results, isDone, code });
  }
  return looked(operator, letters, { results, isDone, code: 'move.refused' });
}

/** What is not simply done is looked at, all together. */
async function looked(
  operator: Operator,
  letters: readonly Letter[],
  how: {
    readonly results: readonly ActionResult[];
    readonly isDone: Doing['isDone'];
    readonly code: string;
  },
): Promise<readonly SettleResult[]> {
  const { results, isDone, code } = how;
  const open = letters.filter((_, at) => results[at]?.result === 'refused');
  const found = open.length === 0 ? new Map<string, Found>() : await look(operator, open);
  return letters.map((letter, at): SettleResult => {
    const { result = 'unknown', why: reason = '' } = results[at] ?? {};
    if (result === 'done') return { kind: 'done' };
    if (result === 'unknown') return { kind: 'gone' };
    if (!(found instanceof Map)) return { kind: 'unsure', reason: `${reason}; ${found.reason}` };
    const now = found.get(letter.id);
    if (now !== undefined && isDone({ letter, found: now })) return { kind: 'done' };
    return isSame(letter, now) ? { kind: 'failed', code, reason } : { kind: 'gone' };
  });
}

/** Whether a letter is as it was when it was taken. */
function isSame(letter: Letter, found: Found | undefined): boolean {
  const now = found === undefined ? undefined : letterOf(found);
  return now?.key === letter.key && now.kind === letter.kind;
}

/** What they are now; a store that does not answer leaves them where they were. */
async function look(
  operator: Operator,
  letters: readonly Letter[],
): Promise<Map<string, Found> | Extract<SettleResult, { kind: 'failed' }>> {
  const found = new Map<string, Found>();
  try {
    for (let from = 0; from < letters.length; from += ASKED_MAX) {
      const ids = letters.slice(from, from + ASKED_MAX).map(({ id }) => id);
      const { entries } = await operator.page({ ids, limit: ASKED_MAX });
      for (const entry of entries) found.set(entry.envelope.id, entry);
    }
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    return { kind: 'failed', code: error.code, reason: textOf(error) };
  }
  return found;
}

// A message of a spool as a letter, and which states letters lie in.

/** The state that letters of a kind lie in. */
export const STATE_OF: Readonly<Record<LetterKind, State>> = {
  dead: 'bounce',
  parked: 'hold',
  archived: 'archived',
};

/** The message as a letter; undefined where it was not given up. */
export function letterOf({
  envelope,
  status,
}: Pick<Entry, 'envelope' | 'status'>): Letter | undefined {
  const kind = kindOf(status.state);
  if (kind === undefined) return undefined;
  const { id, topic, destination: origin = '', headers, enqueuedAt, body } = envelope;
  const { code, reason } = whyOf(status);
  return {
    id,
    // Another one after each replay: a plan is never about a message that came back meanwhile.
    key: `${id}.${status.replays}`,
    kind,
    place: status.state,
    topic,
    origin,
    home: homeOf(envelope),
    code,
    reason,
    group: groupOf({ code, reason, at: topic, origin }),
    // In this lane once it bounced, whatever an operator did to it afterwards.
    deaths: status.replays + (status.lane === 'notice' ? 1 : 0),
    attempts: status.attempts,
    replays: status.replays,
    replayedBy: replayedBy(headers),
    enqueuedAt,
    diedAt: status.updatedAt,
    size: body.size,
    contentType: contentTypeOf(headers),
    headers,
  };
}

/** The replay that sent a message last. */
export function replayedBy(headers: Headers): string | undefined {
  return Object.hasOwn(headers, REPLAY_HEADER) ? headers[REPLAY_HEADER] : undefined;
}

function kindOf(state: State): LetterKind | undefined {
  return (Object.keys(STATE_OF) as LetterKind[]).find((kind) => STATE_OF[kind] === state);
}

/** A copy of a message of a broker goes back there, and not to a handler. */
function homeOf({ headers, topic }: Envelope): Letter['home'] {
  return Object.hasOwn(headers, AMQP_HEADER) ? undefined : { kind: 'topic', topic };
}

/** Why it is held or was removed; otherwise why it failed, which says more than that it ended. */
export function whyOf(status: Status): Pick<Letter, 'code' | 'reason'> {
  const { state, ending, because, lastFailure } = status;
  const isPutThere = state === 'hold' || ending === 'removed';
  const [first, second] = isPutThere
    ? [textsOf(because), lastFailure]
    : [lastFailure, textsOf(because)];
  const { code, reason } = first ?? second ?? { code: 'unknown', reason: '' };
  return { code, reason };
}

function textsOf(because: Status['because']): Pick<Letter, 'code' | 'reason'> | undefined {
  return because === undefined ? undefined : { code: because.code, reason: because.text };
}

function contentTypeOf(headers: Headers): string | undefined {
  const name = Object.keys(headers).find((one) => one.toLowerCase() === 'content-type');
  return name === undefined ? undefined : headers[name];
}
