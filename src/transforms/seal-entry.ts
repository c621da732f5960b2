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
import type { Failure } from '../core/failure.ts';
import { HELD_NAME, SEALED_NAME } from '../core/sealed.ts';
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
    // In the clear is what an earlier version left there, or somebody without the seal added.
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
  return Object.hasOwn(notes, HELD_NAME);
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
