/**
 * pipeline — one request of a connection at a time: the next one is read when the answer to the one
 * before has been handed to the socket.
 *
 *   socket ─▶ Pipeline.follow: head by head ─▶ Node's parser ─▶ request ─▶ handled, or waits
 *
 * n.b. Node parses all requests of a piece it has read, up to 64 KiB, and a pause takes hold only
 * after that: thousands of requests of each connection would be in memory. So the piece is cut
 * behind each head, and the parser gets the next part when no request waits. Bodies of a known
 * length are not searched for heads.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../../ports/clock.ts';

/** Requests of one connection that wait for the answer to another; past it the connection ends. */
const WAITING_MAX = 32;
const HEAD_END = '\r\n\r\n';
/**
 * The end of a chunked body is not known before it is parsed: it is parsed in parts of at least
 * this size, so that blank lines in it cost little, and few requests fit behind its end.
 */
const CHUNKED_PART_BYTES = 256;
const [CR, LF] = [13, 10];

type Parse = (part: Buffer) => void;

interface Timing {
  readonly clock: Clock;
  readonly turns: Turns;
  readonly blankWithinMs: number;
}

/** Requests that waited and are begun in one turn of the event loop, of all connections. */
const BEGUN_AT_ONCE = 8;

/**
 * n.b. Never at once: answers that are quick would follow each other without a turn of the event
 * loop, and nobody else would be heard until one connection has no request left. Nor all of them:
 * with hundreds of connections a turn would take as long.
 */
class Turns {
  readonly #clock: Clock;
  #waiting: (() => void)[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  wait(go: () => void): void {
    this.#waiting.push(go);
    if (this.#waiting.length === 1) this.#clock.soon(() => this.#go());
  }

  #go(): void {
    const turn = this.#waiting.splice(0, BEGUN_AT_ONCE);
    if (this.#waiting.length > 0) this.#clock.soon(() => this.#go());
    for (const go of turn) go();
  }
}

/** Requests that wait for their turn, by connection. */
export class Pipeline {
  readonly #lines = new Map<Socket, Line>();
  readonly #turns: Turns;
  readonly #clock: Clock;
  readonly #blankWithinMs: number;

  /** `blankWithinMs`: how long a connection may send only blank lines after an answer. */
  constructor(clock: Clock, blankWithinMs: number) {
    this.#clock = clock;
    this.#turns = new Turns(clock);
    this.#blankWithinMs = blankWithinMs;
  }

  /** Cuts what comes over a new connection, which Node's server listens to already. */
  follow(socket: Socket): void {
    const parse = socket.listeners('data') as Parse[];
    const line = new Line(socket, parse, {
      clock: this.#clock,
      turns: this.#turns,
      blankWithinMs: this.#blankWithinMs,
    });
    this.#lines.set(socket, line);
    socket.once('close', () => {
      this.#lines.delete(socket);
      line.close();
    });
  }

  /** Handles a request: at once, or when the answer `before` it is out. */
  handle(
    request: IncomingMessage,
    response: ServerResponse,
    before: ServerResponse | undefined,
    handle: () => void,
  ): void {
    const line = this.#lines.get(request.socket);
    line?.begin(request, response);
    if (before === undefined) handle();
    else line?.wait(before, handle);
  }
}

/** What comes over one connection. */
class Line {
  readonly #socket: Socket;
  readonly #parse: readonly Parse[];
  readonly #timing: Timing;
  #unparsed: Buffer | undefined;
  #waiting = 0;
  /** The end of the part that was parsed last: the end of a head may be spread over two. */
  #tail = '';
  /** The part that is being parsed ends where a head does. */
  #isHead = false;
  /** Bytes to come of a body of known length. */
  #bodyLeft = 0;
  /** The request whose body ends where the parser says so. */
  #unsized: IncomingMessage | undefined;
  #latest: ServerResponse | undefined;
  #callOffCut: (() => void) | undefined;

