/**
 * remove — dead letters are taken away: counted first, then confirmed (unless they were named by
 * ids, without --hard), put on the audit record, and done.
 *
 * Promise: at most as many as were counted, and none that died since, as far as the time is known
 * where more than KEYS_MAX were counted in one place. A copy of what is removed from a queue is
 * archived first, unless it is removed with --hard; restore.ts brings it back.
 */

import { LIMIT_RANGE } from '../../options.ts';
import type { Millis } from '../../../core/duration.ts';
import { isRespoolError, textOf } from '../../../core/errors.ts';
import { REMOVED_REASON_PREFIX } from '../../../core/reserved-headers.ts';
import { letterMatches } from '../../../core/letter-query.ts';
import { withBrokerHeader } from '../../../dead-letters/export.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { Operator } from '../../../spool/operator/operator.ts';
import type {
  LetterVerdict,
  KeptCopy,
  Letter,
  SettleResult,
  TakenLetter,
} from '../../../ports/dead-letters.ts';
import { CommandError, EXIT, type ExitCode } from '../../exit-codes.ts';
import { TypedIds } from '../../id-prefix.ts';
import { ask } from '../../ui/confirm.ts';
import { passing, moveWith } from '../../ui/progress.ts';
import {
  kindsOf,
  type LetterLook,
  openLook,
  type LettersContext,
  type OpenPlace,
} from './letter-places.ts';
import { typedIds, recordWithIds, spoolIdsOf, typeCount } from './typed-ids.ts';

/** Letters of one place whose keys are remembered between the count and the removal. */
const KEYS_MAX = 200_000;

/** What was counted. */
interface Count {
  readonly counted: readonly Counted[];
  readonly total: number;
  /** The ids that were given, whole; undefined where a filter chooses. */
  readonly ids: readonly string[] | undefined;
  /** Of these, those that are there. */
  readonly found: ReadonlySet<string>;
}

/** A letter that may be one of those that were named. */
interface Noted {
  readonly place: OpenPlace;
  readonly id: string;
  readonly key: string;
}

/** Which letters of one place, as they were counted. */
interface Counted {
  readonly place: OpenPlace;
  count: number;
  /** undefined: too many; then their number holds, and the time of the count. */
  keys: Set<string> | undefined;
  readonly countedAt: Millis;
}

/** Removes letters by ids or by a filter. */
export async function remove(context: LettersContext): Promise<ExitCode> {
  const { args, options } = context;
  checkKinds(context);
  const isSpool = options.texts('queue').length === 0;
  const typed = args.filter((arg) => arg !== '-');
  const ids = isSpool
    ? new TypedIds([], await spoolIdsOf(context))
    : new TypedIds(typed, await typedIds({ ...context, args: args.filter((arg) => arg === '-') }));
  const look = await openLook(context, { isStrict: true });
  if (args.length > 0 && !look.filter.isEmpty) {
    throw usage('ids and filters do not go together: give one of them');
  }
  if (args.length === 0 && look.filter.isEmpty) {
    throw usage(
      'say which letters to remove: ids, - for ids from stdin, or a filter such as ' +
        '--category validation; everything: respool dlq purge',
    );
  }
  const isHard = options.flag('hard');
  return removeAll(context, look, {
    action: 'remove',
    ids: args.length > 0 ? ids : undefined,
    confirm: async (_count, what) => {
      // As the other commands: what was named one by one, and can be undone, is not asked for.
      if (args.length === 0) await ask(context, `remove ${what}?`);
      if (isHard) await ask(context, 'remove for good, with the bodies? nothing brings them back');
    },
  });
}

/** Removes everything that fits, after its number was typed. */
export async function purge(context: LettersContext): Promise<ExitCode> {
  checkKinds(context);
  const look = await openLook(context, { isStrict: true });
  const verb = context.options.flag('hard') ? 'remove for good' : 'remove';
  return removeAll(context, look, {
    action: 'purge',
    ids: undefined,
    confirm: (count, what) => typeCount(context, count, `${verb} ${what}`),
  });
}

function checkKinds(context: LettersContext): void {
  const isArchived = kindsOf(context)?.includes('archived') === true;
  if (!isArchived || context.options.flag('hard')) return;
  throw usage('archived letters are already removed: add --hard to remove them permanently');
}

