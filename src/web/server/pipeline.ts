/**
 * pipeline — one request of a connection at a time: the next one is handled when the answer to the
 * one before has been handed to the socket, and nothing behind it is parsed before.
 *
 *   socket ─▶ Pipeline.follow: head by head ─▶ Node's parser ─▶ request ─▶ handled, or waits
 *
 * n.b. Node parses all requests of a piece it has read, up to 64 KiB, and a pause takes hold only
 * after that: thousands of requests of each connection would be in memory. So the piece is cut
 * behind each head, and the parser gets the next part when no request waits. Bodies of a known
 * length are not searched for heads.
 *
 * Long heads are parsed in turn, a few at once over all connections. Bytes of heads that have been
 * read and belong to no request yet are bounded over all connections.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../../ports/clock.ts';
import { countUnreleasedBytes, detachBuffer } from '../../system/memory.ts';

/**
 * Requests of one connection that wait for the answer to another; past it the connection ends.
 * Mostly one waits; several only where they were in one part of a chunked body.
 */
const WAITING_MAX = 32;
const HEAD_END = '\r\n\r\n';
const CHUNKED_END = '\r\n0\r\n\r\n';
/**
 * The end of a chunked body is not known before it is parsed: it is parsed in parts of at least
 * this size, so that blank lines in it cost little, and few requests fit behind its end.
 */
const CHUNKED_PART_BYTES = 256;
const [CR, LF] = [13, 10];
/** A head of at least this size is parsed in its turn. Also in docs/reference/http-api.md. */
const LONG_HEAD_BYTES = 4_096;
/**
 * Bytes that were read ahead of a request, or of half a head, of all connections. Also in
 * docs/reference/http-api.md.
 */
const AHEAD_MAX_BYTES = 8_388_608;
/** Below this a connection is not worth counting. Also in docs/reference/http-api.md. */
const COUNTED_MIN_BYTES = 4_096;

type Parse = (part: Buffer) => void;

interface Timing {
  readonly clock: Clock;
  readonly turns: Turns;
  readonly ahead: ReadAhead;
  readonly blankWithinMs: number;
}

/**
 * Requests and long heads that waited and are begun in one turn of the event loop, of all
 * connections. Also in docs/reference/http-api.md.
 */
const BEGUN_AT_ONCE = 8;

/**
 * n.b. Never at once: answers that are quick would follow each other without a turn of the event
 * loop, and no other connection would be read until this one has no request left. Nor all of them:
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

/** Counts what was read and is no request yet, of all connections. */
class ReadAhead {
  /** By the time since when they have had any, the longest ago first. */
  readonly #held = new Map<Socket, number>();
  #bytes = 0;

