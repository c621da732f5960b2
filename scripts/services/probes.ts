/**
 * probes — whether a server answers, asked in its own protocol with nothing but Node.
 */

import { connect } from 'node:net';

const PROBE_TIMEOUT_MS = 2_000;

/** Whether an HTTP server answers with one of these codes. */
export async function answersHttp(
  url: string,
  {
    codes,
    headers,
  }: { readonly codes: readonly number[]; readonly headers?: Record<string, string> },
): Promise<boolean> {
  try {
    const response = await fetch(url, {
      signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
      ...(headers === undefined ? {} : { headers }),
    });
    await response.arrayBuffer();
    return codes.includes(response.status);
  } catch {
    return false;
  }
}

/** Whether a port on loopback, or a socket's file, gives these bytes when it was sent some. */
export function answersTcp(
  at: number | string,
  { send, expect }: { readonly send: Uint8Array; readonly expect: RegExp },
): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = typeof at === 'string' ? connect(at) : connect({ port: at, host: '127.0.0.1' });
    let text = '';
    const end = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(PROBE_TIMEOUT_MS, () => end(false));
    socket.once('error', () => end(false));
    socket.once('close', () => resolve(false));
    socket.once('connect', () => {
      socket.write(send);
    });
    socket.on('data', (bytes: Buffer) => {
      text += bytes.toString('latin1');
      if (expect.test(text)) end(true);
    });
  });
}

/**
 * What a client of PostgreSQL says first. A server that is up asks for a password (R) or lets in;
 * one that still starts answers with an error (E).
 */
function postgresHello(user: string, database: string): Uint8Array {
  const words = `user\0${user}\0database\0${database}\0\0`;
  const hello = Buffer.alloc(8 + words.length);
  hello.writeUInt32BE(hello.byteLength, 0);
  hello.writeUInt32BE(196_608, 4);
  hello.write(words, 8, 'latin1');
  return hello;
}

/** Whether a PostgreSQL, or a pgbouncer, lets clients come to their password. */
export function answersPostgres(port: number): Promise<boolean> {
  return answersTcp(port, { send: postgresHello('postgres', 'postgres'), expect: /^R/ });
}
