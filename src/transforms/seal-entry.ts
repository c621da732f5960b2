/**
 * seal-entry — seals entries for the store and opens stored ones (`EntrySealer`); and opens the
 * batches that a store returns (`SealOpener`). Its `claim` holds or releases what does not open.
 *
 *   headers, destination ─▶ headers { $sealed: text }; the destination is a token
 *   notes, history, because, failure, policy, postponed, replays ─▶ notes { $sealed: text }; codes
 *     and fingerprint are tokens, all else of them is blank, null, 0 or `transient`
 *
 * Envelope and status are sealed separately: the envelope is not written again on every step. If
 * there is nothing to hide, nothing is sealed. A user's header or note cannot have `$` in its name,
 * so sealed entries are distinguished from plain ones. The stored form must stay readable.
 */

import type { Because, Entry, Envelope, Headers, Status } from '../core/entry.ts';
import { RespoolError, textOf } from '../core/errors.ts';
import { type Failure, reasonText } from '../core/failure.ts';
import { nextStatus, type SettleContext } from '../core/next-status.ts';
import { markReasonUnsealed, REASON_UNSEALED_NAME, SEALED_NAME } from '../core/reserved-headers.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Change, ClaimRequest, EntryStore } from '../ports/entry-store.ts';
import { keyIdOf, type MissingKeys, type SealCipher, type SealPlace } from './seal-cipher.ts';

/** The parts of a status that are sealed. */
type Secrets = Pick<Status, 'because' | 'lastFailure'> &
  Partial<Pick<Status, 'history' | 'notes' | 'policy' | 'postponed' | 'replays'>>;

/** A status that was opened; found by its notes, which are a new object each time. */
interface OpenedStatus {
  readonly id: string;
  readonly sealed: string;
  readonly because: Because | undefined;
  readonly lastFailure: Failure | undefined;
  readonly history: Status['history'];
  readonly policy: string | null;
  readonly postponed: number;
  readonly replays: number;
}

/** The name of the destination among the headers in their sealed text. */
const DESTINATION_NAME = '$destination';
const NO_HISTORY: Status['history'] = Object.freeze([]);

/** Seals entries and opens them. */
export class EntrySealer {
  readonly #cipher: SealCipher;
  readonly #openedStatuses = new WeakMap<Headers, OpenedStatus>();
  /** Entries that were returned, and are stored plain, partly plain or sealed with another key. */
  readonly #outdated = new WeakSet<Entry>();

  constructor(cipher: SealCipher) {
    this.#cipher = cipher;
  }

  sealEntry(entry: Entry): Entry {
    const envelope = this.sealEnvelope(entry.envelope);
    return { ...entry, envelope, status: this.sealStatus(entry.status, entry.envelope.id) };
  }

  sealEnvelope(envelope: Envelope): Envelope {
    const { id, headers, destination } = envelope;
    if (!hasEnvelopeSecrets(envelope)) return envelope;
    const secrets =
      destination === undefined ? headers : { ...headers, [DESTINATION_NAME]: destination };
    const text = this.#cipher.seal(headersPlace(id), JSON.stringify(secrets));
    const sealed = { ...envelope, headers: { [SEALED_NAME]: text } };
    if (destination === undefined) return sealed;
    return { ...sealed, destination: this.#cipher.token('destination', destination) };
  }

  sealStatus(status: Status, id: string): Status {
    if (!hasStatusSecrets(status)) return status;
    const { because, lastFailure } = status;
    const text =
      this.#sameSealedText(status, id) ??
      this.#cipher.seal(statusPlace(id), JSON.stringify(secretsOf(status)));
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

  /** Opens an entry whose keys are loaded or known to be missing; throws if it does not open. */
  open(stored: Entry, missing: MissingKeys): Entry {
    const { envelope, status } = stored;
    const sealedEnvelope = sealedIn(envelope.headers);
    const sealedStatus = sealedIn(status.notes);
    if (sealedEnvelope === undefined && sealedStatus === undefined) {
      if (hasEnvelopeSecrets(envelope) || hasStatusSecrets(status)) this.#outdated.add(stored);
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
    const isOutdated =
      this.#isOutdated(
        sealedEnvelope,
        sealedEnvelope === undefined ? hasEnvelopeSecrets(envelope) : isShown,
      ) ||
      this.#isOutdated(
        sealedStatus,
        sealedStatus === undefined ? hasStatusSecrets(status) : hasPlainCounts(status),
      );
    if (isOutdated) this.#outdated.add(entry);
    return entry;
  }

  /** Whether an entry that was returned is stored differently from how it would be written now. */
  isOutdated(entry: Entry): boolean {
    return this.#outdated.has(entry);
  }

  #openEnvelope(envelope: Envelope, sealed: string, missing: MissingKeys): Envelope {
    const secrets = this.#unseal<Headers>(headersPlace(envelope.id), sealed, missing);
    // Sealed by an earlier version, which left the destination as it is.
    if (!Object.hasOwn(secrets, DESTINATION_NAME)) return { ...envelope, headers: secrets };
    const { [DESTINATION_NAME]: destination = '', ...headers } = secrets;
    return { ...envelope, headers, destination };
  }

