/** release — held messages go on. */
import { expect, test } from 'vitest';
import { person, steering } from './steering.ts';

test('held messages go on, by ids and by filters', async () => {
  const { cli, states } = await steering();
  expect(await cli(['release', 'in-hold'])).toMatchObject({ code: 0, stdout: 'released 1\n' });
  expect(await states()).toMatchObject({ 'in-hold': 'incoming' });
  await cli(['hold', 'in-hold', 'in-deferred']);
  const ran = await cli(['release', '--state', 'hold'], person(true).options);
  expect(ran).toMatchObject({ code: 0, stdout: 'released 2\n' });
  expect(await states()).toMatchObject({ 'in-hold': 'incoming', 'in-deferred': 'incoming' });
});

test('what is not held is refused', async () => {
  const { cli } = await steering();
  expect(await cli(['release', 'in-deferred'])).toMatchObject({
    code: 1,
    stdout: 'released 0, refused 1\n',
  });
});
