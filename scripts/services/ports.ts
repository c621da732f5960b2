/**
 * ports — free TCP ports on loopback, none handed out twice by one process.
 */

import { createServer } from 'node:net';

const handedOut = new Set<number>();

/** A port that is free now. Whoever takes it must be ready for somebody having been quicker. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = await new Promise<number>((resolve, reject) => {
      const server = createServer();
      server.once('error', reject);
      server.listen(0, '127.0.0.1', () => {
        const address = server.address();
        const found = address === null || typeof address === 'string' ? 0 : address.port;
        server.close(() => resolve(found));
      });
    });
    if (handedOut.has(port)) continue;
    handedOut.add(port);
    return port;
  }
}