  #openStatus({ envelope, status }: Entry, sealed: string, missing: MissingKeys): Status {
    const { id } = envelope;
    const secrets = this.#unseal<Secrets>(statusPlace(id), sealed, missing);
    const { because: shown, lastFailure: _blank, ...rest } = status;
    const isHeld = isReasonUnsealed(status);
    const because = isHeld ? shown : secrets.because;
    const { lastFailure, history = NO_HISTORY, notes = {} } = secrets;
    // Plain text was left by an earlier version, or written by a process without the seal.
    const policy = status.policy ?? secrets.policy ?? null;
    const postponed = status.postponed + (secrets.postponed ?? 0);
    const replays = status.replays + (secrets.replays ?? 0);
    const isPrimary = keyIdOf(sealed) === this.#cipher.primary;
    if (isPrimary && !isHeld && !hasPlainCounts(status)) {
      const counts = { policy, postponed, replays };
      this.#openedStatuses.set(notes, { id, sealed, because, lastFailure, history, ...counts });
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
   * The sealed text that these secrets were opened from, if none has changed. A heartbeat or a
   * release changes none: it saves the encryption, and a store that compares has nothing to write.
   */
  #sameSealedText(status: Status, id: string): string | undefined {
    const known = this.#openedStatuses.get(status.notes);
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

  #unseal<T>(place: SealPlace, sealed: string, missing: MissingKeys): T {
    const lacking = missing.get(keyIdOf(sealed));
    if (lacking !== undefined) throw lacking;
    return JSON.parse(this.#cipher.unseal(place, sealed)) as T;
  }

  #isOutdated(sealed: string | undefined, shows: boolean): boolean {
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

/** The ids of the keys that a stored entry is sealed with; none if that cannot be read. */
export function keyIdsOf({ envelope, status }: Entry): readonly string[] {
  return [sealedIn(envelope.headers), sealedIn(status.notes)].flatMap((sealed) => {
    const id = sealed === undefined ? undefined : tryKeyIdOf(sealed);
    return id === undefined ? [] : [id];
  });
}

/** The id of the key that a stored envelope is sealed with; undefined if it is not sealed. */
export function envelopeKeyOf({ headers }: Envelope): string | undefined {
  const sealed = sealedIn(headers);
  return sealed === undefined ? undefined : tryKeyIdOf(sealed);
}

/** The id of the key that a stored status is sealed with; undefined if it is not sealed. */
export function statusKeyOf({ notes }: Status): string | undefined {
  const sealed = sealedIn(notes);
  return sealed === undefined ? undefined : tryKeyIdOf(sealed);
}

/** Whether `because` of a stored status is plain although the status is sealed. */
export function isReasonUnsealed({ notes }: Status): boolean {
  return Object.hasOwn(notes, REASON_UNSEALED_NAME);
}

function tryKeyIdOf(sealed: string): string | undefined {
  try {
    return keyIdOf(sealed);
  } catch (error) {
    // Opening it reports the error; here only key ids are collected.
    if (error instanceof RespoolError) return undefined;
    throw error;
  }
}

function sealedIn(headers: Headers): string | undefined {
  // A string only by its type: stored data may be damaged.
  return Object.hasOwn(headers, SEALED_NAME) ? textOf(headers[SEALED_NAME]) : undefined;
}

function hasEnvelopeSecrets({ headers, destination }: Envelope): boolean {
  return destination !== undefined || !isEmpty(headers);
}

function hasStatusSecrets(status: Status): boolean {
  const { because, lastFailure, history, notes } = status;
  return (
    because !== undefined ||
    lastFailure !== undefined ||
    history.length > 0 ||
    hasPlainCounts(status) ||
    !isEmpty(notes)
  );
}

/** Whether a status has a policy or counters unencrypted, which no store needs. */
function hasPlainCounts({ policy, postponed, replays }: Status): boolean {
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

function headersPlace(id: string): SealPlace {
  return ['message', id, 'headers'];
}

function statusPlace(id: string): SealPlace {
  return ['message', id, 'status'];
}

// Opening batches of stored entries, and claims whose entries do not open.
//
//   damaged, or of another key ─▶ held, store.corrupt     key missing ─▶ held, key.unavailable
//   key cannot be fetched now ─▶ released, due a little later, so that others come first
//
// Neither counts the attempt: no handler saw the message. A claim that finds nothing else fails if
// a key cannot be fetched now, once for every outage; later ones are empty, so that the engine
// continues with readable entries. A list or `get` holds and releases nothing.

/** A stored entry that does not open, and why. */
interface Unopened {
  readonly stored: Entry;
  readonly error: RespoolError;
}

/** An opened batch, in its order. */
interface Opened {
  readonly entries: readonly Entry[];
  readonly unopened: readonly Unopened[];
}

/** Maximum number of rounds of a claim that finds only entries that do not open. */
const CLAIM_ROUNDS_MAX = 20;

/**
 * When a released entry is due again. Also in docs/reference/threats.md and
 * test/transforms/seal-outage.test.ts.
 */
const RELEASE_DELAY_MS = 10_000;

const NOTHING_UNOPENED: readonly Unopened[] = [];

/** Opens what a store returns. */
export class SealOpener {
  readonly #inner: EntryStore;
  readonly #cipher: SealCipher;
  readonly #form: EntrySealer;
  /** Outages that a claim has failed with already. */
  readonly #reported = new WeakSet<RespoolError>();

  constructor(inner: EntryStore, cipher: SealCipher, form: EntrySealer) {
    this.#inner = inner;
    this.#cipher = cipher;
    this.#form = form;
  }

  /** Opens entries; synchronous if their keys are loaded. */
  open(stored: readonly Entry[]): Opened | Promise<Opened> {
    return this.#openWith(stored, this.#cipher.loadKeys(keyIds(stored)));
  }

  /** Claims until an entry opens or nothing more is due. */
  async claim(request: ClaimRequest): Promise<readonly Entry[]> {
    let outage: RespoolError | undefined;
    for (let round = 1; ; round += 1) {
      const taken = await this.#inner.claim(request);
      const { entries, unopened } = await this.#openWith(
        taken,
        this.#cipher.loadKeysSoon(keyIds(taken)),
      );
      if (unopened.length > 0) await this.#holdOrRelease(unopened, request);
      if (entries.length > 0) return entries;
      outage ??= unopened.find(({ error }) => isOutage(error) && !this.#reported.has(error))?.error;
      if (taken.length === 0 || round === CLAIM_ROUNDS_MAX) break;
    }
    if (outage === undefined) return [];
    this.#reported.add(outage);
    throw outage;
  }

  async #holdOrRelease(unopened: readonly Unopened[], request: ClaimRequest): Promise<void> {
    const later = unopened.filter(({ error }) => isOutage(error));
    const lasting = unopened.filter(({ error }) => !isOutage(error));
    const held = lasting.map(({ stored, error }) => {
      const because = { code: error.code, text: reasonText(error.message), by: 'engine' };
      return changeOf(stored, { kind: 'hold', because, costsAttempt: false }, request);
    });
    const givenBack = later.map(({ stored }) => releaseChange(stored, request));
    // If the commit fails, the entries are claimed again when their leases are over.
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
        unopened.push({ stored: one, error: asRespoolError(error) });
      }
    }
    return { entries, unopened: unopened ?? NOTHING_UNOPENED };
  }
}

