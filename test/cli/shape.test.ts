/** shape — what waits, by topic and age. */
import { SimClock } from 'respool/testkit';
import { expect, test } from 'vitest';
import { setup } from './setup.ts';

async function waiting() {
  const shell = await setup();
  const now = Date.now();
  const clock = new SimClock({ startAt: now - 50 * 60_000 });
  const old = shell.spool({ clock });
  await old.enqueue({ topic: 'mail.send', destination: 'x' });
  await old.stop();
  const own = shell.spool();
  await own.enqueueMany([
    { topic: 'mail.send', destination: 'x' },
    { topic: 'mail.send', destination: 'y' },
    { topic: 'report', delay: '1h' },
  ]);
  await own.enqueue({ id: 'held', topic: 'held' });
  await own.operator({ by: 'ops' }).hold(['held']);
  await own.stop();
  return shell;
}

test('more topics than are shown are said', async () => {
  const { cli, spool } = await setup();
  const own = spool();
  await own.enqueueMany(Array.from({ length: 501 }, (_, at) => ({ topic: `t${at}` })));
  await own.stop();
  const ran = await cli(['shape']);
  expect(ran.stdout).toMatch(/^TOTAL +501 /m);
  expect(ran.stderr).toMatch(/^only the largest 500 are shown/);
});

test('rows are topics, columns are ages in minutes, with totals', async () => {
  const { cli } = await waiting();
  const { stdout } = await cli(['shape']);
  const rows = stdout
    .trimEnd()
    .split('\n')
    .map((line) => line.split(/ +/));
  expect(rows[0]).toEqual([
    'topic',
    'T',
    '5',
    '10',
    '20',
    '40',
    '80',
    '160',
    '320',
    '640',
    '1280',
    '1280+',
  ]);
  expect(rows[1]).toEqual(['TOTAL', '4', '3', '0', '0', '0', '1', '0', '0', '0', '0', '0']);
  expect(rows[2]).toEqual(['mail.send', '3', '2', '0', '0', '0', '1', '0', '0', '0', '0', '0']);
  expect(rows[3]?.slice(0, 3)).toEqual(['report', '1', '1']);
  expect(rows.length).toBe(4);
});

test('--by destination and filters', async () => {
  const { cli } = await waiting();
  const byPlace = await cli(['shape', '--by', 'destination', '--json']);
  const keys = byPlace.objects().map(({ id, total }) => [id, total]);
  expect(keys).toContainEqual(['x', 2]);
  expect(keys).toContainEqual(['y', 1]);
  const held = await cli(['shape', '--state', 'hold', '--json']);
  expect(held.objects()).toMatchObject([
    { id: 'TOTAL', isTotal: true, total: 1 },
    { id: 'held', isTotal: false, total: 1 },
  ]);
});
