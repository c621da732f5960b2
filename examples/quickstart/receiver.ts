/**
 * The other side of `npm start`: a receiver as they are in real life. It takes most messages,
 * is overloaded for the first attempts of some, broken for others, and refuses the rest.
 */

import { createServer, type Server } from 'node:http';
import { text } from 'node:stream/consumers';

/** Starts it on a free port of this machine. */
export async function startReceiver(): Promise<{ readonly server: Server; readonly port: number }> {
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      const attempt = Number(request.headers['respool-attempt']);
      response.writeHead(answer(body, attempt)).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return { server, port: address.port };
}

function answer(message: string, attempt: number): number {
  if (message.includes('busy') && attempt < 3) return 503;
  if (message.includes('down')) return 500;
  if (message.includes('gone')) return 410;
  return 200;
}
