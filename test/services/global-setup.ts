/**
 * global-setup — gives the tests their servers: starts nothing itself, and ends all that was started.
 *
 * A small broker listens while the tests run. The first test that asks for a server makes it start a
 * keeper (scripts/services), unless one stands already (`npm run services -- up`). When the run
 * ends, in whatever way, the keeper ends with it.
 */

import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { standingDoor, startKeeper, type StartedKeeper } from '../../scripts/services/link.ts';
import { isAlive } from '../../scripts/services/processes.ts';
import { BROKER_VARIABLE } from './broker.ts';

/** Followed by the id of the process whose door it is. */
const FOLDER_PREFIX = 'respool-broker-';

/** Called by vitest before the first test; what it returns is called after the last. */
export async function setup(): Promise<() => Promise<void>> {
  const { door, stop } = await startBroker(() => startKeeper('owned'));
  process.env[BROKER_VARIABLE] = door;
  return stop;
}

/** A door that leads to a keeper, which is started when somebody knocks. */
export async function startBroker(
  start: () => Promise<StartedKeeper>,
  findStanding: () => Promise<string | undefined> = standingDoor,
): Promise<{ readonly door: string; readonly stop: () => Promise<void> }> {
  sweepBrokers();
  const dir = mkdtempSync(path.join(tmpdir(), `${FOLDER_PREFIX}${process.pid}-`));
  const door = path.join(dir, 'door');
  const removeDoor = (): void => rmSync(dir, { recursive: true, force: true });
  // A run that is interrupted does not come to its teardown.
  process.once('exit', removeDoor);
  let keeper: Promise<StartedKeeper> | undefined;
  const sockets = new Set<Socket>();

  const doorOfKeeper = async (): Promise<string> => {
    const standing = keeper === undefined ? await findStanding() : undefined;
    if (standing !== undefined) return standing;
    keeper ??= start();
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
  const stop = async (): Promise<void> => {
    broker.close();
    for (const socket of sockets) socket.destroy();
    if (keeper !== undefined) await (await keeper).end();
    removeDoor();
    process.off('exit', removeDoor);
  };
  return { door, stop };
}

/** Removes the doors of runs that were killed. */
function sweepBrokers(): void {
  for (const name of readdirSync(tmpdir())) {
    const [, pid] = name.startsWith(FOLDER_PREFIX) ? (/-(\d+)-\w+$/.exec(name) ?? []) : [];
    if (pid === undefined || isAlive(Number(pid))) continue;
    rmSync(path.join(tmpdir(), name), { recursive: true, force: true });
  }
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
