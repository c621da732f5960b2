/** pause, resume — delivery stops and goes on, by pattern. */
import { expect, test } from 'vitest';
import { setup } from './setup.ts';

test('pause stops a pattern durably, and resume ends that very pattern', async () => {
  const { cli } = await setup({ hasStore: true });
  expect(await cli(['pause', 'webhook.*'])).toMatchObject({
    code: 0,
    stdout: 'paused webhook.*\n',
  });
  expect(await cli(['resume', 'webhook.*'])).toMatchObject({
    code: 0,
    stdout: 'resumed webhook.*\n',
  });
});

test('a pause before the first message makes the store it is kept in', async () => {
  const { cli } = await setup();
  expect((await cli(['pause', 'a'])).code).toBe(0);
  expect((await cli(['stats', '--json'])).objects()).toMatchObject([{ paused: [{ topic: 'a' }] }]);
});

test('without a topic everything is meant', async () => {
  const { cli } = await setup({ hasStore: true });
  expect((await cli(['pause'])).stdout).toBe('paused everything\n');
  expect((await cli(['resume', '--json'])).objects()).toEqual([{ resumed: '#', paused: [] }]);
});

test('resuming what is not paused says so, and what still is', async () => {
  const { cli } = await setup({ hasStore: true });
  await cli(['pause', 'mail.#']);
  const ran = await cli(['resume', 'webhook.*']);
  expect(ran).toMatchObject({ code: 1, stdout: 'webhook.* was not paused\n' });
  expect(ran.stderr).toBe('still paused: mail.#\n');
});

test('the audit record has who paused, with the pattern', async () => {
  const { cli, spool } = await setup({ hasStore: true });
  expect((await cli(['pause', 'mail.#', '--json'])).objects()).toEqual([
    { paused: 'mail.#', by: 'tester@cli' },
  ]);
  const records = await spool().audit();
  expect(records).toMatchObject([
    { by: 'tester@cli', action: 'pause', details: { topic: 'mail.#' } },
  ]);
});

test('a pattern that is none is wrong usage', async () => {
  const { cli } = await setup({ hasStore: true });
  const ran = await cli(['pause', 'a b', '--json']);
  expect(ran.code).toBe(2);
  expect(JSON.parse(ran.stderr)).toMatchObject({ error: { code: 'usage.invalid' } });
});
