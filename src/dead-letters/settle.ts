/**
 * settle — what becomes of letters of a spool: those of one fate go in one call.
 *
 * A call without an answer, and a refusal, are looked into before they are told: what carries the
 * mark of this replay was sent by it, whatever was said.
 */

import { CANARY_HEADER } from '../core/canary.ts';
import { isRespoolError, textOf, unreachable } from '../core/errors.ts';
import type { Fate, Letter, LetterRoute, Settled } from '../ports/dead-letters.ts';
import type { ActionResult } from '../spool/actions.ts';
import type { ReplayOrder } from '../spool/replay.ts';
import type { Control } from '../operator/operator.ts';
import { letterOf, replayedBy } from './spool-letter.ts';

/** A letter and its fate. */
export interface Order {
  readonly letter: Letter;
  readonly fate: Fate;
}

type SendFate = Extract<Fate, { kind: 'send' }>;
type Found = Awaited<ReturnType<Control['page']>>['entries'][number];

/** Ids that can be asked for at once. */
const ASKED_MAX = 500;

/** Settles them; results in their order. */
export async function settleTogether(
  control: Control,
  orders: readonly Order[],
): Promise<readonly Settled[]> {
  const groups = new Map<string, number[]>();
  for (const [at, order] of orders.entries()) {
    const name = nameOf(order, at);
    const same = groups.get(name);
    if (same === undefined) groups.set(name, [at]);
    else same.push(at);
  }
  const settled: Settled[] = [];
  // One after the other: a repaired body is in memory as long as its call.
  for (const places of groups.values()) {
    const some = places.map((at) => orders[at]).filter((order) => order !== undefined);
    const results = await settleAlike(control, some);
    for (const [at, place] of places.entries()) settled[place] = results[at] ?? { kind: 'gone' };
  }
  return settled;
}

/** The same for those that can go in one call; a body of its own makes a call of its own. */
function nameOf({ letter, fate }: Order, at: number): string {
  if (fate.kind !== 'send') return JSON.stringify(fate);
  if (fate.change?.body !== undefined) return String(at);
  const { replay, isCanary, change } = fate;
  return JSON.stringify([replay, isCanary, topicOf(letter, fate.to), change, letter.replays]);
}

function settleAlike(control: Control, orders: readonly Order[]): Promise<readonly Settled[]> {
  const [first] = orders;
  const letters = orders.map(({ letter }) => letter);
  const fate: Fate = first?.fate ?? { kind: 'leave' };
  switch (fate.kind) {
    case 'leave':
      return Promise.resolve(letters.map(() => ({ kind: 'done' })));
    case 'send':
      return send(control, letters, fate);
    case 'park':
      return park(control, letters, fate);
    case 'remove':
      return remove(control, letters, fate);
    default:
      return unreachable(fate);
  }
}

async function send(
  control: Control,
  letters: readonly Letter[],
  { to, replay, isCanary, change: repair }: SendFate,
): Promise<readonly Settled[]> {
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
  const call = (ids: readonly string[]): Promise<ActionResult[]> => control.replay(ids, order);
  return settledBy(control, letters, {
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
  control: Control,
  letters: readonly Letter[],
  { code, reason }: Extract<Fate, { kind: 'park' }>,
): Promise<readonly Settled[]> {
  return ifThere(control, letters, {
    call: (ids) => control.hold(ids, `${code}: ${reason}`),
    isDone: ({ found }) => found.status.state === 'hold',
  });
}

function remove(
  control: Control,
  letters: readonly Letter[],
  { hard, reason }: Extract<Fate, { kind: 'remove' }>,
): Promise<readonly Settled[]> {
  return ifThere(control, letters, {
    call: (ids) => control.remove(ids, { hard, reason }),
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
  control: Control,
  letters: readonly Letter[],
  doing: Doing,
): Promise<readonly Settled[]> {
  const found = await look(control, letters);
  if (!(found instanceof Map)) return letters.map(() => found);
  const isHere = (letter: Letter): boolean => isSame(letter, found.get(letter.id));
  const here = letters.filter(isHere);
  const results = await settledBy(control, here, doing);
  const byId = new Map(here.map(({ id }, at) => [id, results[at]]));
  return letters.map(({ id }) => byId.get(id) ?? { kind: 'gone' });
}

async function settledBy(
  control: Control,
  letters: readonly Letter[],
  { call, isDone }: Doing,
): Promise<readonly Settled[]> {
  if (letters.length === 0) return [];
  let results: readonly ActionResult[];
  try {
    results = await call(letters.map(({ id }) => id));
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    const { code, message } = error;
    results = letters.map(({ id }) => ({ id, result: 'refused', why: message }));
    return looked(control, letters, { results, isDone, code });
  }
  return looked(control, letters, { results, isDone, code: 'move.refused' });
}

/** What is not simply done is looked at, all together. */
async function looked(
  control: Control,
  letters: readonly Letter[],
  how: {
    readonly results: readonly ActionResult[];
    readonly isDone: Doing['isDone'];
    readonly code: string;
  },
): Promise<readonly Settled[]> {
  const { results, isDone, code } = how;
  const open = letters.filter((_, at) => results[at]?.result === 'refused');
  const found = open.length === 0 ? new Map<string, Found>() : await look(control, open);
  return letters.map((letter, at): Settled => {
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
  control: Control,
  letters: readonly Letter[],
): Promise<Map<string, Found> | Extract<Settled, { kind: 'failed' }>> {
  const found = new Map<string, Found>();
  try {
    for (let from = 0; from < letters.length; from += ASKED_MAX) {
      const ids = letters.slice(from, from + ASKED_MAX).map(({ id }) => id);
      const { entries } = await control.page({ ids, limit: ASKED_MAX });
      for (const entry of entries) found.set(entry.envelope.id, entry);
    }
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    return { kind: 'failed', code: error.code, reason: textOf(error) };
  }
  return found;
}
