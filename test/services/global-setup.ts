/**
 * global-setup — gives the tests their servers: starts nothing itself, and ends all that was started.
 *
 * A small broker listens while the tests run. The first test that asks for a server makes it start a
 * keeper (scripts/services), unless one stands already (`npm run services -- up`). When the run
 * ends, in whatever way, the keeper ends with it.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { standingDoor, startKeeper, type StartedKeeper } from '../../scripts/services/link.ts';
import { BROKER_VARIABLE } from './broker.ts';

/** Called by vitest before the first test; what it returns is called after the last. */
export async function setup(): Promise<() => Promise<void>> {
  const dir = mkdtempSync(path.join(tmpdir(), 'respool-broker-'));
  const door = path.join(dir, 'door');
  let keeper: Promise<StartedKeeper> | undefined;
  const sockets = new Set<Socket>();

  const doorOfKeeper = async (): Promise<string> => {
    const standing = keeper === undefined ? await standingDoor() : undefined;
    if (standing !== undefined) return standing;
    keeper ??= startKeeper('owned');
    return (await keeper).door;
  };

  const broker = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => sockets.delete(socket));
    doorOfKeeper().then(
      (at) => join(socket, connect(at)),
      () => socket.destroy(),
    );
  });
  await new Promise<void>((resolve) => broker.listen(door, resolve));
  broker.unref();
  process.env[BROKER_VARIABLE] = door;

  return async () => {
    broker.close();
    for (const socket of sockets) socket.destroy();
    if (keeper !== undefined) await (await keeper).end();
    rmSync(dir, { recursive: true, force: true });
  };
}

/** Lets two connections speak to each other; the end of one is the end of both. */
function join(one: Socket, other: Socket): void {
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.on('error', () => undefined);
    from.once('close', () => to.destroy());
    from.pipe(to);
    from.unref();
  }
}
