/** show — one message in full. */
import { expect, test } from 'vitest';
import { fill } from './fill.ts';
import { setup } from './setup.ts';

test('show says where a message is, why, and what was tried, with exact times', async () => {
  const shell = await setup();
  await fill(shell);
  const { code, stdout } = await shell.cli(['show', 'in-deferred']);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^state +deferred$/m);
  expect(stdout).toMatch(/^why +smtp\.451: greylisted \(by handler\)$/m);
  expect(stdout).toMatch(/^due +in .*\(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\)$/m);
  expect(stdout).toMatch(/^headers\ntenant {2}a$/m);
  expect(stdout).toMatch(/^attempts\nwhen .*\n.* smtp\.451 +greylisted$/m);
});

test('of an archived message it is said when it is forgotten, not when it is due', async () => {
  const shell = await setup();
  await fill(shell);
  const { stdout } = await shell.cli(['show', 'in-archived']);
  expect(stdout).toMatch(/^forgotten +in 6d23h/m);
  expect(stdout).not.toMatch(/^due /m);
  const { stdout: table } = await shell.cli(['list', '--state', 'archived']);
  expect(table).toMatch(/in-archived .* kept 6d +operator\.remove/);
});

test('with --json it is one object with the id on top', async () => {
  const shell = await setup();
  await fill(shell);
  const ran = await shell.cli(['show', 'in-hold', 'in-bounce', '--json']);
  expect(ran.objects()).toMatchObject([
    { id: 'in-hold', envelope: { topic: 'waits.long' }, status: { state: 'hold' } },
    { id: 'in-bounce', status: { state: 'bounce', lane: 'notice' } },
  ]);
});

test('ids can come from stdin, as lines or as JSON lines', async () => {
  const shell = await setup();
  await fill(shell);
  const stdin = 'in-hold\n\n{"id":"in-bounce","more":1}\r\n  in-deferred';
  const ran = await shell.cli(['show', '-', '--json'], { stdin });
  expect(ran.objects().map(({ id }) => id)).toEqual(['in-hold', 'in-bounce', 'in-deferred']);
});

test('an unknown message is an error, the others are shown', async () => {
  const shell = await setup();
  await fill(shell);
  const ran = await shell.cli(['show', 'nobody', 'in-hold', '--json']);
  expect(ran.code).toBe(1);
  expect(JSON.parse(ran.stderr)).toEqual({
    error: {
      code: 'message.unknown',
      message: 'there is no message "nobody"; see: respool list',
    },
  });
  expect(ran.objects().length).toBe(1);
});

test('what cannot be an id is wrong usage as an argument', async () => {
  const { cli } = await setup();
  expect((await cli(['show', '../etc'])).code).toBe(2);
});

test.each([
  ['{broken', /line 1 of stdin: it is broken JSON/],
  ['{"id":7}', /line 1 of stdin: cannot use 7 as id/],
  ['{"name":7}', /line 1 of stdin: its JSON has no "id"/],
  ['\nnot an id', /line 2 of stdin: cannot use "not an id" as id/],
  ['x'.repeat(1_100_000), /line 1 of stdin: it is longer than 1048576 characters/],
])('a line of stdin without an id is named, and the rest is shown', async (line, text) => {
  const shell = await setup();
  await fill(shell);
  const ran = await shell.cli(['show', '-', '--json'], { stdin: `${line}\nin-hold\n` });
  expect(ran.code).toBe(1);
  const { error } = JSON.parse(ran.stderr) as { error: { message: string } };
  expect(error.message).toMatch(text);
  expect(ran.objects().map(({ id }) => id)).toEqual(['in-hold']);
});

test('a hostile header does not reach the terminal', async () => {
  const { cli, spool } = await setup();
  const own = spool();
  await own.enqueue({ id: 'evil', topic: 'a', headers: { x: 'red \u202e turn' } });
  await own.operator({ by: 'who\u200f' }).hold(['evil'], { reason: 'x \u202e y' });
  await own.stop();
  const { stdout } = await cli(['show', 'evil']);
  expect(stdout).toMatch(/^x {2}red {2}turn$/m);
  expect(stdout).not.toMatch(/[\u202e\u200f]/);
});
