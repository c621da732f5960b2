/** An operator tells which messages wait without a handler, where its process can know. */
import { fixed } from 'respool';
import { internalsOf } from '../../src/spool/internals.ts';
import { createOperator } from '../../src/spool/operator/spool-operator.ts';
import { expect, test } from 'vitest';
import { setup, type World } from '../spool/setup.ts';

const traits = { processes: 'many' } as const;

/** The topics of messages that the operator calls unhandled: in a page, and one by one. */
async function unhandled({ spool }: Pick<World, 'spool'>, topics?: string[]): Promise<string[]> {
  const operator = createOperator(internalsOf(spool), { by: 'ann', topics });
  const { entries } = await operator.page({ limit: 500 });
  const inPage = entries.filter((one) => one.unhandled === true);
  for (const { envelope, ...rest } of entries) {
    expect((await operator.get(envelope.id))?.unhandled).toBe(rest.unhandled);
  }
  return inPage.map(({ envelope }) => envelope.topic).toSorted();
}

test('only messages that wait, of topics without a handler, are unhandled', async () => {
  const world = await setup({ traits, policies: { default: fixed('1h') } });
  const { spool, clock } = world;
  const undo = spool.handle('mail.*', () => Promise.reject(new Error('not yet')));
  spool.handle('good', () => undefined);
  spool.onBounce('#', () => undefined);
  const put = (topic: string, id?: string, delay?: string) =>
    spool.enqueue({ topic, ...(id === undefined ? {} : { id }), ...(delay && { delay }) });
  for (const topic of ['mail.new', 'good', 'other']) await put(topic);
  await put('later', 'm-later', '1h');
  await put('stopped', 'm-held');
  await put('given-up', 'm-bounced');
  await put('gone', 'm-gone');
  await spool.operator({ by: 'ops' }).hold(['m-held']);
  await spool.operator({ by: 'ops' }).bounce(['m-bounced']);
  await spool.operator({ by: 'ops' }).remove(['m-gone']);
  await clock.settle();
  expect(await unhandled(world)).toEqual(['later', 'other']);
  spool.handle('other', () => undefined);
  expect(await unhandled(world)).toEqual(['later']);
  undo();
  expect(await unhandled(world)).toEqual(['later', 'mail.new']);
});

test('a spool that delivers without any handler says so, one that only looks does not', async () => {
  const running = await setup({ traits });
  await running.spool.enqueue({ topic: 'a' });
  expect(await unhandled(running)).toEqual(['a']);
  const looking = await setup({ traits, with: running, isStarted: false });
  expect(await unhandled(looking)).toEqual([]);
  looking.spool.handle('b', () => undefined);
  expect(await unhandled(looking)).toEqual(['a']);
});

test('a spool that leaves topics to other processes says nothing', async () => {
  const world = await setup({ traits, unhandled: 'leave' });
  world.spool.handle('b', () => undefined);
  await world.spool.enqueue({ topic: 'a' });
  expect(await unhandled(world)).toEqual([]);
});

test('the topics of configured routes stand for handlers that are not registered', async () => {
  const world = await setup({ traits, isStarted: false });
  await world.spool.enqueueMany([{ topic: 'mail.a' }, { topic: 'hook' }, { topic: 'other' }]);
  expect(await unhandled(world, ['mail.#', 'hook'])).toEqual(['other']);
  expect(await unhandled(world, ['#'])).toEqual([]);
});
