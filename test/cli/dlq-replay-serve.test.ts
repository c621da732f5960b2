/** dlq replay through a service that delivers: the canaries tell whether it works again. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Replay } from '../../src/control/replay/types.ts';
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
  expect(resumed.code, resumed.stderr).toBe(0);
  expect(resumed.objects()).toMatchObject([{ state: 'done', counts: { sent: 6, again: 2 } }]);
  const report = await shell.cli(['dlq', 'replays', 'report', id, '--json', '--url', shell.url]);
  const results = report.objects().map(({ result }) => String(result));
  expect(results.toSorted()).toEqual(['again', 'again', 'sent', 'sent', 'sent', 'sent']);
  const rest = await shell.cli(['dlq', 'replay', '--canary', '0', ...argv.slice(4)]);
  expect([rest.code, rest.objects()]).toMatchObject([0, [{ counts: { sent: 2 } }]]);
  await expect.poll(shell.bounced).toBe(0);
});
