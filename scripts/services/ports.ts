/**
 * ports — free TCP ports on loopback, none handed out twice by one process.
 *
 * Below those that the system gives to outgoing connections: a server that is down for a moment
 * must find its port free when it is started again.
 */

import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

const FIRST_PORT = 12_000;
const LAST_PORT = 32_000;

const handedOut = new Set<number>();

/** A port that is free now. Anyone who takes it must expect that another process was quicker. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(FIRST_PORT, LAST_PORT);
    if (handedOut.has(port) || !(await isFree(port))) continue;
    handedOut.add(port);
    return port;
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}
