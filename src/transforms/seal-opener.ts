/**
 * seal-opener — stored entries opened by the batch, and what becomes of a claim whose entries do
 * not open.
 *
 *   damaged, or of another key ─▶ held, store.corrupt     key missing ─▶ held, key.unavailable
 *   keys cannot be had now ─▶ the whole claim goes back, and the call fails
 *
 * Held or given back, the attempt is not counted: no handler saw the message.
 */

import type { Entry } from '../core/entry.ts';
import { isRespoolError, RespoolError, textOf } from '../core/errors.ts';
import { reasonText } from '../core/failure.ts';
import { nextStatus, type SettleContext } from '../core/next-status.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Change, ClaimRequest, EntryStore } from '../ports/entry-store.ts';
import type { MissingKeys, SealCipher } from './seal-cipher.ts';
import { keyIdsOf, markHeld, type SealedForm } from './seal-entry.ts';

/** A stored entry that does not open, and why. */
export interface Unopened {
  readonly stored: Entry;
  readonly error: RespoolError;
}

/** What became of a batch, in its order. */
export interface Opened {
  readonly entries: readonly Entry[];
  readonly unopened: readonly Unopened[];
}

/** Rounds of a claim that finds nothing but what does not open. */
const CLAIM_ROUNDS_MAX = 20;

const NOTHING_UNOPENED: readonly Unopened[] = [];

/** Opens what a store returns. */
export class SealOpener {
  readonly #inner: EntryStore;
  readonly #cipher: SealCipher;
  readonly #form: SealedForm;

  constructor(inner: EntryStore, cipher: SealCipher, form: SealedForm) {
    this.#inner = inner;
    this.#cipher = cipher;
    this.#form = form;
  }

  /** Opens entries; at once where their keys are there. */
  open(stored: readonly Entry[]): Opened | Promise<Opened> {
    const missing = this.#cipher.need(keyIds(stored));
    if (!(missing instanceof Promise)) return this.#openAll(stored, missing);
    return missing.then((known) => this.#openAll(stored, known));
  }

  /** Claims, until something opens or nothing is left that is due. */
  async claim(request: ClaimRequest): Promise<readonly Entry[]> {
    for (let round = 1; ; round += 1) {
      const taken = await this.#inner.claim(request);
      const { entries, unopened } = await this.#openClaimed(taken, request);
      if (unopened.length > 0) await this.#hold(unopened, request);
      if (entries.length > 0 || taken.length === 0 || round === CLAIM_ROUNDS_MAX) return entries;
    }
  }

  async #openClaimed(taken: readonly Entry[], request: ClaimRequest): Promise<Opened> {
    try {
      return await this.open(taken);
    } catch (error) {
      // Nobody will hear of these entries. What cannot be given back is due when its lease ends.
      await this.#settle(taken, { kind: 'release' }, request).catch(() => undefined);
      throw error;
    }
  }

  async #hold(unopened: readonly Unopened[], request: ClaimRequest): Promise<void> {
    const changes = unopened.map(({ stored, error }) => {
      const because = { code: error.code, text: reasonText(error.message), by: 'engine' };
      return changeOf(stored, { kind: 'hold', because, costsAttempt: false }, request);
    });
    // One that could not be held is met again when its lease is over.
    await this.#inner.commit(changes).catch(() => undefined);
  }

  async #settle(
    taken: readonly Entry[],
    verdict: Verdict,
    request: ClaimRequest,
  ): Promise<unknown> {
    const changes = taken.map((stored) => changeOf(stored, verdict, request));
    return this.#inner.commit(changes, { durable: false });
  }

  #openAll(stored: readonly Entry[], missing: MissingKeys): Opened {
    const entries: Entry[] = [];
    let unopened: Unopened[] | undefined;
    for (const one of stored) {
      try {
        entries.push(this.#form.open(one, missing));
      } catch (error) {
        unopened ??= [];
        unopened.push({ stored: one, error: whyNot(error) });
      }
    }
    return { entries, unopened: unopened ?? NOTHING_UNOPENED };
  }
}

/** What `get` says of an entry that does not open. */
export function unreadable({ stored, error }: Unopened): RespoolError {
  const { id } = stored.envelope;
  return new RespoolError('store.corrupt', `cannot read entry "${id}": ${error.message}`, {
    cause: error,
  });
}

function changeOf({ envelope, status }: Entry, verdict: Verdict, request: ClaimRequest): Change {
  const context: SettleContext = { now: request.now, retention: FOR_EVER, announces: false };
  const next = nextStatus({ envelope, status }, verdict, context);
  const to = next === 'remove' || verdict.kind !== 'hold' ? next : markHeld(next);
  return { id: envelope.id, revision: status.revision, holder: request.holder, to };
}

// Asked only of what ends; neither a hold nor a release does.
const FOR_EVER: SettleContext['retention'] = {
  deliveredMs: 0,
  bouncedMs: null,
  removedMs: 0,
  dedupeWindowMs: 0,
};

function* keyIds(stored: readonly Entry[]): Generator<string> {
  for (const entry of stored) yield* keyIdsOf(entry);
}

/** What is authentic and yet no JSON was written by a program with a bug, or by another program. */
function whyNot(error: unknown): RespoolError {
  if (isRespoolError(error, 'store.corrupt') || isRespoolError(error, 'key.unavailable')) {
    return error;
  }
  return new RespoolError('store.corrupt', textOf(error), { cause: error });
}
