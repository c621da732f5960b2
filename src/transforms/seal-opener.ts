/**
 * seal-opener — stored entries opened by the batch, and what becomes of a claim whose entries do
 * not open.
 *
 *   damaged, or of another key ─▶ held, store.corrupt     key missing ─▶ held, key.unavailable
 *   key cannot be had now ─▶ given back, due a little later, so that others come first
 *
 * Held or given back, the attempt is not counted: no handler saw the message. A claim that had
 * only such entries fails, once for every outage that is found; then it is empty, so that whoever
 * claims goes on with what can be read.
 */

import type { Entry } from '../core/entry.ts';
import { RespoolError, textOf } from '../core/errors.ts';
import { reasonText } from '../core/failure.ts';
import { nextStatus, type SettleContext } from '../core/next-status.ts';
import { markHeld } from '../core/sealed.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Change, ClaimRequest, EntryStore } from '../ports/entry-store.ts';
import type { MissingKeys, SealCipher } from './seal-cipher.ts';
import { keyIdsOf, type SealedForm } from './seal-entry.ts';

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

/** What is given back is due again after this. */
const GIVEN_BACK_MS = 10_000;

const NOTHING_UNOPENED: readonly Unopened[] = [];

/** Opens what a store returns. */
export class SealOpener {
  readonly #inner: EntryStore;
  readonly #cipher: SealCipher;
  readonly #form: SealedForm;
  /** Outages that a claim failed with. */
  readonly #told = new WeakSet<RespoolError>();

  constructor(inner: EntryStore, cipher: SealCipher, form: SealedForm) {
    this.#inner = inner;
    this.#cipher = cipher;
    this.#form = form;
  }

  /** Opens entries; at once where their keys are there. */
  open(stored: readonly Entry[]): Opened | Promise<Opened> {
    return this.#openWith(stored, this.#cipher.need(keyIds(stored)));
  }

  /** Claims, until something opens or nothing is left that is due. */
  async claim(request: ClaimRequest): Promise<readonly Entry[]> {
    let outage: RespoolError | undefined;
    for (let round = 1; ; round += 1) {
      const taken = await this.#inner.claim(request);
      const { entries, unopened } = await this.#openWith(
        taken,
        this.#cipher.needSoon(keyIds(taken)),
      );
      if (unopened.length > 0) await this.#putAside(unopened, request);
      if (entries.length > 0) return entries;
      outage ??= unopened.find(({ error }) => isOutage(error) && !this.#told.has(error))?.error;
      if (taken.length === 0 || round === CLAIM_ROUNDS_MAX) break;
    }
    if (outage === undefined) return [];
    this.#told.add(outage);
    throw outage;
  }

  async #putAside(unopened: readonly Unopened[], request: ClaimRequest): Promise<void> {
    const later = unopened.filter(({ error }) => isOutage(error));
    const lasting = unopened.filter(({ error }) => !isOutage(error));
    const held = lasting.map(({ stored, error }) => {
      const because = { code: error.code, text: reasonText(error.message), by: 'engine' };
      return changeOf(stored, { kind: 'hold', because, costsAttempt: false }, request);
    });
    const givenBack = later.map(({ stored }) => givenBackOf(stored, request));
    // One that could not be put aside is met again when its lease is over.
    if (held.length > 0) await this.#inner.commit(held).catch(() => undefined);
    if (givenBack.length === 0) return;
    await this.#inner.commit(givenBack, { durable: false }).catch(() => undefined);
  }

  #openWith(
    stored: readonly Entry[],
    missing: MissingKeys | Promise<MissingKeys>,
  ): Opened | Promise<Opened> {
    if (!(missing instanceof Promise)) return this.#openAll(stored, missing);
    return missing.then((known) => this.#openAll(stored, known));
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
  if (isOutage(error)) return error;
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

/** Back where it was, but behind what is due now. */
function givenBackOf(stored: Entry, request: ClaimRequest): Change {
  const change = changeOf(stored, { kind: 'release' }, request);
  if (change.to === 'remove') return change;
  // What is not due yet is deferred, as when it comes in.
  const state = change.to.state === 'incoming' ? 'deferred' : change.to.state;
  return { ...change, to: { ...change.to, state, dueAt: request.now + GIVEN_BACK_MS } };
}

function isOutage(error: RespoolError): boolean {
  return error.code === 'store.unavailable';
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
  if (error instanceof RespoolError) return error;
  return new RespoolError('store.corrupt', textOf(error), { cause: error });
}
