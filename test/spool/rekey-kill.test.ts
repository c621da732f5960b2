/** A process that dies while it rekeys, on SQLite and files: no body is lost, whenever it was. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSpool, type Spool } from 'respool';
import { encrypt } from 'respool/transforms';
import { expect, test } from 'vitest';
import { bytesOf } from './setup.ts';

const CHILD = join(import.meta.dirname, 'rekey-kill-child.ts');
const keys = { k1: Buffer.alloc(32, 1), k2: Buffer.alloc(32, 2) };
/** After how many messages it is killed: in the first round of 20, and in later ones. */
const KILLS = [3, 17, 41, 58, 90];

const bodyOf = (at: number): Buffer => Buffer.alloc(at % 2 === 0 ? 200 : 30_000, `body ${at} `);

test('a rekeying that is killed loses no body, and the next one ends it', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'respool-rekey-'));
  const make = (primary: 'k1' | 'k2'): Spool =>
    createSpool({ path: join(folder, 'spool'), transforms: [encrypt({ keys, primary })] });
  try {
    const first = make('k1');
    const bodies = Array.from({ length: 20 }, (_, at) => bodyOf(at));
    const ids = await first.enqueueMany(bodies.map((body) => ({ topic: 'a', body })));
    await first.stop();
    for (const messages of KILLS) {
      await rekeyUntilKilled(join(folder, 'spool'), messages);
      const spool = make('k1');
      for (const [at, { id }] of ids.entries()) {
        const read = await bytesOf(await spool.body(id));
        expect(read.equals(bodyOf(at)), `message ${at} after ${messages}`).toBe(true);
      }
      const { findings } = await spool.operator({ by: 'ops' }).check();
      // Bodies that were made for nothing, or not taken away in time; the caretaker finds them.
      expect(findings.filter(({ kind }) => kind !== 'body.orphan')).toEqual([]);
      await spool.stop();
    }
    const last = make('k2');
    expect(await last.operator({ by: 'ops' }).rekey()).toMatchObject({ left: 0, unreadable: 0 });
    expect(await last.operator({ by: 'ops' }).rekey()).toMatchObject({ count: 0 });
    await last.stop();
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

async function rekeyUntilKilled(path: string, messages: number): Promise<void> {
  const flags = ['--disable-warning=ExperimentalWarning', '--conditions=respool-source'];
  const child = spawn(process.execPath, [...flags, CHILD, path], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  let told = 0;
  for await (const text of child.stdout) {
    told += String(text).length;
    if (told > messages && !child.killed) child.kill('SIGKILL');
  }
  expect(await ended).toEqual([null, 'SIGKILL']);
}