interface Order {
  readonly action: 'remove' | 'purge';
  readonly ids: TypedIds | undefined;
  readonly confirm: (count: number, what: string) => Promise<void>;
}

async function removeAll(
  context: LettersContext,
  look: LetterLook,
  order: Order,
): Promise<ExitCode> {
  const { options, out } = context;
  const { action } = order;
  const { counted, total, ids, found } = await countAll(context, look, order.ids);
  const where = look.places.map(({ name }) => name).join(', ');
  const what = `${total === 1 ? '1 letter' : `${total} letters`} of ${safe(where)}`;
  if (options.flag('dryRun')) {
    if (out.json) await out.object({ action, count: total, dryRun: true });
    else await out.line(`would remove ${what}`);
    return EXIT.done;
  }
  const tally: RemovalTally = { removed: 0, gone: 0, failed: 0, failures: [] };
  if (total > 0) {
    await order.confirm(total, what);
    await carryOut(context, look, { order, counted, total, ids, tally });
  } else if (action === 'purge' && options.text('count') !== undefined) {
    await order.confirm(total, what);
  }
  const unknown = (ids ?? []).filter((id) => !found.has(id)).length;
  return tellTally(context, { action, total, tally, unknown });
}

async function carryOut(
  context: LettersContext,
  look: LetterLook,
  {
    order,
    counted,
    total,
    ids,
    tally,
  }: {
    readonly order: Order;
    readonly counted: readonly Counted[];
    readonly total: number;
    readonly ids: readonly string[] | undefined;
    readonly tally: RemovalTally;
  },
): Promise<void> {
  const { options } = context;
  const { operator } = await context.session();
  const isHard = options.flag('hard');
  const reason = options.filled('reason') ?? 'removed by an operator';
  await recordWithIds(operator, `dlq.${order.action}`, {
    places: counted.map(({ place }) => place.source),
    filter: { ...look.filter.query, ...categoryPart(look) },
    ...(ids === undefined ? {} : { ids }),
    count: total,
    hard: isHard,
    reason,
  });
  const verdict = { kind: 'remove' as const, hard: isHard, reason, by: operator.by };
  await moveWith(context, total, async (signal, onProgress) => {
    for (const one of counted) {
      const { place, count } = one;
      const isFitting = matchingLetters(look, ids, one);
      const tell = (moved: number, skipped: number): void =>
        onProgress({ queue: place.name, moved, skipped, total: count });
      await new Removal({ place, count, operator, verdict, tally, isFitting, tell }).run(signal);
    }
  });
}

function categoryPart({ filter: { category } }: LetterLook): object {
  return category === undefined ? {} : { category };
}

async function countAll(
  context: LettersContext,
  look: LetterLook,
  typed: TypedIds | undefined,
): Promise<Count> {
  const { options, io, out } = context;
  const limit = options.number('limit', LIMIT_RANGE) ?? LIMIT_RANGE.max;
  const countedAt = io.clock.now();
  let total = 0;
  const counted = new Map<OpenPlace, Counted>(
    look.places.map((place) => [place, { place, count: 0, keys: new Set(), countedAt }]),
  );
  const letters: Noted[] = [];
  // One look for both, which ids are meant and which letters have them: a broker counts looks.
  for await (const { place, open } of passing(context, look.letters(typed?.search))) {
    const { id, key } = open.letter;
    if (typed === undefined) count({ place, id, key });
    else letters.push({ place, id, key });
    if (total === limit) break;
  }
  const ids = typed?.wholeIds({ out, isActing: true });
  const meant = new Set(ids);
  const found = new Set(letters.map(({ id }) => id));
  for (const one of letters) if (meant.has(one.id) && total < limit) count(one);
  const all = [...counted.values()].filter((one) => one.count > 0);
  return { counted: all, total, ids, found };

  function count({ place, key }: Noted): void {
    const one = counted.get(place);
    if (one === undefined) return;
    one.count += 1;
    one.keys?.add(key);
    if (one.count > KEYS_MAX) one.keys = undefined;
    total += 1;
  }
}

