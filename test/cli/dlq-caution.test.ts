/** dlq — what a look costs is told once, to people; and what help says of order and restoring. */
import { expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { deadQueue } from './dlq-queue-ground.ts';
import { setup } from './setup.ts';

const COUNTED = /counts each look as a delivery/g;

withService('rabbitmq', () => {
  test('looks that are counted are told once for all queues, and not with --quiet', async () => {
    const { cli, dead, die, declare } = await deadQueue();
    const other = `${dead}.too`;
    const limit = { 'x-queue-type': 'quorum', 'x-delivery-limit': 1_000_000 };
    await declare(other, { arguments: limit });
    await die(['a', 'b']);
    const words = ['dlq', 'list', '--queue', dead];
    const one = await cli(words);
    expect(one.stderr.match(COUNTED), one.stderr).toHaveLength(1);
    expect(one.stderr).not.toContain('warning');
    const both = await cli([...words, '--queue', other]);
    expect(both.stderr.match(COUNTED), both.stderr).toHaveLength(1);
    expect(both.stderr).toContain('2 queues: ');
    expect((await cli([...words, '--quiet'])).stderr).toBe('');
  });

  test('a plan tells once what its look costs', async () => {
    const { cli, dead, die, main, declare } = await deadQueue();
    await declare(main);
    await die(['a', 'b']);
    const words = ['dlq', 'replay', '--queue', dead, '--dry-run'];
    const loud = await cli(words);
    expect(`${loud.stdout}${loud.stderr}`.match(COUNTED), loud.stderr).toHaveLength(1);
    const quiet = await cli([...words, '--quiet']);
    expect(`${quiet.stdout}${quiet.stderr}`).not.toMatch(COUNTED);
  });
});

test.each([
  ['list', /of the spool by id/],
  ['restore', /retry sends it; so does release, except that a message that had bounced/],
  ['sweep', /a crash makes fewer copies/],
])('help of dlq %s promises what holds', async (name, text) => {
  const { cli } = await setup();
  const ran = await cli(['dlq', name, '--help']);
  expect(ran.stdout.replaceAll(/\s+/g, ' ')).toMatch(text);
});
