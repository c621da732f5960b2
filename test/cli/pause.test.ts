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

test.each(['ALL', '#'])('everything is paused and resumed by the word %s', async (word) => {
  const { cli } = await setup({ hasStore: true });
  expect((await cli(['pause', word])).stdout).toBe('paused everything\n');
  expect((await cli(['resume', word, '--json'])).objects()).toEqual([{ resumed: '#', paused: [] }]);
});

test.each(['pause', 'resume'])('without a topic and a terminal %s does nothing', async (name) => {
  const { cli } = await setup({ hasStore: true });
  if (name === 'resume') await cli(['pause', 'ALL']);
  const before = (await cli(['stats', '--json'])).objects()[0]?.['paused'];
  const ran = await cli([name]);
  expect([ran.code, ran.stdout]).toEqual([4, '']);
  expect(ran.stderr).toContain('name a topic or pattern, or ALL for every topic');
  expect((await cli(['stats', '--json'])).objects()).toMatchObject([{ paused: before }]);
});

test('without a topic they ask at a terminal, and obey the answer', async () => {
  const { cli } = await setup({ hasStore: true });
  const asked: string[] = [];
  const answer = (isYes: boolean) => ({
    tty: ['stdin', 'stderr'] as ('stdin' | 'stderr')[],
    confirm: async (question: string) => {
      asked.push(question);
      return isYes;
    },
  });
  const isPaused = async () => (await cli(['stats', '--json'])).stdout.includes('"topic":"#"');
  expect(await cli(['pause'], answer(false))).toMatchObject({ code: 4, stdout: '' });
  expect(await isPaused()).toBe(false);
  expect((await cli(['pause'], answer(true))).stdout).toBe('paused everything\n');
  expect(await cli(['resume'], answer(false))).toMatchObject({ code: 4, stdout: '' });
  expect(await isPaused()).toBe(true);
  expect((await cli(['resume'], answer(true))).stdout).toBe('resumed everything\n');
  const [pausing, resuming] = ['pause every topic?', 'resume every topic?'];
  expect(asked).toEqual([pausing, pausing, resuming, resuming]);
});

test.each(['pause', 'resume'])('%s has no flag in place of the word ALL', async (name) => {
  const { cli } = await setup({ hasStore: true });
  // As of `respool pause --yes "$TOPIC"` where the variable is not set.
  for (const args of [
    [name, '--yes'],
    [name, '--yes', ''],
  ]) {
    expect(await cli(args)).toMatchObject({ code: 2, stdout: '' });
  }
  expect(await cli([name, ''])).toMatchObject({ code: 2, stdout: '' });
  expect((await cli(['stats', '--json'])).objects()).toMatchObject([{ paused: [] }]);
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
  const records = await spool().operator({ by: 'ops' }).audit();
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