/** Whether a letter is one of those that were counted. */
export function matchingLetters(
  { filter, tell }: Pick<LetterLook, 'filter' | 'tell'>,
  ids: readonly string[] | undefined,
  { keys, countedAt }: Pick<Counted, 'keys' | 'countedAt'>,
): (letter: Letter) => boolean {
  const named = ids === undefined ? undefined : new Set(ids);
  return (letter) =>
    (keys === undefined ? (letter.diedAt ?? 0) <= countedAt : keys.has(letter.key)) &&
    (named === undefined || named.has(letter.id)) &&
    letterMatches(letter, filter.query) &&
    (filter.category === undefined || filter.category === tell(letter));
}

async function tellTally(
  { out, options }: LettersContext,
  { action, total, tally, unknown }: TallyOptions,
): Promise<ExitCode> {
  const { removed, gone, failed, failures } = tally;
  if (out.json) {
    await out.object({ action, count: total, removed, gone, failed, unknown, failures });
  } else {
    for (const { id, why } of failures) out.note(`${safe(id)}: ${safe(why)}`);
    if (failed > failures.length) out.note(`and ${failed - failures.length} more`);
    const verb = options.flag('hard') ? 'removed for good' : 'removed';
    const parts = [`${verb} ${numberText(removed)}`];
    if (failed > 0) parts.push(`left ${numberText(failed)}`);
    if (gone > 0) parts.push(`no longer there ${numberText(gone)}`);
    if (unknown > 0) parts.push(`unknown ${numberText(unknown)}`);
    const isNothing = total === 0 && unknown === 0;
    await out.line(isNothing ? 'no letters match; nothing to do' : parts.join(', '));
  }
  return failed + unknown > 0 ? EXIT.refused : EXIT.done;
}

interface TallyOptions {
  readonly action: Order['action'];
  readonly total: number;
  readonly tally: RemovalTally;
  /** Ids that were given, and are not there. */
  readonly unknown: number;
}

function usage(text: string): CommandError {
  return new CommandError('usage.invalid', text);
}

// Letters of one place on their way out.
//
//   queue: in hand ─▶ copy archived in the spool, durable ─▶ acked      hard: acked
//   spool: archived, from where restore brings it back                  hard: gone
//
// Promise: a kill leaves a letter where it was, in the archive, or in both. What cannot
// be kept is left where it is.

/** What came of it. */
export interface RemovalTally {
  removed: number;
  gone: number;
  failed: number;
  /** The first of them. */
  readonly failures: { readonly id: string; readonly why: string }[];
}

interface RemovalOptions {
  readonly place: OpenPlace;
  /** At most this many. */
  readonly count: number;
  readonly operator: Pick<Operator, 'keep'>;
  readonly verdict: LetterVerdict & { readonly kind: 'remove' };
  readonly tally: RemovalTally;
  readonly isFitting: (letter: Letter) => boolean;
  /** Hears how many are away, and how many are left. */
  readonly tell: (away: number, amount: number) => void;
}

/** In hand at once. Also in docs/guarantees.md. */
const IN_HAND = 100;
/**
 * Bodies that are kept in one call; a single one may be longer. n.b. As much as a service accepts
 * in one request: a call of several could fail half way, and then the first would be kept twice.
 */
const KEPT_MAX_BYTES = 4 * 2 ** 20;
/** Maximum number of failures that are printed one by one. */
const FAILURES_TOLD = 10;

/** A letter in hand, and the copy of it that is kept first; undefined: none is. */
interface InHand {
  readonly taken: TakenLetter;
  readonly copy: KeptCopy | undefined;
}

/** Takes letters away, in batches that are kept in one write. */
export class Removal {
  readonly #parts: RemovalOptions;
  /** Keys of those that stay. */
  readonly #left = new Set<string>();
  #away = 0;
  // n.b. Acks have no answer: a kill may find those of one batch unsent, and the next one kept.
  #batchMax = IN_HAND / 2;

  constructor(parts: RemovalOptions) {
    this.#parts = parts;
  }

  /** A broker may end passes early: repeated until one brings nothing. */
  async run(signal: AbortSignal): Promise<void> {
    let isBringing = true;
    while (isBringing && this.#open > 0 && !signal.aborted) isBringing = await this.#pass(signal);
  }

  /** How many are still to go. */
  get #open(): number {
    return this.#parts.count - this.#away - this.#left.size;
  }

