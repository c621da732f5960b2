/** remove — softly, or for good after a second question. */
import { expect, test } from 'vitest';
import { audited, person, steering } from './steering.ts';

test('a removal is soft: retry brings the message back', async () => {
  const shell = await steering();
  const ran = await shell.cli(['remove', 'in-deferred', '--reason', 'not wanted']);
  expect(ran).toMatchObject({ code: 0, stdout: 'removed 1\n' });
  expect(await shell.states()).toMatchObject({ 'in-deferred': 'archived' });
  expect(await audited(shell)).toMatchObject([
    { action: 'remove', details: { hard: false, reason: 'not wanted' } },
  ]);
  await shell.cli(['retry', 'in-deferred']);
  expect(await shell.states()).toMatchObject({ 'in-deferred': 'incoming' });
});

test('--hard by ids asks, in plain words, and then it is gone', async () => {
  const shell = await steering();
  const no = person(false);
  expect((await shell.cli(['remove', 'in-deferred', '--hard'], no.options)).code).toBe(4);
  expect(no.questions).toEqual(['remove for good, with the bodies? nothing brings them back']);
  expect(await shell.states()).toMatchObject({ 'in-deferred': 'deferred' });
  const yes = await shell.cli(['remove', 'in-deferred', '--hard'], person(true).options);
  expect(yes).toMatchObject({ code: 0, stdout: 'removed for good 1\n' });
  expect(await shell.states()).not.toHaveProperty('in-deferred');
});

test('--hard by a filter asks twice', async () => {
  const shell = await steering();
  const half = person(true, false);
  expect((await shell.cli(['remove', 'ALL', '--hard'], half.options)).code).toBe(4);
  expect(half.questions).toEqual([
    'remove 5 messages?',
    'remove for good, with the bodies? nothing brings them back',
  ]);
  expect(Object.keys(await shell.states()).length).toBe(5);
  const ran = await shell.cli(['remove', 'ALL', '--hard'], person(true, true).options);
  expect(ran).toMatchObject({ code: 0, stdout: 'removed for good 5\n' });
  expect(await shell.states()).toEqual({});
});

test('--hard without a terminal needs --yes', async () => {
  const shell = await steering();
  expect((await shell.cli(['remove', 'in-hold', '--hard'])).code).toBe(4);
  expect((await shell.cli(['remove', 'in-hold', '--hard', '--yes'])).code).toBe(0);
  expect(await shell.states()).not.toHaveProperty('in-hold');
});
