/**
 * delivery — one attempt as the handler sees it. Built by the engine, once per attempt.
 *
 * What goes wrong with the body is remembered here, so that a damaged body holds the message even
 * when the handler swallows the error (invariant 11), and a store that is away is not taken for a
 * failure of the handler.
 */

import type { Envelope, Headers } from '../core/entry.ts';
import { type ErrorCode, isRespoolError, RespoolError, textOf } from '../core/errors.ts';
import type { Failure } from '../core/failure.ts';
import { HEADER_NAME_PATTERN } from '../core/limits.ts';
import type { Lane } from '../core/state.ts';
import type { Delivery } from '../ports/handler.ts';
import type { SchemaIssue, StandardSchema } from '../ports/schema.ts';
import type { Claim, Source } from '../ports/source.ts';
import { readWhole, WHOLE_HOLDS_BYTES } from '../system/memory.ts';

/** The largest body that `body()`, `text()` and `json()` hold in memory unless told otherwise. */
export const WHOLE_BODY_MAX_BYTES: number = 64 * 2 ** 20;
/** What one attempt may note. */
export const NOTES_MAX = 64;
export const NOTE_VALUE_MAX_CHARS = 4_096;

/** What is wrong with a body until somebody does something about it. */
const LASTING: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'body.missing',
  'body.corrupt',
  'key.unavailable',
  'transform.missing',
  'peer.missing',
]);

const decoder = new TextDecoder('utf-8', { fatal: true });

/** The body cannot be what the handler needs: held, not retried. */
export class BodyInvalid extends Error {
  override readonly name = 'BodyInvalid';
  readonly code = 'body.invalid';
}

/** The delivery handed to a handler. */
export class EngineDelivery implements Delivery {
  readonly #claim: Claim;
  readonly #source: Source;
  #abort: AbortController | undefined;
  #whole: Promise<Uint8Array> | undefined;
  #value: { readonly value: unknown } | undefined;
  #notes: Record<string, string> | undefined;
  /** Set when the stored body is missing, damaged or locked. */
  trouble: RespoolError | undefined;
  /** Set when the body could not be read for now, and was not read to its end since. */
  outage: RespoolError | undefined;
  /** Set where somebody writes spans. */
  trace: Headers | undefined;

  constructor(claim: Claim, source: Source) {
    this.#claim = claim;
    this.#source = source;
  }

  get id(): string {
    return this.#claim.id;
  }
  get envelope(): Envelope {
    return this.#claim.envelope;
  }
  get topic(): string {
    return this.#claim.envelope.topic;
  }
  get headers(): Headers {
    return this.#claim.envelope.headers;
  }
  get lane(): Lane {
    return this.#claim.lane;
  }
  get attempt(): number {
    return this.#claim.attempt;
  }
  get fence(): string {
    return this.#claim.fence;
  }
  get lastFailure(): Failure | undefined {
    return this.#claim.lastFailure;
  }
  get notes(): Headers {
    return this.#claim.notes;
  }

  get signal(): AbortSignal {
    // Made when it is first asked for: most handlers of small messages never do.
    this.#abort ??= new AbortController();
    return this.#abort.signal;
  }

  /** Aborts the signal; a handler that asks for it later finds it aborted. */
  abort(reason: Error): void {
    this.#abort ??= new AbortController();
    this.#abort.abort(reason);
  }

  /** What the handler noted in this attempt. */
  get noted(): Headers | undefined {
    return this.#notes;
  }

  async body(options: { readonly maxBytes?: number } = {}): Promise<Uint8Array> {
    const maxBytes = options.maxBytes ?? WHOLE_BODY_MAX_BYTES;
    const { size } = this.#claim.envelope.body;
    if (size > maxBytes) {
      await this.#readPast(maxBytes);
      throw new RespoolError(
        'limit.exceeded',
        `cannot read the body of message "${this.id}" whole: it has ${size} bytes, allowed are ` +
          `${maxBytes}; use stream(), or body({ maxBytes })`,
      );
    }
    this.#whole ??= this.#readWhole();
    return this.#whole;
  }

  async *stream(): AsyncIterable<Uint8Array> {
    try {
      yield* this.#source.body(this.#claim);
      this.outage = undefined;
    } catch (error) {
      throw this.#remember(error);
    }
  }

  async text(): Promise<string> {
    try {
      return decoder.decode(await this.body());
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      throw new BodyInvalid(`the body of message "${this.id}" is not UTF-8 text`, { cause: error });
    }
  }

  async json(): Promise<unknown> {
    if (this.#value !== undefined) return this.#value.value;
    const text = await this.text();
    try {
      this.#value = { value: JSON.parse(text) as unknown };
    } catch (error) {
      throw new BodyInvalid(`the body of message "${this.id}" is not JSON`, { cause: error });
    }
    return this.#value.value;
  }

  /** Fits the JSON body to a schema; `json()` then gives what the schema made of it. */
  async fit(schema: StandardSchema): Promise<void> {
    const result = await schema['~standard'].validate(await this.json());
    if (result.issues !== undefined) {
      throw new BodyInvalid(
        `the body of message "${this.id}" does not fit its schema: ${describe(result.issues)}`,
      );
    }
    this.#value = { value: result.value };
  }

  note(name: string, value: string): void {
    const notes = (this.#notes ??= {});
    const isNew = !Object.hasOwn(notes, name);
    if (isNew && Object.keys(notes).length >= NOTES_MAX) {
      throw new RespoolError('limit.exceeded', `cannot note "${name}": ${NOTES_MAX} notes at most`);
    }
    const fits =
      HEADER_NAME_PATTERN.test(name) && name !== '__proto__' && typeof value === 'string';
    if (!fits) {
      throw new RespoolError(
        'message.invalid',
        `cannot note ${JSON.stringify(name)}: a name has 1 to 128 of A-Z a-z 0-9 . _ -, ` +
          'a value is a string',
      );
    }
    notes[name] = value.slice(0, NOTE_VALUE_MAX_CHARS);
  }

  /** Finds out a damaged record: whoever says too many bytes would use up the attempts. */
  async #readPast(maxBytes: number): Promise<void> {
    let bytes = 0;
    for await (const part of this.stream()) {
      bytes += part.byteLength;
      if (bytes > maxBytes) return;
    }
  }

  async #readWhole(): Promise<Uint8Array> {
    try {
      const atHand = this.#source.bytes?.(this.#claim);
      // Awaited only where it has to be, and inside the try: what it fails with is remembered.
      if (atHand !== undefined) return atHand instanceof Promise ? await atHand : atHand;
      const { size } = this.#claim.envelope.body;
      return await readWhole(this.#source.body(this.#claim, WHOLE_HOLDS_BYTES), size);
    } catch (error) {
      throw this.#remember(error);
    }
  }

  #remember(error: unknown): unknown {
    if (isRespoolError(error) && LASTING.has(error.code)) this.trouble = error;
    if (isRespoolError(error, 'store.unavailable')) this.outage = error;
    return error;
  }
}

function describe(issues: readonly SchemaIssue[]): string {
  return issues
    .slice(0, 5)
    .map((issue) => {
      const path = (issue.path ?? []).map((part) =>
        String(typeof part === 'object' ? part.key : part),
      );
      return path.length === 0 ? textOf(issue.message) : `${path.join('.')}: ${issue.message}`;
    })
    .join('; ');
}
