/**
 * stream — a stream of JetStream: guarded writes, reads, removals, as plain requests.
 *
 * Every write carries a token. When its answer is lost it is repeated with the same expected
 * sequence; if that is refused, the token of what is there shows whether the first one arrived. A
 * new message may be gone again by then, and nothing would refuse its repetition: code that writes
 * such messages says how to find out (PendingInserts). The server's own memory of repeated messages
 * is not used: it ends with the server process, and after a time.
 */

import { RespoolError, textOf } from '../../core/errors.ts';
import { BrokenConnection, type NatsMessage, type ServerConnection } from './connection.ts';

/** The header that tells which write made a message. */
export const TOKEN = 'Rs-Token';
const EXPECTED = 'Nats-Expected-Last-Subject-Sequence';
const WRONG_SEQUENCE = new Set([10_071, 10_164]);
/** No room: of the stream, of the account, on the disk. */
const FULL = new Set([10_023, 10_028, 10_047, 10_077]);
const NO_STREAM = 10_059;
const NOT_FOUND = new Set([10_037, 10_043]);
const DELETE_FAILED = 10_057;
/** The server is there, its JetStream is not yet; or it could not make a store at this moment. */
const NOT_YET = new Set([10_008, 10_049, 10_076]);
const TOO_LARGE = 10_054;

/** A message of the stream. */
export interface StoredMessage {
  readonly seq: number;
  readonly subject: string;
  readonly data: Uint8Array;
  /** When the server stored it, as ISO text. */
  readonly time: string;
  header(name: string): string;
}

/** What the server says of a stream. */
export interface StreamInfo {
  /** When the stream was made, as ISO text. */
  readonly created: string;
  readonly config: Readonly<Record<string, unknown>>;
  readonly state: {
    readonly last_seq: number;
    readonly bytes: number;
    readonly messages: number;
    readonly subjects?: Readonly<Record<string, number>>;
  };
  readonly cluster?: { readonly replicas?: readonly unknown[] };
  /** Of a list of subjects: how many there are in all. */
  readonly total?: number;
}

/** An error of the API. */
interface ApiError {
  readonly code: number;
  readonly err_code?: number;
  readonly description?: string;
}

/** One stream. */
export class Stream {
  readonly name: string;
  readonly line: ServerConnection;
  /** Reads ask the leader: with several replicas, others may be behind. */
  readsLeader = false;
  /** The highest sequence that the server has acknowledged to us. */
  writtenSeq = 0;
  /** A server of one replica whose machine failed uses sequences again after its restart. */
  restartsForget = false;
  /** When the stream that the server reported last was made, as ISO text. */
  created = '';

  constructor(line: ServerConnection, name: string) {
    this.line = line;
    this.name = name;
  }

  /**
   * Writes if the last message of the subject has this sequence (0: if there is none); the new
   * sequence, or undefined where another message was there.
   */
  async write(
    subject: string,
    data: Uint8Array | string,
    { token, expected, headers, findWritten }: WriteOptions,
  ): Promise<number | undefined> {
    const find = findWritten ?? (() => this.#findToken(subject, token));
    return this.line.persist(`write to "${this.name}"`, async (isRepeat) => {
      const former = isRepeat ? await findWritten?.() : undefined;
      if (former !== undefined) return former;
      const all = this.line.makeHeaders();
      all.set(TOKEN, token);
      if (expected !== undefined) all.set(EXPECTED, String(expected));
      for (const [name, value] of headers ?? []) all.set(name, value);
      const answer = parse(await this.line.ask(subject, data, all));
      const { seq, error } = answer as { readonly seq?: number; readonly error?: ApiError };
      if (error === undefined && seq !== undefined) {
        this.writtenSeq = Math.max(this.writtenSeq, seq);
        return seq;
      }
      if (!WRONG_SEQUENCE.has(error?.err_code ?? 0)) throw this.#refusal('write to', error);
      return isRepeat ? find() : undefined;
    });
  }

  /** The last message of a subject. */
  last(subject: string): Promise<StoredMessage | undefined> {
    if (this.readsLeader) return this.#getFromLeader({ last_by_subj: subject });
    return this.#getDirect(`.${subject}`, '');
  }

  /** The message of a sequence. */
  at(seq: number): Promise<StoredMessage | undefined> {
    return this.readsLeader
      ? this.#getFromLeader({ seq })
      : this.#getDirect('', JSON.stringify({ seq }));
  }

  /** The first message from a sequence on whose subject fits. */
  async next(subject: string, seq: number): Promise<StoredMessage | undefined> {
    const ask = { next_by_subj: subject, seq };
    const found = await this.#getDirect('', JSON.stringify(ask));
    // A replica that is behind may not have it yet.
    return found === undefined && this.readsLeader ? this.#getFromLeader(ask) : found;
  }

  /** Takes one message out by its sequence; false when it is not there. */
  async drop(seq: number): Promise<boolean> {
    const ask = { seq, no_erase: true };
    const { restarts } = this.line;
    const check = (): void => {
      if (!this.restartsForget || this.line.restarts === restarts) return;
      const what = `cannot take message ${seq} out of "${this.name}"`;
      const why = 'the server was started again, and it may be another one now; try again';
      throw new RespoolError('store.unavailable', `${what}: ${why}`);
    };
    return (await this.api('STREAM.MSG.DELETE', ask, isNotThere, check)) !== undefined;
  }

  /** Removes what fits and comes before a sequence. */
  async purge(filter: string, beforeSeq?: number): Promise<void> {
    await this.api('STREAM.PURGE', {
      filter,
      ...(beforeSeq === undefined ? {} : { seq: beforeSeq }),
    });
  }

  async info(ask: object = {}): Promise<StreamInfo | undefined> {
    const answer = await this.api('STREAM.INFO', ask, ({ err_code }) => err_code === NO_STREAM);
    const found = answer as StreamInfo | undefined;
    this.created = found?.created ?? this.created;
    return found;
  }

  /** A request about this stream; undefined for an error that is expected. `check` may refuse. */
  api(
    verb: string,
    ask: object,
    isExpected: (error: ApiError) => boolean = () => false,
    check: () => void = () => {},
  ): Promise<object | undefined> {
    const subject = `$JS.API.${verb}.${this.name}`;
    return this.line.persist(`ask NATS for ${verb} of "${this.name}"`, async () => {
      check();
      const answer = parse(await this.line.ask(subject, JSON.stringify(ask)));
      const { error } = answer as { readonly error?: ApiError };
      if (error === undefined) return answer;
      if (isExpected(error)) return undefined;
      throw this.#refusal(`ask for ${verb} of`, error);
    });
  }

  async #findToken(subject: string, token: string): Promise<number | undefined> {
    const there = await this.last(subject);
    return there?.header(TOKEN) === token ? there.seq : undefined;
  }

