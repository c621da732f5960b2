import { expect, test } from 'vitest';
import { Checkpointer } from '../../../src/stores/sqlite/file-client.ts';

/** Most of it three times aside: each time there is less left. */
const MOVED = ['aside', 'aside', 'aside', 'here'];

/** A mover of logs of 100 pages; a move ends with its turn of the loop. */
function setup(failing: readonly ('aside' | 'here')[] = []) {
  const steps: string[] = [];
  const step = (name: 'aside' | 'here') => async () => {
    steps.push(name);
    if (failing.includes(name)) throw new Error('the thread has ended');
  };
  const mover = new Checkpointer(100, { aside: step('aside'), here: step('here') });
  const see = async (pages: number) => {
    mover.see(pages);
    await new Promise<void>((resolve) => setImmediate(resolve));
    return steps.splice(0);
  };
  return { mover, see };
}

test('a log is moved aside first and then here, each time it is long', async () => {
  const { see } = setup();
  expect(await see(99)).toEqual([]);
  expect(await see(100)).toEqual(MOVED);
  expect(await see(3)).toEqual([]);
  expect(await see(120)).toEqual(MOVED);
});

test('one that stays long is not tried again before it has grown as much again', async () => {
  const { see } = setup(['here']);
  expect(await see(100)).toEqual(MOVED);
  expect(await see(101)).toEqual([]);
  expect(await see(199)).toEqual([]);
  expect(await see(200)).toEqual(MOVED);
});

test('without a thread that can do it, it is done here', async () => {
  const { see } = setup(['aside']);
  expect(await see(100)).toEqual(['aside', 'here']);
});

test('one move at a time', async () => {
  const { mover, see } = setup();
  mover.see(100);
  mover.see(300);
  expect(await see(500)).toEqual(MOVED);
});
