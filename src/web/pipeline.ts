/**
 * pipeline — one request of a connection at a time: the next one is read when the answer to the one
 * before has been handed to the socket.
 *
 *   socket ─▶ Pipeline.follow: head by head ─▶ Node's parser ─▶ request ─▶ handled, or waits
 *
 * n.b. Node parses all requests of a piece it has read, up to 64 KiB, and a pause takes hold only
 * after that: thousands of requests of each connection would be in memory. So the piece is cut
 * behind each head, and the parser gets the next part when no request waits.
 */

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Requests of one connection that wait for the answer to another: one, and some more where a head
 * was cut in the middle of its end. Past it the connection ends.
 */
const WAITING_MAX = 4;
const HEAD_END = '\r\n\r\n';

/** Requests that wait for their turn, by connection. */
export class Pipeline {
  readonly #lines = new Map<Socket, Line>();

  /** Cuts what comes over a new connection, which Node's server listens to already. */
  follow(socket: Socket): void {
    const line = new Line(socket);
    this.#lines.set(socket, line);
    socket.once('close', () => this.#lines.delete(socket));
  }

  /** Handles a request when the answer `before` it is out. */
  wait(socket: Socket, before: ServerResponse, handle: () => void): void {
    this.#lines.get(socket)?.wait(before, handle);
  }
}

/** What comes over one connection. */
class Line {
  readonly #socket: Socket;
  readonly #parse: ((part: Buffer) => void)[];
  #unparsed: Buffer | undefined;
  #waiting = 0;

  constructor(socket: Socket) {
    this.#socket = socket;
    this.#parse = socket.listeners('data') as ((part: Buffer) => void)[];
    socket.removeAllListeners('data');
    socket.on('data', (piece: Buffer) => {
      this.#unparsed =
        this.#unparsed === undefined ? piece : Buffer.concat([this.#unparsed, piece]);
      this.#goOn();
    });
    socket.on('resume', () => this.#goOn());
  }

  wait(before: ServerResponse, handle: () => void): void {
    if (this.#waiting >= WAITING_MAX) {
      this.#socket.destroy();
      return;
    }
    this.#waiting += 1;
    this.#socket.pause();
    before.once('close', () => {
      this.#waiting -= 1;
      if (this.#socket.destroyed) return;
      handle();
      if (this.#waiting === 0) this.#socket.resume();
    });
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
      const end = headEnd(piece);
      this.#unparsed = end === piece.byteLength ? undefined : piece.subarray(end);
      const part = piece.subarray(0, end);
      for (const parse of this.#parse) parse.call(socket, part);
    }
    if (this.#unparsed !== undefined) socket.pause();
  }
}

/** Where the first head ends, if another one ends behind it; else all of it. */
function headEnd(piece: Buffer): number {
  const first = piece.indexOf(HEAD_END, 0, 'latin1');
  if (first < 0) return piece.byteLength;
  const end = first + HEAD_END.length;
  return piece.indexOf(HEAD_END, end, 'latin1') < 0 ? piece.byteLength : end;
}
