/** policy — explained attempt by attempt, listed, and set for messages. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { setup } from './setup.ts';
import { audited, person, steering } from './steering.ts';

test('explain shows every attempt, the wait before it and the time since the enqueue', async () => {
  const { cli } = await setup();
  const ran = await cli(['policy', 'explain', 'ladder:2s,5s,15s']);
  expect(ran.stdout).toBe(
    [
      'ladder 2s 5s 15s, 4 attempts',
      '',
      'attempt  wait before it  since the enqueue',
      '      1               -                 0s',
      '      2              2s                 2s',
      '      3              5s                 7s',
      '      4             15s                22s',
      '',
      'Gives up after 4 attempts, 22s after the enqueue at the earliest.',
      '',
    ].join('\n'),
  );
});

test.each([
  ['exponential:5s,factor=3,max=20s,attempts=4', [0, 5_000, 15_000, 20_000]],
  ['linear:1s,step=2s,attempts=3', [0, 1_000, 3_000]],
  ['fixed:10s,attempts=3', [0, 10_000, 10_000]],
  ['noRetry', [0]],
  ['postfix:attempts=3', [0, 900_000, 1_800_000]],
])('the waits of %s', async (spec, waits) => {
  const { cli } = await setup();
  const { objects } = await cli(['policy', 'explain', spec, '--json']);
  expect(objects().map(({ waitMs }) => waitMs)).toEqual(waits);
  expect(objects().map(({ id }) => id)).toEqual(waits.map((_, at) => at + 1));
});

test('jitter shows as a range, and a maximum age ends the attempts', async () => {
  const { cli } = await setup();
  const { stdout } = await cli(['policy', 'explain', 'fixed:10s,jitter=0.5,maxAge=25s']);
  expect(stdout).toContain('10s to 15s');
  expect(stdout).toContain('Gives up after 3 attempts, 20s after the enqueue at the earliest');
  expect(stdout).toContain('later than its maximum age of 25s');
});

test('a name of the configuration is explained, and no store is made for it', async () => {
  const shell = await setup();
  const file = path.join(shell.folder, 'respool.config.json');
  await writeFile(file, '{"policies":{"patient":{"fixed":{"delay":"1h","attempts":2}}}}');
  expect((await shell.cli(['policy', 'explain', 'patient'])).stdout).toContain('patient: fixed 1h');
  const { objects } = await shell.cli(['policy', 'list', '--json']);
  expect(objects().map(({ id, description }) => [id, description])).toEqual([
    ['default', 'exponential 15m ×2 up to 1d, 10 attempts'],
    ['patient', 'fixed 1h, 2 attempts'],
  ]);
  expect((await shell.cli(['policy', 'list'])).stdout).toContain('patient  fixed 1h, 2 attempts');
});

test('a custom policy is explained by its function', async () => {
  const { cli, folder } = await setup();
  const program = `export default {
    backoffs: { slow: (attempt) => attempt * 1000 },
    policies: { own: { custom: { name: 'slow', rungs: ['1s', '2s', '5s'], attempts: 4 } } },
  };`;
  await writeFile(path.join(folder, 'respool.config.mjs'), program);
  const ran = await cli(['policy', 'explain', 'own', '--json']);
  expect(ran.objects().map(({ waitMs }) => waitMs)).toEqual([0, 1_000, 2_000, 5_000]);
  expect((await cli(['policy', 'explain', 'own'])).stderr).toContain('"slow" decides');
});

test.each([
  ['nonsense', 1, /known are default/],
  ['bogus:1s', 2, /cannot use "bogus:1s" as a policy/],
  ['fixed:soon', 2, /delay/],
  ['fixed:1s,2s', 2, /cannot use "2s" in a policy "fixed"/],
  ['fixed:1s,colour=red', 2, /colour/],
  ['exponential:attempts=x', 2, /exponential/],
])('explain %s says what is wrong with it', async (spec, code, text) => {
  const { cli } = await setup();
  const ran = await cli(['policy', 'explain', spec]);
  expect(ran).toMatchObject({ code, stdout: '' });
  expect(ran.stderr).toMatch(text);
});

test('set gives messages another policy, by id and by filter', async () => {
  const shell = await steering();
  const file = path.join(shell.folder, 'respool.config.json');
  await writeFile(file, '{"policies":{"patient":{"fixed":"1h"}}}');
  const byId = await shell.cli(['policy', 'set', 'patient', 'in-deferred']);
  expect(byId).toMatchObject({ code: 0, stdout: 'set the policy of 1\n' });
  const { questions, options } = person(true);
  await shell.cli(['policy', 'set', 'patient', '--state', 'incoming'], options);
  expect(questions).toEqual(['set the policy of 1 message?']);
  const { objects } = await shell.cli(['show', 'in-deferred', 'in-incoming', '--json']);
  expect(objects()).toMatchObject([
    { status: { policy: 'patient' } },
    { status: { policy: 'patient' } },
  ]);
  expect(await audited(shell)).toMatchObject([
    { action: 'setPolicy' },
    { action: 'bulk.policy', details: { policy: 'patient', count: 1 } },
    { action: 'setPolicy' },
  ]);
});

test('with the address of a service its policies are asked for', async () => {
  const { cli, folder, start } = await setup();
  const file = path.join(folder, 'respool.config.json');
  await writeFile(file, '{"policies":{"theirs":{"fixed":"1h"}}}');
  const serving = start(['serve', '--port', '0']);
  const [url = ''] = await serving.printed(/http:\/\/127\.0\.0\.1:(?!7667|0\b)\d+/);
  await writeFile(file, '{"policies":{"ours":{"fixed":"1h"}}}');
  const names = async (...call: Parameters<typeof cli>): Promise<unknown[]> =>
    (await cli(...call)).objects().map(({ id }) => id);
  const list = ['policy', 'list', '--json'];
  expect(await names([...list, '--url', url])).toEqual(['default', 'theirs']);
  expect(await names(list, { env: { RESPOOL_URL: url } })).toEqual(['default', 'theirs']);
  expect(await names(list)).toEqual(['default', 'ours']);
  serving.signal('SIGTERM');
  await serving.ended;
});

test('set refuses a policy that is not configured', async () => {
  const shell = await steering();
  const ran = await shell.cli(['policy', 'set', 'nonsense', 'in-deferred']);
  expect(ran.code).toBe(1);
  expect(ran.stderr).toContain('cannot set policy "nonsense"');
});
