/** A disk that is really full under the real service: a small tmpfs, which only root can mount. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { folder, serve } from './binary.ts';

const canMount = process.getuid?.() === 0;

describe.skipIf(!canMount)('on a full disk (skipped: needs root to mount a tmpfs)', () => {
  test.each(['sqlite', 'file'])('%s: posts are answered 507 until there is room', async (kind) => {
    const cwd = await folder();
    const disk = path.join(cwd, 'disk');
    mkdirSync(disk);
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=6m', 'tmpfs', disk]);
    onTestFinished(() => {
      execFileSync('umount', ['-l', disk]);
    });
    const ballast = path.join(disk, 'ballast');
    writeFileSync(ballast, Buffer.alloc(2 * 2 ** 20));
    const service = await serve(cwd, ['--store', `${kind}:${disk}/spool`]);
    const body = 'x'.repeat(60_000);
    const post = async (): Promise<Response> =>
      fetch(`${service.url}/v1/topics/a/messages`, { method: 'POST', body });
    const accepted: string[] = [];
    let answer = await post();
    while (answer.status === 201 && accepted.length < 200) {
      accepted.push(((await answer.json()) as { id: string }).id);
      answer = await post();
    }
    expect(answer.status).toBe(507);
    expect(await answer.json()).toMatchObject({ error: { code: 'store.full' } });
    expect(accepted.length).toBeGreaterThan(5);
    // Looking still works, and what was accepted is all there.
    const list = async (): Promise<string[]> => {
      const page = await fetch(`${service.url}/v1/messages?limit=500`);
      return ((await page.json()) as { messages: { id: string }[] }).messages.map(({ id }) => id);
    };
    expect((await list()).toSorted()).toEqual(accepted.toSorted());
    rmSync(ballast);
    const after = await post();
    expect(after.status).toBe(201);
    accepted.push(((await after.json()) as { id: string }).id);
    for (const id of accepted) {
      const kept = await fetch(`${service.url}/v1/messages/${id}/body`);
      expect((await kept.arrayBuffer()).byteLength).toBe(body.length);
    }
    service.kill('SIGTERM');
    expect(await service.ended).toBe(0);
  });
});