  /** So much of this connection is in memory; past the limit the longest waiting is ended. */
  hold(socket: Socket, bytes: number): void {
    if (socket.destroyed || bytes < COUNTED_MIN_BYTES) {
      this.release(socket);
      return;
    }
    this.#bytes += bytes - (this.#held.get(socket) ?? 0);
    this.#held.set(socket, bytes);
    for (const [oldest] of this.#held) {
      if (this.#bytes <= AHEAD_MAX_BYTES) return;
      countUnreleasedBytes(this.#held.get(oldest) ?? 0);
      this.release(oldest);
      oldest.destroy();
    }
  }

  release(socket: Socket): void {
    this.#bytes -= this.#held.get(socket) ?? 0;
    this.#held.delete(socket);
  }
}

const lines = new WeakMap<Socket, Line>();

/**
 * Throws away what is left of the body of a request, and all behind it: nothing else of this
 * connection is parsed. `onEnd` is called when the body is over, if that is known.
 */
export function discardRest(request: IncomingMessage, onEnd: () => void): void {
  lines.get(request.socket)?.discard(onEnd);
  // What has been parsed of it already.
  request.resume();
}

/** Requests that wait for their turn, by connection. */
export class Pipeline {
  readonly #timing: Timing;

  /** `blankWithinMs`: how long a connection may send only blank lines after an answer. */
  constructor(clock: Clock, blankWithinMs: number) {
    const turns = new Turns(clock);
    this.#timing = { clock, turns, ahead: new ReadAhead(), blankWithinMs };
  }

  /** Cuts what comes over a new connection, which Node's server listens to already. */
  follow(socket: Socket): void {
    const parse = socket.listeners('data') as Parse[];
    const line = new Line(socket, parse, this.#timing);
    lines.set(socket, line);
    socket.once('close', () => line.close());
  }

  /** Handles a request: at once, or when the answer `before` it is out. */
  handle(
    request: IncomingMessage,
    response: ServerResponse,
    before: ServerResponse | undefined,
    handle: () => void,
  ): void {
    const line = lines.get(request.socket);
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
  /** Bytes that were parsed of a head whose end has not come. */
  #headBytes = 0;
  /** A long head: `asked` waits for its turn, `begun` may be parsed. */
  #turn: 'none' | 'asked' | 'begun' = 'none';
  /** Bytes to come of a body of known length. */
  #bodyLeft = 0;
  /** The request whose body ends where the parser says so. */
  #unsized: IncomingMessage | undefined;
  #latest: ServerResponse | undefined;
  #callOffCut: (() => void) | undefined;
  /** Called at the end of a body that is thrown away. */
  #onDiscarded: (() => void) | undefined;

  constructor(socket: Socket, parse: readonly Parse[], timing: Timing) {
    this.#socket = socket;
    this.#parse = parse;
    this.#timing = timing;
    socket.removeAllListeners('data');
    socket.on('data', (piece: Buffer) => {
      if (this.#onDiscarded !== undefined) {
        this.#drop(piece, this.#onDiscarded);
        return;
      }
      if (piece[0] === CR || piece[0] === LF) this.#watchBlank(piece);
      this.#unparsed =
        this.#unparsed === undefined ? piece : Buffer.concat([this.#unparsed, piece]);
      this.#goOn();
    });
    socket.on('resume', () => this.#goOn());
  }

  /** The head of a request has been parsed. */
  begin(request: IncomingMessage, response: ServerResponse): void {
    this.#callOffBlank();
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

  discard(onEnd: () => void): void {
    this.#onDiscarded = onEnd;
    const rest = this.#unparsed;
    this.#unparsed = undefined;
    this.#timing.ahead.release(this.#socket);
    if (rest !== undefined) this.#drop(rest, onEnd);
    this.#socket.resume();
  }

  /** n.b. Given back at once: V8 lets tens of megabytes gather before it looks for dead buffers. */
  #drop(piece: Buffer, onEnd: () => void): void {
    const isSized = this.#unsized === undefined;
    this.#bodyLeft = Math.max(0, this.#bodyLeft - piece.byteLength);
    const kept = CHUNKED_END.length;
    this.#tail = (this.#tail + piece.toString('latin1', Math.max(0, piece.length - kept))).slice(
      -kept,
    );
    detachBuffer(piece);
    if (isSized ? this.#bodyLeft === 0 : this.#tail === CHUNKED_END) onEnd();
  }

  /** The connection is gone. */
  close(): void {
    this.#callOffBlank();
    this.#unparsed = undefined;
    this.#timing.ahead.release(this.#socket);
  }

  #callOffBlank(): void {
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

  /** Parses until a request has to wait, or until the reader of a body wants no more of it now. */
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
      if (this.#turn !== 'begun' && this.#isLongHead(piece)) {
        this.#askForTurn();
        break;
      }
      this.#turn = 'none';
      const end = this.#partEnd(piece);
      this.#unparsed = end === piece.byteLength ? undefined : piece.subarray(end);
      const part = piece.subarray(0, end);
      for (const parse of this.#parse) parse.call(socket, part);
    }
    if (this.#unparsed !== undefined) {
      socket.pause();
      this.#unparsed = compact(this.#unparsed);
    }
    // n.b. A paused socket reads one piece more before it stops.
    const ahead = this.#isInBody() ? 0 : 2 * (this.#unparsed?.byteLength ?? 0);
    this.#timing.ahead.hold(socket, ahead + this.#headBytes);
  }

  #isInBody(): boolean {
    return this.#bodyLeft > 0 || this.#unsized?.complete === false;
  }

  #isLongHead(piece: Buffer): boolean {
    if (piece.byteLength < LONG_HEAD_BYTES || this.#isInBody()) return false;
    return (headEnd(this.#tail, piece) ?? piece.byteLength) >= LONG_HEAD_BYTES;
  }

  #askForTurn(): void {
    if (this.#turn === 'asked') return;
    this.#turn = 'asked';
    this.#timing.turns.wait(() => {
      this.#turn = 'begun';
      countUnreleasedBytes(this.#unparsed?.byteLength ?? 0);
      if (!this.#socket.destroyed) this.#socket.resume();
    });
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
    this.#headBytes = isBody || found !== undefined ? 0 : this.#headBytes + size;
    const kept = HEAD_END.length - 1;
    this.#tail = (this.#tail + piece.toString('latin1', Math.max(0, end - kept), end)).slice(-kept);
    return end;
  }
}

/** A copy, if most of the memory behind these bytes has been parsed. */
function compact(bytes: Buffer): Buffer {
  if (bytes.byteLength * 2 > bytes.buffer.byteLength) return bytes;
  const copy = Buffer.allocUnsafeSlow(bytes.byteLength);
  bytes.copy(copy);
  return copy;
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
