/**
 * shared-reads — a large answer that is the same for all clients: one copy in memory for all
 * readers, and one of each compressed form. Also answers of bytes that are in memory, which the
 * fetch API would copy.
 */

import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';

const WAYS = {
  br: (bytes: Uint8Array) =>
    promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } }),
  gzip: (bytes: Uint8Array) => promisify(gzip)(bytes),
} as const;
type Coding = keyof typeof WAYS;

/** The bytes of answers that are shared; the answer itself has no body. */
const BYTES = new WeakMap<Response, Uint8Array>();

/** A text for many. */
export class SharedText {
  readonly #bytes: Uint8Array;
  readonly #type: string;
  readonly #packed: Partial<Record<Coding, Promise<Uint8Array>>> = {};

  constructor(text: string, type: string) {
    this.#bytes = Buffer.from(text);
    this.#type = type;
  }

  /** The answer to a request, compressed if its client takes that. */
  async answer(request: Request): Promise<Response> {
    const coding = codingOf(request.headers.get('accept-encoding') ?? '');
    const bytes = coding === undefined ? this.#bytes : await this.#pack(coding);
    const headers = new Headers({ 'content-type': this.#type, vary: 'accept-encoding' });
    if (coding !== undefined) headers.set('content-encoding', coding);
    const answer = new Response(null, { headers });
    BYTES.set(answer, bytes);
    return answer;
  }

  #pack(coding: Coding): Promise<Uint8Array> {
    return (this.#packed[coding] ??= WAYS[coding](this.#bytes));
  }
}

/** Answers with bytes of their own, which count as what a client has not read yet. */
const OWN = new WeakSet<Response>();

/** An answer of bytes that are in memory, which the fetch API would copy twice. */
export function bytesAnswer(bytes: Uint8Array, type: string): Response {
  const answer = new Response(null, { headers: { 'content-type': type } });
  BYTES.set(answer, bytes);
  OWN.add(answer);
  return answer;
}

/** Whether the bytes of an answer are the same for all who read them. */
export function isShared(answer: Response): boolean {
  return BYTES.has(answer) && !OWN.has(answer);
}

/** The bytes of an answer that needs no copy, if it has some. */
export function sharedBytesOf(answer: Response): Uint8Array | undefined {
  return BYTES.get(answer);
}

/** The first of ours that the client names without refusing it. */
function codingOf(accepted: string): Coding | undefined {
  const named = new Map(
    accepted.split(',').map((part) => {
      const [name = '', ...parameters] = part.split(';').map((one) => one.trim().toLowerCase());
      return [name, !parameters.some((one) => /^q=0(?:\.0*)?$/.test(one))];
    }),
  );
  return (Object.keys(WAYS) as Coding[]).find((coding) => named.get(coding) === true);
}
