/** A NATS server of one test whose data can be brought back to what it was, as after a power cut. */

import { chmod, cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { thisMachine } from '../../../scripts/services/machine.ts';
import { fetchNats } from '../../../scripts/services/nats.ts';
import { type PrivateServer, privateServer } from '../../services/index.ts';

/** A server that is started again with older data. */
export interface RewindableServer extends AsyncDisposable {
  readonly url: string;
  /** Kills it, keeps a copy of what it has, and starts it again. */
  save(): Promise<void>;
  /** Kills it, puts the copy in the place of what it has, and starts it again. */
  goBack(): Promise<void>;
  /** As `goBack`, with no data at all. */
  loseAll(): Promise<void>;
}

/** Starts one; of the program that the tests use, unless another is named. */
export async function rewindableServer(command?: string): Promise<RewindableServer> {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-rewind-'));
  const program = command ?? (await fetchNats(thisMachine()))['nats-server'] ?? '';
  // It leaves the path of its configuration: the streams are beside that.
  const wrapper = path.join(folder, 'nats-server');
  const config = path.join(folder, 'config');
  const lines = ['#!/bin/sh', `[ "$1" = -c ] && printf %s "$2" > '${config}'`];
  await writeFile(wrapper, [...lines, `exec '${program}' "$@"`, ''].join('\n'));
  await chmod(wrapper, 0o700);
  const server = await privateServer('nats', { env: { RESPOOL_TEST_NATS_BIN: wrapper } });
  const streams = path.join(path.dirname(await readFile(config, 'utf8')), 'streams');
  const copy = path.join(folder, 'copy');
  const whileDown = (act: () => Promise<void>) => restarted(server, act);
  return {
    url: server.url,
    save: () => whileDown(() => cp(streams, copy, { recursive: true, preserveTimestamps: true })),
    goBack: () =>
      whileDown(async () => {
        await rm(streams, { recursive: true });
        await cp(copy, streams, { recursive: true, preserveTimestamps: true });
      }),
    loseAll: () => whileDown(() => rm(streams, { recursive: true })),
    async [Symbol.asyncDispose]() {
      await server.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function restarted(server: PrivateServer, act: () => Promise<void>): Promise<void> {
  await server.kill('SIGKILL');
  await act();
  await server.restart();
}
