/**
 * seal-entry — an entry as it lies in a sealed store, and back.
 *
 *   headers ─▶ { $sealed: text }            codes, fingerprint ─▶ tokens
 *   notes, history, because, failure ─▶ notes { $sealed: text }; what a store asks of them is blank
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
type Secrets = Pick<Status, 'because' | 'lastFailure'> & Partial<Pick<Status, 'history' | 'notes'>>;

/** A status that was opened, by its notes, which are an object of its own. */
interface Known {
  readonly id: string;
  readonly sealed: string;
  readonly because: Because | undefined;
  readonly lastFailure: Failure | undefined;
  readonly history: Status['history'];
}

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
    if (isEmpty(envelope.headers)) return envelope;
    const text = this.#cipher.seal(headersOf(envelope.id), JSON.stringify(envelope.headers));
    return { ...envelope, headers: { [SEALED_NAME]: text } };
  }

  sealStatus(status: Status, id: string): Status {
    const { because, lastFailure, history, notes } = status;
    if (!hidesAny(status)) return status;
    // JSON leaves out what is undefined.
    const text =
      this.#stillSealed(status, id) ??
      this.#cipher.seal(
        statusOf(id),
        JSON.stringify({
          because,
          lastFailure,
          history: history.length === 0 ? undefined : history,
          notes: isEmpty(notes) ? undefined : notes,
        }),
      );
    return {
      ...status,
      history: NO_HISTORY,
      notes: { [SEALED_NAME]: text },
      ...(because === undefined ? {} : { because: this.#blankBecause(because) }),
      ...(lastFailure === undefined ? {} : { lastFailure: this.#blankFailure(lastFailure) }),
    };
  }

  /** Opens an entry whose keys are there or known to be missing; throws why it does not open. */
  open(stored: Entry, missing: MissingKeys): Entry {
    const { envelope, status } = stored;
    const { id } = envelope;
    const sealedHeaders = sealedIn(envelope.headers);
    const sealedStatus = sealedIn(status.notes);
    const isOld =
      this.#isOld(sealedHeaders, !isEmpty(envelope.headers)) ||
      this.#isOld(sealedStatus, hidesAny(status));
    if (sealedHeaders === undefined && sealedStatus === undefined) {
      if (isOld) this.#old.add(stored);
      return stored;
    }
    const entry = {
      ...stored,
      envelope:
        sealedHeaders === undefined
          ? envelope
          : { ...envelope, headers: this.#read<Headers>(headersOf(id), sealedHeaders, missing) },
      status: sealedStatus === undefined ? status : this.#openStatus(stored, sealedStatus, missing),
    };
    if (isOld) this.#old.add(entry);
    return entry;
  }

  /** Whether an entry that was handed out lies there otherwise than it would be written now. */
  isOld(entry: Entry): boolean {
    return this.#old.has(entry);
  }

  #openStatus({ envelope, status }: Entry, sealed: string, missing: MissingKeys): Status {
    const { id } = envelope;
    const secrets = this.#read<Secrets>(statusOf(id), sealed, missing);
    const { because: shown, lastFailure: _blank, ...rest } = status;
    const isHeld = isHeldHere(status);
    const because = isHeld ? shown : secrets.because;
    const { lastFailure, history = NO_HISTORY, notes = {} } = secrets;
    const isPrimary = keyIdOf(sealed) === this.#cipher.primary;
    if (isPrimary && !isHeld) {
      this.#known.set(notes, { id, sealed, because, lastFailure, history });
    }
    return {
      ...rest,
      ...(because === undefined ? {} : { because }),
      ...(lastFailure === undefined ? {} : { lastFailure }),
      history,
      notes,
    };
  }

  /**
   * The text that the very same secrets were opened from. A heartbeat or a release changes none of
   * them: it need not pay for the cipher, and a store that compares finds nothing to write.
   */
  #stillSealed({ notes, because, lastFailure, history }: Status, id: string): string | undefined {
    const known = this.#known.get(notes);
    const isSame =
      known !== undefined &&
      known.id === id &&
      known.because === because &&
      known.lastFailure === lastFailure &&
      known.history === history;
    return isSame ? known.sealed : undefined;
  }

  #read<T>(place: SealPlace, sealed: string, missing: MissingKeys): T {
    const lacking = missing.get(keyIdOf(sealed));
    if (lacking !== undefined) throw lacking;
    return JSON.parse(this.#cipher.unseal(place, sealed)) as T;
  }

  #isOld(sealed: string | undefined, hides: boolean): boolean {
    return sealed === undefined ? hides : keyIdOf(sealed) !== this.#cipher.primary;
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

function hidesAny({ because, lastFailure, history, notes }: Status): boolean {
  return (
    because !== undefined || lastFailure !== undefined || history.length > 0 || !isEmpty(notes)
  );
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
