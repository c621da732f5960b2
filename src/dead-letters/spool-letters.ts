/**
 * spool-letters — what a spool gave up, as dead letters: bounced, held and archived messages.
 *
 * Over an Operator, so the same on a store and through a service. Nothing is locked: every write is
 * a compare-and-swap, and who was quicker wins. Settles that come together go in one call.
 */

import { isRespoolError } from '../core/errors.ts';
import { fitsLetter } from '../core/letter-query.ts';
import { checkNames, checkNumber, checkOneOf, ID_PATTERN } from '../core/limits.ts';
import type { Operator } from '../spool/operator/operator.ts';
import type {
  DeadLetters,
  Letter,
  LetterKind,
  LetterQuery,
  LetterTakeOptions,
  OpenLetter,
  SettleResult,
  Since,
  TakenLetter,
} from '../ports/dead-letters.ts';
import type { PageOptions } from '../spool/list.ts';
import { type BatchLine, createBatchLine } from '../stores/shared/batching.ts';
import {
  letterOf,
  type SettleOrder,
  replayedBy,
  settleTogether,
  STATE_OF,
  whyOf,
} from './settle.ts';

// How many letters were taken and not yet settled; the next waits for room.

/** Counts what is in hand. */
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

  /** Resolves when there is room for one more; false: it was called off. */
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
const PAGE_MAX = 500;
/** Looked at, at the most, unless more is asked for. */
const LOOK_MAX = 100_000;
const IN_HAND_DEFAULT = 100;
const IN_HAND_MAX = 1_000;
/** Settled in one call, at the most; two calls may be on their way. */
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
      if (fitsLetter(letter, query)) yield this.#open(letter);
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

  async settle({ letter, token }: TakenLetter, fate: SettleOrder['fate']): Promise<SettleResult> {
    try {
      if (fate.kind === 'leave') return { kind: 'done' };
      return await this.#line.add([{ letter, fate }], ([settled]) => settled ?? GONE);
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
        const fate = entry === undefined ? 'gone' : fateOf(entry, replay);
        if (fate === 'delivered') delivered.push(id);
        if (fate === 'gone') gone.push(id);
        if (fate !== 'failed' || entry === undefined) continue;
        const { code, reason } = whyOf(entry.status);
        failed.push({ id, code, reason });
      }
    }
    return { failed, delivered, gone };
  }

  async close(): Promise<void> {
    await this.#line.idle();
  }

  /** What lies here now, by id, that is in the order it came; each once. */
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
    asked: PageOptions,
  ): Promise<{ readonly asked: PageOptions; readonly last: Found | undefined }> {
    try {
      // n.b. A sealed store may answer with an empty page that has a next.
      let page: Awaited<ReturnType<Operator['page']>> | undefined;
      do {
        const place = page?.next === undefined ? {} : { after: page.next };
        page = await this.#operator.page({ ...asked, ...place, descending: true, limit: 1 });
      } while (page.entries.length === 0 && page.next !== undefined);
      return { asked, last: page.entries[0] };
    } catch (error) {
      const { header, ...rest } = asked;
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
function filtersOf(asked: PageOptions, ids: readonly string[] | undefined): PageOptions[] {
  if (ids === undefined) return [asked];
  const possible = [...new Set(ids)].filter((id) => ID_PATTERN.test(id)).toSorted();
  return chunksOf(possible).map((some) => ({ ...asked, ids: some }));
}

function chunksOf(ids: readonly string[]): (readonly string[])[] {
  const count = Math.ceil(ids.length / PAGE_MAX);
  return Array.from({ length: count }, (_, at) => ids.slice(at * PAGE_MAX, (at + 1) * PAGE_MAX));
}

type Found = Awaited<ReturnType<Operator['page']>>['entries'][number];

function fateOf(
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
  // Attempts began anew with the replay; one that runs is not known yet.
  const ended = state === 'active' ? attempts - 1 : attempts;
  return lastFailure !== undefined && ended > 0 ? 'failed' : undefined;
}