/** The error of `get` for an entry that does not open. */
export function unopenedError({ stored, error }: Unopened): RespoolError {
  if (isOutage(error)) return error;
  const { id } = stored.envelope;
  return new RespoolError('store.corrupt', `cannot read entry "${id}": ${error.message}`, {
    cause: error,
  });
}

function changeOf({ envelope, status }: Entry, verdict: Verdict, request: ClaimRequest): Change {
  const context: SettleContext = {
    now: request.now,
    retention: UNUSED_RETENTION,
    announces: false,
  };
  const next = nextStatus({ envelope, status }, verdict, context);
  const to = next === 'remove' || verdict.kind !== 'hold' ? next : markReasonUnsealed(next);
  return { id: envelope.id, revision: status.revision, holder: request.holder, to };
}

/** Returns the entry to its former state, but due after other entries. */
function releaseChange(stored: Entry, request: ClaimRequest): Change {
  const change = changeOf(stored, { kind: 'release' }, request);
  if (change.to === 'remove') return change;
  // An entry that is not due yet is deferred, as after an enqueue.
  const state = change.to.state === 'incoming' ? 'deferred' : change.to.state;
  return { ...change, to: { ...change.to, state, dueAt: request.now + RELEASE_DELAY_MS } };
}

function isOutage(error: RespoolError): boolean {
  return error.code === 'store.unavailable';
}

// Only used for messages that end; neither a hold nor a release ends one.
const UNUSED_RETENTION: SettleContext['retention'] = {
  deliveredMs: 0,
  bouncedMs: null,
  removedMs: 0,
  dedupeWindowMs: 0,
};

function* keyIds(stored: readonly Entry[]): Generator<string> {
  for (const entry of stored) yield* keyIdsOf(entry);
}

/** An authentic text that is no JSON was written by a program with a bug, or by another one. */
function asRespoolError(error: unknown): RespoolError {
  if (error instanceof RespoolError) return error;
  return new RespoolError('store.corrupt', textOf(error), { cause: error });
}
