/**
 * seal-entry — an entry as it lies in a sealed store, and back.
 *
 *   headers, destination ─▶ headers { $sealed: text }; the destination is a token
 *   notes, history, because, failure, policy, postponed, replays ─▶ notes { $sealed: text }; codes
 *     and fingerprint are tokens, all else of them is blank, null or 0
 *
 * Envelope and status are sealed apart: the envelope is not written again on every step. Where
 * there is nothing to hide, nothing is sealed. `$` cannot be in the name of a header or note, so
 * what is not sealed yet is told from what is.
 */

import type { Because, Entry, Envelope, Headers, Status } from '../core/entry.ts';
import { RespoolError, textOf } from '../core/errors.ts';
import { type Failure, reasonText } from '../core/failure.ts';
import { nextStatus, type SettleContext } from '../core/next-status.ts';
import { markSealedHere, SEALED_HERE_NAME, SEALED_NAME } from '../core/reserved-headers.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Change, ClaimRequest, EntryStore } from '../ports/entry-store.ts';
import { keyIdOf, type MissingKeys, type SealCipher, type SealPlace } from './seal-cipher.ts';

/** What a status has to hide. */
type Secrets = Pick<Status, 'because' | 'lastFailure'> &
  Partial<Pick<Status, 'history' | 'notes' | 'policy' | 'postponed' | 'replays'>>;

/** A status that was opened, by its notes, which are an object of its own. */
interface Known {
  readonly id: string;
  readonly sealed: string;
  readonly because: Because | undefined;
  readonly lastFailure: Failure | undefined;
  readonly history: Status['history'];
  readonly policy: string | null;
  readonly postponed: number;
  readonly replays: number;
}

/** Stands among the headers in their sealed text. */
const DESTINATION_NAME = '$destination';
const NO_HISTORY: Status['history'] = Object.freeze([]);

/** Seals entries and opens them. */
export class SealedForm {
  readonly #cipher: SealCipher;
  readonly #known = new WeakMap<Headers, Known>();
  /** Handed out, and not sealed with the primary key, or not at all. */
  readonly #old = new WeakSet<Entry>();

  constructor(cipher: SealCipher) {
    this.#cipher = cipher;
  }

  sealEntry(entry: Entry): Entry {
    const envelope = this.sealEnvelope(entry.envelope);
    return { ...entry, envelope, status: this.sealStatus(entry.status, entry.envelope.id) };
  }

