/**
 * spool-letters — what a spool gave up, as dead letters: bounced, held and archived messages.
 *
 * Over an Operator, so the same on a store and through a service. Nothing is locked: every write is
 * a compare-and-swap, and who was quicker wins. Settles that come together go in one call for each
 * verdict, and for each repaired body. A call without an answer, and a refusal, are looked into
 * before they are reported: what carries the mark of this replay was sent by it, whatever the
 * answer was.
 *
 * The other `DeadLetters`: rabbit/queues/queue-letters.ts. One suite holds for both
 * (testkit/letter-cases.ts).
 */

import { isRespoolError, textOf, unreachable } from '../core/errors.ts';
import { letterMatches, groupOf } from '../core/letter-query.ts';
import { checkNames, checkNumber, checkOneOf, ID_PATTERN } from '../core/limits.ts';
import type { Operator } from '../spool/operator/operator.ts';
import type {
  DeadLetters,
  LetterVerdict,
  Letter,
  LetterKind,
  LetterQuery,
  LetterRoute,
  LetterTakeOptions,
  OpenLetter,
  SettleResult,
  Since,
  TakenLetter,
} from '../ports/dead-letters.ts';
import type { PageOptions } from '../spool/list.ts';
import { type BatchLine, createBatchLine } from '../stores/shared/batching.ts';
import { AMQP_HEADER, CANARY_HEADER, REPLAY_HEADER } from '../core/reserved-headers.ts';
import type { Entry, Envelope, Headers, Status } from '../core/entry.ts';
import type { State } from '../core/state.ts';
import type { ActionResult } from '../spool/actions.ts';
import type { ReplayOrder } from '../spool/replay.ts';

/** Counts the letters in hand. */
class TakenMessages {
  readonly #max: number;
  readonly #signal: AbortSignal | undefined;
  readonly #open = new Set<unknown>();
  #onRoom: (() => void) | undefined;

  constructor(max: number, signal: AbortSignal | undefined) {
    this.#max = max;
    this.#signal = signal;
    signal?.addEventListener('abort', () => this.#onRoom?.(), { once: true });
  }

  /** Resolves when there is room for one more; false: the signal fired. */
  async room(): Promise<boolean> {
    while (this.#open.size >= this.#max && this.#signal?.aborted !== true) {
      await new Promise<void>((resolve) => {
        this.#onRoom = resolve;
      });
    }
    return this.#signal?.aborted !== true;
  }

  add(token: unknown): void {
    this.#open.add(token);
  }

  done(token: unknown): void {
    this.#open.delete(token);
    this.#onRoom?.();
  }
}

/** Which of a spool's messages are letters. */
export interface SpoolLettersOptions {
  /** Default `dead` and `parked`: what bounced, and what is held. */
  readonly kinds?: readonly LetterKind[];
}

const KINDS: readonly LetterKind[] = ['dead', 'parked', 'archived'];
/** As PAGE_MAX of spool/list.ts, and as many ids as one query may have. */
const PAGE_MAX = 500;
/**
 * Maximum number of letters that are examined, unless more is asked for. Also in
 * docs/reference/dead-letters.md.
 */
const LOOK_MAX = 100_000;
/**
 * As ports/dead-letters.ts promises; also in rabbit/queues/queue-letters.ts, replay/send-letters.ts
 * and docs/reference/dead-letters.md.
 */
const IN_HAND_DEFAULT = 100;
const IN_HAND_MAX = 1_000;
/** Maximum number settled in one call; two calls may be in flight. */
const BATCH = { batchMax: 500, inFlightMax: 2 } as const;

/** The dead letters of a spool. */
export function createSpoolLetters(
  operator: Operator,
  options: SpoolLettersOptions = {},
): DeadLetters {
  checkNames('the letters of a spool', options, ['kinds']);
  const { kinds = ['dead', 'parked'] } = options;
  for (const kind of kinds) checkOneOf('kinds', kind, KINDS);
  return new SpoolLetters(operator, kinds);
}

/** What tells a letter in hand from others, and who counts it. */
interface Token {
  readonly inHand: TakenMessages;
}

class SpoolLetters implements DeadLetters {
  readonly name = 'spool';
  readonly #operator: Operator;
  readonly #kinds: readonly LetterKind[];
  readonly #line: BatchLine<SettleOrder, SettleResult>;