  async #pass(signal: AbortSignal): Promise<boolean> {
    const { letters } = this.#parts.place;
    const isWanted = (letter: Letter): boolean =>
      !this.#left.has(letter.key) && this.#parts.isFitting(letter);
    let isBringing = false;
    const batch: InHand[] = [];
    for await (const taken of letters.take({ isWanted, inHand: IN_HAND, signal })) {
      isBringing = true;
      const inHand = await this.#inHandOf(taken);
      if (inHand !== undefined) {
        const isTooMuch = bytesOf(batch) + taken.letter.size > KEPT_MAX_BYTES;
        if (isTooMuch) await this.#remove(batch.splice(0));
        batch.push(inHand);
      }
      const isFull = batch.length >= Math.min(this.#batchMax, this.#open);
      if (isFull) await this.#remove(batch.splice(0));
      if (this.#open <= 0 || signal.aborted) break;
    }
    // Fewer came than were counted, and what was in hand went back: now one after the other.
    if (batch.length > 0) this.#batchMax = 1;
    return isBringing;
  }

  /** Copied while it is open; undefined: it cannot be kept, and stays. */
  async #inHandOf(letter: TakenLetter): Promise<InHand | undefined> {
    const { place, verdict } = this.#parts;
    if (place.source.kind === 'spool' || verdict.hard) return { taken: letter, copy: undefined };
    try {
      const copy = await letter.copy(`${REMOVED_REASON_PREFIX} ${place.letters.name}`);
      return { taken: letter, copy: withBrokerHeader(copy, place.source) };
    } catch (error) {
      await this.#leave(letter, error);
      return undefined;
    }
  }

  /** Keeps the copies, then settles. */
  async #remove(batch: readonly InHand[]): Promise<void> {
    if (batch.length === 0) return;
    const { place, verdict, tally, tell } = this.#parts;
    const kept = await this.#keep(batch);
    await Promise.all(
      kept.map(async ({ taken }) => {
        const settled = await place.letters.settle(taken, verdict);
        if (isAway(settled)) {
          this.#away += 1;
          tally[settled.kind === 'done' ? 'removed' : 'gone'] += 1;
        } else this.#fail(taken, settled.reason);
      }),
    );
    tell(this.#away, this.#left.size);
  }

  /** All in one write; where one of them is too much for the store, one by one. */
  async #keep(batch: readonly InHand[]): Promise<readonly InHand[]> {
    const copies = batch.flatMap(({ copy }) => (copy === undefined ? [] : [copy]));
    if (copies.length === 0) return batch;
    const { operator } = this.#parts;
    try {
      await operator.keep(copies);
      return batch;
    } catch (error) {
      if (!isUnkept(error)) throw error;
    }
    const kept: InHand[] = [];
    for (const one of batch) {
      try {
        if (one.copy !== undefined) await operator.keep([one.copy]);
        kept.push(one);
      } catch (error) {
        await this.#leave(one.taken, error);
      }
    }
    return kept;
  }

  /** n.b. Not only passed over: what is in hand takes the room of the next ones. */
  async #leave(letter: TakenLetter, error: unknown): Promise<void> {
    if (!isUnkept(error)) throw error;
    this.#fail(letter, textOf(error));
    await this.#parts.place.letters.settle(letter, { kind: 'leave' });
  }

  #fail({ letter }: TakenLetter, why: string): void {
    const { tally } = this.#parts;
    this.#left.add(letter.key);
    tally.failed += 1;
    if (tally.failures.length < FAILURES_TOLD) tally.failures.push({ id: letter.id, why });
  }
}

function bytesOf(batch: readonly InHand[]): number {
  return batch.reduce((sum, { taken }) => sum + taken.letter.size, 0);
}

function isAway(
  settled: SettleResult,
): settled is SettleResult & { readonly kind: 'done' | 'gone' } {
  return settled.kind === 'done' || settled.kind === 'gone';
}

/** What is wrong with one message, and with no other. */
function isUnkept(error: unknown): boolean {
  return isRespoolError(error, 'limit.exceeded') || isRespoolError(error, 'message.invalid');
}