  sealEnvelope(envelope: Envelope): Envelope {
    const { id, headers, destination } = envelope;
    if (!hidesEnvelope(envelope)) return envelope;
    const secrets =
      destination === undefined ? headers : { ...headers, [DESTINATION_NAME]: destination };
    const text = this.#cipher.seal(headersOf(id), JSON.stringify(secrets));
    const sealed = { ...envelope, headers: { [SEALED_NAME]: text } };
    if (destination === undefined) return sealed;
    return { ...sealed, destination: this.#cipher.token('destination', destination) };
  }

  sealStatus(status: Status, id: string): Status {
    if (!hidesStatus(status)) return status;
    const { because, lastFailure } = status;
    const text =
      this.#stillSealed(status, id) ??
      this.#cipher.seal(statusOf(id), JSON.stringify(secretsOf(status)));
    return {
      ...status,
      policy: null,
      postponed: 0,
      replays: 0,
      history: NO_HISTORY,
      notes: { [SEALED_NAME]: text },
      ...(because === undefined ? {} : { because: this.#blankBecause(because) }),
      ...(lastFailure === undefined ? {} : { lastFailure: this.#blankFailure(lastFailure) }),
    };
  }

  /** Opens an entry whose keys are there or known to be missing; throws why it does not open. */
  open(stored: Entry, missing: MissingKeys): Entry {
    const { envelope, status } = stored;
    const sealedEnvelope = sealedIn(envelope.headers);
    const sealedStatus = sealedIn(status.notes);
    if (sealedEnvelope === undefined && sealedStatus === undefined) {
      if (hidesEnvelope(envelope) || hidesStatus(status)) this.#old.add(stored);
      return stored;
    }
    const entry = {
      ...stored,
      envelope:
        sealedEnvelope === undefined
          ? envelope
          : this.#openEnvelope(envelope, sealedEnvelope, missing),
      status: sealedStatus === undefined ? status : this.#openStatus(stored, sealedStatus, missing),
    };
    const { destination } = entry.envelope;
    const isShown = destination !== undefined && destination === envelope.destination;
    const isOld =
      this.#isOld(
        sealedEnvelope,
        sealedEnvelope === undefined ? hidesEnvelope(envelope) : isShown,
      ) ||
      this.#isOld(sealedStatus, sealedStatus === undefined ? hidesStatus(status) : isTold(status));
    if (isOld) this.#old.add(entry);
    return entry;
  }

  /** Whether an entry that was handed out lies there otherwise than it would be written now. */
  isOld(entry: Entry): boolean {
    return this.#old.has(entry);
  }

  #openEnvelope(envelope: Envelope, sealed: string, missing: MissingKeys): Envelope {
    const secrets = this.#read<Headers>(headersOf(envelope.id), sealed, missing);
    // Sealed by an earlier version, which left the destination as it is.
    if (!Object.hasOwn(secrets, DESTINATION_NAME)) return { ...envelope, headers: secrets };
    const { [DESTINATION_NAME]: destination = '', ...headers } = secrets;
    return { ...envelope, headers, destination };
  }

  #openStatus({ envelope, status }: Entry, sealed: string, missing: MissingKeys): Status {
    const { id } = envelope;
    const secrets = this.#read<Secrets>(statusOf(id), sealed, missing);
    const { because: shown, lastFailure: _blank, ...rest } = status;
    const isHeld = isHeldHere(status);
    const because = isHeld ? shown : secrets.because;
    const { lastFailure, history = NO_HISTORY, notes = {} } = secrets;
    // Plain text was left by an earlier version, or written by a process without the seal.
    const policy = status.policy ?? secrets.policy ?? null;
    const postponed = status.postponed + (secrets.postponed ?? 0);
    const replays = status.replays + (secrets.replays ?? 0);
    const isPrimary = keyIdOf(sealed) === this.#cipher.primary;
    if (isPrimary && !isHeld && !isTold(status)) {
      const counts = { policy, postponed, replays };
      this.#known.set(notes, { id, sealed, because, lastFailure, history, ...counts });
    }
    return {
      ...rest,
      ...(because === undefined ? {} : { because }),
      ...(lastFailure === undefined ? {} : { lastFailure }),
      history,
      notes,
      policy,
      postponed,
      replays,
    };
  }

  /**
   * The text that the very same secrets were opened from. A heartbeat or a release changes none of
   * them: it need not pay for the cipher, and a store that compares finds nothing to write.
   */
  #stillSealed(status: Status, id: string): string | undefined {
    const known = this.#known.get(status.notes);
    const isSame =
      known !== undefined &&
      known.id === id &&
      known.because === status.because &&
      known.lastFailure === status.lastFailure &&
      known.history === status.history &&
      known.policy === status.policy &&
      known.postponed === status.postponed &&
      known.replays === status.replays;
    return isSame ? known.sealed : undefined;
  }

  #read<T>(place: SealPlace, sealed: string, missing: MissingKeys): T {
    const lacking = missing.get(keyIdOf(sealed));
    if (lacking !== undefined) throw lacking;
    return JSON.parse(this.#cipher.unseal(place, sealed)) as T;
  }

  #isOld(sealed: string | undefined, shows: boolean): boolean {
    return shows || (sealed !== undefined && keyIdOf(sealed) !== this.#cipher.primary);
  }

  #blankBecause({ code }: Because): Because {
    return { code: this.#cipher.token('code', code), text: '', by: '' };
  }

  #blankFailure({ code, fingerprint }: Failure): Failure {
    return {
      permanence: 'transient',
      code: this.#cipher.token('code', code),
      reason: '',
      fingerprint: this.#cipher.token('fingerprint', fingerprint),
    };
  }
}

