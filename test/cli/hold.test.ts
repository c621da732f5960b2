/** hold — by ids and by filters, with a reason. */
import { expect, test } from 'vitest';
import { audited, person, steering } from './steering.ts';

test('a held message says why and who', async () => {
  const shell = await steering();
  const ran = await shell.cli(['hold', 'in-deferred', '--reason', 'wrong template']);
  expect(ran).toMatchObject({ code: 0, stdout: 'held 1\n' });
  expect((await shell.cli(['show', 'in-deferred', '--json'])).objects()).toMatchObject([
    { status: { state: 'hold', because: { text: 'wrong template', by: 'tester@cli' } } },
  ]);
});

test('a filter holds what fits, with the reason', async () => {
  const shell = await steering();
  const { questions, options } = person(true);
  const ran = await shell.cli(['hold', '--topic', 'fails.#', '--reason', 'later'], options);
  expect(ran).toMatchObject({ code: 0, stdout: 'held 1\n' });
  expect(questions).toEqual(['hold 1 message?']);
  expect((await shell.cli(['show', 'in-deferred', '--json'])).objects()).toMatchObject([
    { status: { state: 'hold', because: { text: 'later', by: 'tester@cli' } } },
  ]);
  expect(await audited(shell)).toMatchObject([{ action: 'bulk.hold' }, { action: 'hold' }]);
});
