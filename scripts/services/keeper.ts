/**
 * keeper — the process that holds the test servers: starts each on its first ask, ends them all.
 *
 *   owned      ends with the process that started it: when its own standard input ends
 *   standing   ends when it is told to (`npm run services -- down`)
 *
 * It listens on a socket in its folder and answers lines of JSON (protocol.ts). A server that
 * belongs to one test file ends with that file's connection.
 */

import { createServer, type Socket } from 'node:net';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { cleanLeftovers, FolderLedger } from './ledger.ts';
import { familyOf, signalAll } from './processes.ts';
import type { Answer, Request } from './protocol.ts';
import { Servers } from './servers.ts';

const mode = process.argv[2];
await cleanLeftovers();
const ledger = new FolderLedger();
const servers = new Servers(ledger);
let ending: Promise<void> | undefined;

const door = path.join(ledger.dir, 'door');
const listener = createServer(serve);
listener.listen(door, () => {
  process.stdout.write(`${JSON.stringify({ door })}\n`);
});

// A terminal's Ctrl-C is not for us, and whoever started us may be gone while we write.
for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined);
process.once('SIGTERM', () => void end());
process.stdout.on('error', () => undefined);
if (mode === 'owned') {
  process.stdin.resume();
  process.stdin.once('end', () => void end());
  process.stdin.once('error', () => void end());
}

function serve(socket: Socket): void {
  const owner = {};
  socket.on('error', () => undefined);
  socket.once('close', () => void servers.endOwned(owner));
  createInterface({ input: socket }).on('line', (line) => {
    const request = JSON.parse(line) as Request;
    const answer = (rest: Omit<Answer, 'id'>): void => {
      if (socket.writable) socket.write(`${JSON.stringify({ id: request.id, ...rest })}\n`);
    };
    carryOut(request, owner, (news) => answer({ news })).then(
      (value) => answer({ value }),
      (error: unknown) => answer({ error: error instanceof Error ? error.message : String(error) }),
    );
  });
}

async function carryOut(
  { ask }: Request,
  owner: object,
  tell: (news: string) => void,
): Promise<unknown> {
  switch (ask.kind) {
    case 'url':
      return servers.urlOf(ask.service, tell);
    case 'status':
      return servers.status();
    case 'private':
      return servers.startOwned(owner, ask.server, { env: ask.env ?? {}, tell });
    case 'act':
      return servers.act(owner, ask.handle, ask.act);
    case 'down':
      break;
  }
  // The answer has to be on its way before the process ends.
  setImmediate(() => void end());
  return process.pid;
}

function end(): Promise<void> {
  ending ??= (async () => {
    listener.close();
    await servers.close();
    // What is still being set up: the tools of a server that is on its way.
    const rest = (await familyOf(process.pid)).filter(
      (pid) => pid !== process.pid && pid !== ledger.guardPid,
    );
    signalAll(rest, 'SIGKILL');
    await ledger.close();
    process.exit(0);
  })();
  return ending;
}