/** The ids of the keys that an entry as stored is sealed with; none where that cannot be read. */
export function keyIdsOf({ envelope, status }: Entry): readonly string[] {
  return [sealedIn(envelope.headers), sealedIn(status.notes)].flatMap((sealed) => {
    const id = sealed === undefined ? undefined : tryKeyIdOf(sealed);
    return id === undefined ? [] : [id];
  });
}

/** The id of the key that a stored envelope is sealed with; undefined where it is not sealed. */
export function envelopeKeyOf({ headers }: Envelope): string | undefined {
  const sealed = sealedIn(headers);
  return sealed === undefined ? undefined : tryKeyIdOf(sealed);
}

/** The id of the key that a stored status is sealed with; undefined where it is not sealed. */
export function statusKeyOf({ notes }: Status): string | undefined {
  const sealed = sealedIn(notes);
  return sealed === undefined ? undefined : tryKeyIdOf(sealed);
}

/** Whether `because` of a stored status is in the clear although the status is sealed. */
export function isHeldHere({ notes }: Status): boolean {
  return Object.hasOwn(notes, SEALED_HERE_NAME);
}

function tryKeyIdOf(sealed: string): string | undefined {
  try {
    return keyIdOf(sealed);
  } catch (error) {
    // Opening it tells; here only the names of keys are gathered.
    if (error instanceof RespoolError) return undefined;
    throw error;
  }
}

function sealedIn(headers: Headers): string | undefined {
  // A text by its type only: what lies in the store may have been damaged.
  return Object.hasOwn(headers, SEALED_NAME) ? textOf(headers[SEALED_NAME]) : undefined;
}

function hidesEnvelope({ headers, destination }: Envelope): boolean {
  return destination !== undefined || !isEmpty(headers);
}

function hidesStatus(status: Status): boolean {
  const { because, lastFailure, history, notes } = status;
  return (
    because !== undefined ||
    lastFailure !== undefined ||
    history.length > 0 ||
    isTold(status) ||
    !isEmpty(notes)
  );
}

/** Whether a status says in the clear what no store asks for. */
function isTold({ policy, postponed, replays }: Status): boolean {
  return policy !== null || postponed !== 0 || replays !== 0;
}

/** For JSON, which leaves out what is undefined. */
function secretsOf(status: Status): Record<keyof Secrets, unknown> {
  const { because, lastFailure, history, notes, policy, postponed, replays } = status;
  return {
    because,
    lastFailure,
    history: history.length === 0 ? undefined : history,
    notes: isEmpty(notes) ? undefined : notes,
    policy: policy ?? undefined,
    postponed: postponed === 0 ? undefined : postponed,
    replays: replays === 0 ? undefined : replays,
  };
}

function isEmpty(headers: Headers): boolean {
  return Object.keys(headers).length === 0;
}

function headersOf(id: string): SealPlace {
  return ['message', id, 'headers'];
}

function statusOf(id: string): SealPlace {
  return ['message', id, 'status'];
}

// Stored entries opened by the batch, and what becomes of a claim whose entries do
// not open.
//
//   damaged, or of another key ─▶ held, store.corrupt     key missing ─▶ held, key.unavailable
//   key cannot be had now ─▶ given back, due a little later, so that others come first
//
// Held or given back, the attempt is not counted: no handler saw the message. A claim that had
// only such entries fails, once for every outage that is found; then it is empty, so that the
// engine goes on with what can be read.

/** A stored entry that does not open, and why. */
interface Unopened {
  readonly stored: Entry;
  readonly error: RespoolError;
}

/** What became of a batch, in its order. */
interface Opened {
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
    return missing.then((item) => this.#openAll(stored, item));
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
  const to = next === 'remove' || verdict.kind !== 'hold' ? next : markSealedHere(next);
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