  constructor(socket: Socket, parse: readonly Parse[], timing: Timing) {
    this.#socket = socket;
    this.#parse = parse;
    this.#timing = timing;
    socket.removeAllListeners('data');
    socket.on('data', (piece: Buffer) => {
      if (piece[0] === CR || piece[0] === LF) this.#watchBlank(piece);
      this.#unparsed =
        this.#unparsed === undefined ? piece : Buffer.concat([this.#unparsed, piece]);
      this.#goOn();
    });
    socket.on('resume', () => this.#goOn());
  }

  /** The head of a request has been parsed. */
  begin(request: IncomingMessage, response: ServerResponse): void {
    this.close();
    this.#latest = response;
    this.#unsized = undefined;
    const length = Number(request.headers['content-length'] ?? 0);
    const isSized = request.headers['transfer-encoding'] === undefined;
    if (isSized && this.#isHead) this.#bodyLeft = length;
    else if (!isSized || length > 0) this.#unsized = request;
  }

  wait(before: ServerResponse, handle: () => void): void {
    if (this.#waiting >= WAITING_MAX) {
      this.#socket.destroy();
      return;
    }
    this.#waiting += 1;
    this.#socket.pause();
    const go = (): void => {
      this.#waiting -= 1;
      if (this.#socket.destroyed) return;
      handle();
      if (this.#waiting === 0) this.#socket.resume();
    };
    before.once('close', () => this.#timing.turns.wait(go));
  }

  /** No timer runs any more. */
  close(): void {
    this.#callOffCut?.();
    this.#callOffCut = undefined;
  }

  /**
   * n.b. Blank lines before a head are no part of it: Node neither counts them as the beginning of
   * a request nor the connection as idle, and they could go on for ever.
   */
  #watchBlank(piece: Buffer): void {
    const isBetween = this.#latest?.writableFinished === true;
    if (!isBetween || this.#callOffCut !== undefined) return;
    if (!piece.every((byte) => byte === CR || byte === LF)) return;
    const { clock, blankWithinMs } = this.#timing;
    this.#callOffCut = clock.after(blankWithinMs, () => this.#socket.destroy());
  }

  /** Parses until a request has to wait, or until who reads a body wants no more of it now. */
  #goOn(): void {
    const socket = this.#socket;
    // n.b. Node resumes by itself when it throws away a body that was not asked for.
    if (this.#waiting > 0) socket.pause();
    while (
      this.#unparsed !== undefined &&
      this.#waiting === 0 &&
      !socket.isPaused() &&
      !socket.destroyed
    ) {
      const piece: Buffer = this.#unparsed;
      const end = this.#partEnd(piece);
      this.#unparsed = end === piece.byteLength ? undefined : piece.subarray(end);
      const part = piece.subarray(0, end);
      for (const parse of this.#parse) parse.call(socket, part);
    }
    if (this.#unparsed !== undefined) socket.pause();
  }

  /** How much of a piece is parsed at once. */
  #partEnd(piece: Buffer): number {
    const size = piece.byteLength;
    this.#isHead = false;
    if (this.#bodyLeft > 0) {
      const end = Math.min(this.#bodyLeft, size);
      this.#bodyLeft -= end;
      this.#tail = '';
      return end;
    }
    const isBody = this.#unsized?.complete === false;
    const found = isBody ? endIn(piece, CHUNKED_PART_BYTES) : headEnd(this.#tail, piece);
    const end = found ?? size;
    this.#isHead = !isBody && found !== undefined;
    const kept = HEAD_END.length - 1;
    this.#tail = (this.#tail + piece.toString('latin1', Math.max(0, end - kept), end)).slice(-kept);
    return end;
  }
}

/** Where the first head ends, which may have begun to end in the part before. */
function headEnd(tail: string, piece: Buffer): number | undefined {
  const seam = tail === '' ? -1 : (tail + piece.toString('latin1', 0, 3)).indexOf(HEAD_END);
  return seam < 0 ? endIn(piece, 0) : seam + HEAD_END.length - tail.length;
}

function endIn(piece: Buffer, from: number): number | undefined {
  const at = piece.indexOf(HEAD_END, from, 'latin1');
  return at < 0 ? undefined : at + HEAD_END.length;
}