  #getDirect(suffix: string, ask: string): Promise<StoredMessage | undefined> {
    const subject = `$JS.API.DIRECT.GET.${this.name}${suffix}`;
    return this.line.persist(`read from "${this.name}"`, async () => {
      const { headers, data } = await this.line.ask(subject, ask);
      if (headers === undefined || headers.code === 404) return undefined;
      if (headers.code >= 400) {
        throw this.#refusal('read from', { code: headers.code, description: headers.description });
      }
      return {
        seq: Number(headers.get('Nats-Sequence')),
        subject: headers.get('Nats-Subject'),
        data,
        time: headers.get('Nats-Time-Stamp'),
        header: (name) => headers.get(name),
      };
    });
  }

  async #getFromLeader(ask: object): Promise<StoredMessage | undefined> {
    const answer = await this.api('STREAM.MSG.GET', ask, isNotThere);
    if (answer === undefined) return undefined;
    const { message } = answer as { readonly message: LeaderMessage };
    const lines = Buffer.from(message.hdrs ?? '', 'base64')
      .toString('utf8')
      .split('\r\n');
    return {
      seq: message.seq,
      subject: message.subject,
      data: Buffer.from(message.data ?? '', 'base64'),
      time: message.time,
      header: (name) =>
        lines
          .find((text) => text.startsWith(`${name}:`))
          ?.slice(name.length + 1)
          .trim() ?? '',
    };
  }

  #refusal(doing: string, error: ApiError | undefined): Error {
    const number = error?.err_code ?? 0;
    const text = `${error?.description ?? 'no reason'} (${number})`;
    if (NOT_YET.has(number)) return new BrokenConnection(text);
    const what = `cannot ${doing} "${this.name}": NATS says ${text}`;
    if (FULL.has(number) || /maximum|insufficient|no space/i.test(text)) {
      return new RespoolError('store.full', `${what}; make room, or raise its limits`);
    }
    if (number === TOO_LARGE) return new RespoolError('limit.exceeded', what);
    return new RespoolError('store.unavailable', what);
  }
}

/** Older servers tell by the text alone that there was nothing to take out. */
function isNotThere({ err_code: number = 0, description = '' }: ApiError): boolean {
  return (
    NOT_FOUND.has(number) || (number === DELETE_FAILED && /no message|not found/.test(description))
  );
}

/** The guard of a write, and what goes along. */
export interface WriteOptions {
  /** Unique per write. */
  readonly token: string;
  /** The last sequence of the subject; undefined: whatever it is. */
  readonly expected?: number | undefined;
  readonly headers?: readonly (readonly [string, string])[];
  /** Asked around a repetition: the sequence to answer with when an earlier try arrived. */
  readonly findWritten?: () => Promise<number | undefined>;
}

interface LeaderMessage {
  readonly subject: string;
  readonly seq: number;
  readonly hdrs?: string;
  readonly data?: string;
  readonly time: string;
}

/** An answer of the API as an object. */
function parse(message: NatsMessage): object {
  try {
    const value: unknown = JSON.parse(Buffer.from(message.data).toString('utf8'));
    if (typeof value === 'object' && value !== null) return value;
  } catch (error) {
    throw new BrokenConnection(`an answer of NATS cannot be read: ${textOf(error)}`);
  }
  throw new BrokenConnection('an answer of NATS is no object');
}
