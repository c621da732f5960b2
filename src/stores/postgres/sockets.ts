/**
 * sockets — connections that are gone soon after they were ended.
 *
 * Node's own socket waits for the other side to end, too. One whose way was forgotten by a router,
 * or whose server froze, never hears of it, and keeps a process that has stopped alive: for a
 * quarter of an hour, or for good.
 */

import { Socket } from 'node:net';
import type { Clock } from '../../ports/clock.ts';

/** How long the other side has to end a connection that we have ended. */
const ANSWER_MAX_MS = 2_000;

/** The sockets of one pool or one connection. */
export class Sockets {
  readonly #clock: Clock;
  readonly #open = new Set<Socket>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Makes a socket; what node-postgres calls for each connection. */
  readonly make = (): Socket => {
    const socket = new Socket();
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
    socket.once('finish', () => this.#dropSoon([socket]));
    return socket;
  };

  /**
   * Whoever uses them has ended them all. n.b. Under TLS a socket does not tell that it was ended:
   * that happens on the one around it.
   */
  ended(): void {
    this.#dropSoon([...this.#open]);
  }

  #dropSoon(sockets: readonly Socket[]): void {
    const left = new Set(sockets);
    if (left.size === 0) return;
    const cancel = this.#clock.after(ANSWER_MAX_MS, () => {
      for (const socket of left) socket.destroy();
    });
    for (const socket of sockets) {
      socket.once('close', () => {
        left.delete(socket);
        // Nobody waits for a timer that has nothing to do.
        if (left.size === 0) cancel();
      });
    }
  }
}