  constructor(operator: Operator, kinds: readonly LetterKind[]) {
    this.#operator = operator;
    this.#kinds = kinds;
    this.#line = createBatchLine((orders) => settleTogether(operator, orders), BATCH);
  }

  async caution(): Promise<{ readonly kind: 'free' }> {
    return { kind: 'free' };
  }

  async count(): Promise<number> {
    const counts = await this.#operator.count();
    return this.#kinds.reduce((sum, kind) => sum + counts[STATE_OF[kind]], 0);
  }

  async *look({
    query = {},
    max = LOOK_MAX,
    signal,
  }: Parameters<DeadLetters['look']>[0] = {}): AsyncGenerator<OpenLetter> {
    let seen = 0;
    for await (const letter of this.#walk(query, signal)) {
      if (seen === max) return;
      seen += 1;
      if (letterMatches(letter, query)) yield this.#open(letter);
    }
  }

  async *take(options: LetterTakeOptions): AsyncGenerator<TakenLetter> {
    const { isWanted, inHand: most = IN_HAND_DEFAULT, signal } = options;
    checkNumber('inHand', most, { min: 1, max: IN_HAND_MAX });
    const inHand = new TakenMessages(most, signal);
    for await (const letter of this.#walk({}, undefined)) {
      if (signal?.aborted === true) return;
      if (!isWanted(letter)) continue;
      if (!(await inHand.room())) return;
      const token: Token = { inHand };
      inHand.add(token);
      yield { ...this.#open(letter), token };
    }
  }

  async settle(
    { letter, token }: TakenLetter,
    verdict: SettleOrder['verdict'],
  ): Promise<SettleResult> {
    try {
      if (verdict.kind === 'leave') return { kind: 'done' };
      return await this.#line.add([{ letter, verdict }], ([settled]) => settled ?? GONE);
    } finally {
      (token as Token).inHand.done(token);
    }
  }

  async since(replay: string, ids: readonly string[]): Promise<Since> {
    const failed: Since['failed'][number][] = [];
    const delivered: string[] = [];
    const gone: string[] = [];
    for (const some of chunksOf(ids.filter((id) => ID_PATTERN.test(id)))) {
      const page = await this.#operator.page({ ids: some, limit: PAGE_MAX });
      const found = new Map(page.entries.map((entry) => [entry.envelope.id, entry]));
      for (const id of some) {
        const entry = found.get(id);
        const result = entry === undefined ? 'gone' : sendResultOf(entry, replay);
        if (result === 'delivered') delivered.push(id);
        if (result === 'gone') gone.push(id);
        if (result !== 'failed' || entry === undefined) continue;
        const { code, reason } = whyOf(entry.status);
        failed.push({ id, code, reason });
      }
    }
    return { failed, delivered, gone };
  }

  async close(): Promise<void> {
    await this.#line.idle();
  }

  /** What is here now, by id, that is in the order it came; each once. */
  async *#walk(query: LetterQuery, signal: AbortSignal | undefined): AsyncGenerator<Letter> {
    const kinds = this.#kinds.filter((kind) => query.kinds?.includes(kind) ?? true);
    if (kinds.length === 0) return;
    const { asked, last } = await this.#newest({
      ...askedOf(query),
      state: kinds.map((kind) => STATE_OF[kind]),
    });
    if (last === undefined) return;
    for (const filter of filtersOf(asked, query.ids)) {
      let after: string | undefined;
      do {
        const place = after === undefined ? {} : { after };
        const page = await this.#operator.page({ ...filter, ...place, limit: PAGE_MAX });
        for (const entry of page.entries) {
          signal?.throwIfAborted();
          // What came later would keep a walk going for as long as messages are given up.
          if (entry.envelope.id > last.envelope.id) return;
          const letter = letterOf(entry);
          if (letter !== undefined) yield letter;
        }
        after = page.next;
      } while (after !== undefined);
    }
  }

  /** The newest that fits, and what can be asked for: a sealed store cannot look for headers. */
  async #newest(
    options: PageOptions,
  ): Promise<{ readonly asked: PageOptions; readonly last: Found | undefined }> {
    try {
      // n.b. A sealed store may answer with an empty page that has a next.
      let page: Awaited<ReturnType<Operator['page']>> | undefined;
      do {
        const place = page?.next === undefined ? {} : { after: page.next };
        page = await this.#operator.page({ ...options, ...place, descending: true, limit: 1 });
      } while (page.entries.length === 0 && page.next !== undefined);
      return { asked: options, last: page.entries[0] };
    } catch (error) {
      const { header, ...rest } = options;
      if (header === undefined || !isRespoolError(error, 'config.invalid')) throw error;
      return this.#newest(rest);
    }
  }

  #open(letter: Letter): OpenLetter {
    const body = (): Promise<Uint8Array> => this.#body(letter);
    const { id, topic, headers } = letter;
    return {
      letter,
      body,
      copy: async (reason) => ({ id, topic, headers, body: await body(), reason }),
    };
  }

  /** A spool hides nothing from a look, whatever process works on it. */
  async isAlone(): Promise<boolean> {
    return true;
  }

  async #body({ id }: Letter): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
    for await (const part of await this.#operator.body(id)) parts.push(part);
    return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
  }
}

