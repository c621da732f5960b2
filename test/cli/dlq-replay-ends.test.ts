/** How a replay at the command line ends: what is said, whatever ended it. */
import { expect, test } from 'vitest';
import { carryOut, type ReplayResult } from '../../src/cli/commands/dlq/replay/view.ts';
import type { CommandContext } from '../../src/cli/spec.ts';
import { RespoolError } from 'respool';
import { drive, setup as setupReplay } from '../dead-letters/replay/setup.ts';

type Raise = (signal: 'SIGINT' | 'SIGTERM') => void;

async function setup(change: (carried: ReplayResult) => ReplayResult = (carried) => carried) {
  const world = await setupReplay(30);
  const { clock } = world;
  const { operator, letters } = world.process();
  const replay = await world.plan({ canary: 0 });
  const said: string[] = [];
  const listeners = new Set<Raise>();
  const say = (text: string): void => void said.push(text);
  const io = {
    clock,
    isTTY: () => false,
    stderr: { write: () => true },
    onSignal: (listener: Raise) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  const out = { json: false, note: say, line: async (text: string) => say(text) };
  const context = { io, out } as unknown as CommandContext;
  return {
    ...world,
    id: replay.id,
    said,
    listeners,
    raise: (signal: 'SIGINT' | 'SIGTERM') => {
      for (const listener of listeners) listener(signal);
    },
    end: () => drive(clock, carryOut(context, change({ operator, letters, replay }))),
  };
}

/** A store that is away as soon as something was sent. */
function awayStore(carried: ReplayResult): ReplayResult {
  const { operator } = carried;
  const append: typeof operator.records.append = (kind, record) =>
    JSON.stringify(record).includes('results')
      ? Promise.reject(new RespoolError('store.unavailable', 'the disk is gone'))
      : operator.records.append(kind, record);
  return { ...carried, operator: { ...operator, records: { ...operator.records, append } } };
}

test('an error of the store in the middle says how to go on', async () => {
  const { end, said, id } = await setup(awayStore);
  await expect(end()).rejects.toThrow('the disk is gone');
  expect(said).toEqual([`when the cause is fixed: respool dlq replays resume ${id}`]);
});

test('a refusal says itself what to do', async () => {
  const { end, said, run, id } = await setup();
  await run(id);
  await expect(end()).rejects.toThrow(/plan a new one/);
  expect(said).toEqual([]);
});

test('a signal when it is over already still ends the command: others do not follow', async () => {
  const { end, said, raise, listeners, place } = await setup((carried) => carried);
  const ending = end();
  // The first line is told after the last word on record.
  const push = said.push.bind(said);
  said.push = (...texts) => {
    raise('SIGINT');
    return push(...texts);
  };
  await expect(ending).rejects.toThrow(/^interrupted$/);
  expect([place.sent.length, said[0]]).toEqual([30, expect.stringContaining('is done')]);
  expect(listeners.size).toBe(0);
});
