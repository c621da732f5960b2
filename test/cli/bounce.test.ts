/** bounce — messages are given up, with a reason. */
import { expect, test } from 'vitest';
import { person, steering } from './steering.ts';

test('messages are given up by ids, to be announced', async () => {
  const { cli } = await steering();
  const ran = await cli(['bounce', 'in-deferred', '--reason', 'shop is closed']);
  expect(ran).toMatchObject({ code: 0, stdout: 'bounced 1\n' });
  expect((await cli(['show', 'in-deferred', '--json'])).objects()).toMatchObject([
    { status: { state: 'bounce', lane: 'notice', because: { text: 'shop is closed' } } },
  ]);
});

test('and by filters', async () => {
  const { cli, states } = await steering();
  const { options, questions } = person(true);
  const ran = await cli(['bounce', '--destination', 'mail-1', '--reason', 'gone'], options);
  expect(ran).toMatchObject({ code: 0, stdout: 'bounced 1\n' });
  expect(questions).toEqual(['bounce 1 message?']);
  expect(await states()).toMatchObject({ 'in-deferred': 'bounce' });
  expect((await cli(['show', 'in-deferred', '--json'])).objects()).toMatchObject([
    { status: { because: { text: 'gone' } } },
  ]);
});