const GONE: SettleResult = { kind: 'gone' };

/**
 * What the store can be asked. Never less than fits: what is asked for as text may be in the
 * destination too, where no store looks.
 */
function askedOf({ topic, origin, code, header, before, after }: LetterQuery): PageOptions {
  return {
    ...(topic === undefined ? {} : { topic }),
    ...(origin === undefined || origin === '' ? {} : { destination: origin }),
    ...(code === undefined || code === 'unknown' ? {} : { code }),
    ...(header === undefined ? {} : { header }),
    ...(before === undefined ? {} : { updatedBefore: before }),
    ...(after === undefined ? {} : { updatedAfter: after }),
  };
}

/** One filter, or one for as many ids as can be asked for at once. */
function filtersOf(options: PageOptions, ids: readonly string[] | undefined): PageOptions[] {
  if (ids === undefined) return [options];
  const possible = [...new Set(ids)].filter((id) => ID_PATTERN.test(id)).toSorted();
  return chunksOf(possible).map((some) => ({ ...options, ids: some }));
}

function chunksOf(ids: readonly string[]): (readonly string[])[] {
  const count = Math.ceil(ids.length / PAGE_MAX);
  return Array.from({ length: count }, (_, at) => ids.slice(at * PAGE_MAX, (at + 1) * PAGE_MAX));
}

type Found = Awaited<ReturnType<Operator['page']>>['entries'][number];

function sendResultOf(
  { envelope, status }: Found,
  replay: string,
): 'failed' | 'delivered' | 'gone' | undefined {
  if (replayedBy(envelope.headers) !== replay) return 'gone';
  const { state, ending, attempts, lastFailure } = status;
  if (state === 'bounce' || state === 'hold') return 'failed';
  if (state === 'archived') {
    if (ending === 'delivered') return 'delivered';
    return ending === 'removed' ? 'gone' : 'failed';
  }
  // Attempts restart with the replay; the outcome of a running one is not known yet.
  const ended = state === 'active' ? attempts - 1 : attempts;
  return lastFailure !== undefined && ended > 0 ? 'failed' : undefined;
}

/** A letter and its verdict. */
interface SettleOrder {
  readonly letter: Letter;
  readonly verdict: LetterVerdict;
}

