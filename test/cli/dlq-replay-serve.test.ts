/** dlq replay through a service that delivers: the canaries tell whether it works again. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Replay } from 'respool/dead-letters';
import { setup } from './setup.ts';

const CONFIG = `
import { existsSync } from 'node:fs';
import { PermanentError } from 'respool';
export default {
  store: 'file:./store',
  retention: { delivered: { archive: '1h' } },
  routes: [{ topic: 'orders', deliver: () => {
    if (!existsSync(new URL('./well', import.meta.url))) throw new PermanentError('x', 'not well');
  } }],
};
`;

/** A service whose handler fails until a file is there, and messages that it gave up. */
async function serving(count: number) {
  const shell = await setup();
  await writeFile(
    path.join(shell.folder, 'respool.config.mjs'),
    CONFIG.replace(
      "'respool'",
      JSON.stringify(path.resolve(import.meta.dirname, '../../src/index.ts')),
    ),
  );
  const running = shell.start(['serve', '--port', '0', '--json']);
  onTestFinished(async () => {
    running.signal('SIGTERM');
    await running.ended;
  });
  const [, url = ''] = await running.printed(/"url":"(http:[^"]+)"/);
  for (let at = 0; at < count; at += 1) {
    await shell.cli(['enqueue', 'orders', '--body', `${at}`, '--url', url]);
  }
  const bounced = async () => {
    const ran = await shell.cli(['dlq', 'list', '--url', url, '--json']);
    return ran.objects().length;
  };
  await expect.poll(bounced).toBe(count);
  return { ...shell, url, bounced };
}

test('canaries of a paused topic stop it through a service; a resume goes on with them', async () => {
  const shell = await serving(6);
  await writeFile(path.join(shell.folder, 'well'), '');
  const to = ['--json', '--url', shell.url];
  await shell.cli(['pause', 'orders', ...to]);
  const argv = ['--canary', '2', '--canary-wait', '1s', '--yes', ...to];
  const ran = await shell.cli(['dlq', 'replay', ...argv]);
  const [stopped] = ran.objects() as unknown as Replay[];
  expect([ran.code, stopped]).toMatchObject([
    1,
    { state: 'stopped', counts: { sent: 2 }, canaries: { passed: 0, failed: 0, waiting: 2 } },
  ]);
  expect(stopped?.because).toMatch(/^0 of 2 canaries were attempted; nothing else was sent/);
  expect(await shell.bounced()).toBe(4);
  await shell.cli(['resume', 'orders', ...to]);
  const delivered = async () =>
    (await shell.cli(['list', '--state', 'archived', ...to])).objects().length;
  await expect.poll(delivered).toBe(2);
  const resumed = await shell.cli(['dlq', 'replays', 'resume', stopped?.id ?? '', ...to]);
  expect(resumed.objects(), resumed.stderr).toMatchObject([
    { state: 'done', counts: { sent: 6, again: 0 }, canaries: { passed: 2 } },
  ]);
  expect(resumed.code).toBe(0);
});

test('canaries that fail again stop it; when it is well, a resume brings the rest', async () => {
  const shell = await serving(6);
  const argv = ['--canary', '2', '--canary-wait', '5s', '--yes', '--json', '--url', shell.url];
  const ran = await shell.cli(['dlq', 'replay', ...argv]);
  expect(ran.code, ran.stderr).toBe(1);
  const [stopped] = ran.objects() as unknown as Replay[];
  expect(stopped).toMatchObject({ state: 'stopped', counts: { sent: 2, again: 2 } });
  expect(await shell.bounced()).toBe(6);
  await writeFile(path.join(shell.folder, 'well'), '');
  const id = stopped?.id ?? '';
  const resumed = await shell.cli(['dlq', 'replays', 'resume', id, '--json', '--url', shell.url]);
  // Two of its letters failed again, and lie there.
  expect(resumed.code, resumed.stderr).toBe(1);
  expect(resumed.objects()).toMatchObject([{ state: 'done', counts: { sent: 6, again: 2 } }]);
  const report = await shell.cli(['dlq', 'replays', 'report', id, '--json', '--url', shell.url]);
  const results = report.objects().map(({ result }) => String(result));
  expect(results.toSorted()).toEqual(['again', 'again', 'sent', 'sent', 'sent', 'sent']);
  const rest = await shell.cli(['dlq', 'replay', '--canary', '0', ...argv.slice(4)]);
  expect([rest.code, rest.objects()]).toMatchObject([0, [{ counts: { sent: 2 } }]]);
  await expect.poll(shell.bounced).toBe(0);
});