type SendVerdict = Extract<LetterVerdict, { kind: 'send' }>;

/** Ids that can be asked for at once; as PAGE_MAX above. */
const ASKED_MAX = 500;

/** Settles them; results in their order. */
async function settleTogether(
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
function nameOf({ letter, verdict }: SettleOrder, at: number): string {
  if (verdict.kind !== 'send') return JSON.stringify(verdict);
  if (verdict.change?.body !== undefined) return String(at);
  const { replay, isCanary, change } = verdict;
  return JSON.stringify([replay, isCanary, topicOf(letter, verdict.to), change, letter.replays]);
}

function settleAlike(
  operator: Operator,
  orders: readonly SettleOrder[],
): Promise<readonly SettleResult[]> {
  const [first] = orders;
  const letters = orders.map(({ letter }) => letter);
  const verdict: LetterVerdict = first?.verdict ?? { kind: 'leave' };
  switch (verdict.kind) {
    case 'leave':
      return Promise.resolve(letters.map(() => ({ kind: 'done' })));
    case 'send':
      return send(operator, letters, verdict);
    case 'park':
      return park(operator, letters, verdict);
    case 'remove':
      return remove(operator, letters, verdict);
    default:
      return unreachable(verdict);
  }
}

async function send(
  operator: Operator,
  letters: readonly Letter[],
  { to, replay, isCanary, change: repair }: SendVerdict,
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
  { code, reason }: Extract<LetterVerdict, { kind: 'park' }>,
): Promise<readonly SettleResult[]> {
  return ifThere(operator, letters, {
    call: (ids) => operator.hold(ids, { reason: `${code}: ${reason}` }),
    isDone: ({ found }) => found.status.state === 'hold',
  });
}

function remove(
  operator: Operator,
  letters: readonly Letter[],
  { hard, reason }: Extract<LetterVerdict, { kind: 'remove' }>,
): Promise<readonly SettleResult[]> {
  return ifThere(operator, letters, {
    call: (ids) => operator.remove(ids, { hard, reason }),
    isDone: ({ found }) => !hard && found.status.ending === 'removed',
  });
}

interface Doing {
  readonly call: (ids: readonly string[]) => Promise<ActionResult[]>;
  /** Whether a message that is not as it was has become so by this call. */
  readonly isDone: (pair: { readonly letter: Letter; readonly found: Found }) => boolean;
}

/** A hold or a removal does not check the number of replays: so it is checked here first. */
async function ifThere(
  operator: Operator,
  letters: readonly Letter[],
  doing: Doing,
): Promise<readonly SettleResult[]> {
  const found = await lookUp(operator, letters);
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
    return withRefusedLookedUp(operator, letters, { results, isDone, code });
  }
  return withRefusedLookedUp(operator, letters, { results, isDone, code: 'move.refused' });
}

/** Looks at all letters that were refused at once, to find out whether they are done or gone. */
async function withRefusedLookedUp(
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
  const found = open.length === 0 ? new Map<string, Found>() : await lookUp(operator, open);
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
function isSame(letter: Letter, match: Found | undefined): boolean {
  const now = match === undefined ? undefined : letterOf(match);
  return now?.key === letter.key && now.kind === letter.kind;
}

/** What the messages are now, by id; or the failure of a store that does not answer. */
async function lookUp(
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

// A message of a spool as a letter, and the states that letters are in.

/** The state that letters of a kind are in. */
const STATE_OF: Readonly<Record<LetterKind, State>> = {
  dead: 'bounce',
  parked: 'hold',
  archived: 'archived',
};

/** The message as a letter; undefined where it was not given up. */
function letterOf({ envelope, status }: Pick<Entry, 'envelope' | 'status'>): Letter | undefined {
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
function replayedBy(headers: Headers): string | undefined {
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
function whyOf(status: Status): Pick<Letter, 'code' | 'reason'> {
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
