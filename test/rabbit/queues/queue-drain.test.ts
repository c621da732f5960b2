/**
 * queue-drain — random dead queues, drained in the three ways: what is moved and what stays is what
 * a plain list says, in the same order.
 */

import { describe, expect, onTestFinished, test } from 'vitest';
import type { LetterVerdict } from 'respool/dead-letters';
import {
  type AmqpMessage,
  createConnection,
  createQueueLetters,
  drainQueue,
  sweepQueue,
} from 'respool/rabbit';
import { ConfirmPublisher } from '../../../src/rabbit/publish/confirm-publisher.ts';
import { type MoveErrand, moveMessages } from '../../../src/rabbit/queues/drain.ts';
import { service, withService } from '../../services/index.ts';
import { createChance } from '../../torture/chance.ts';
import { DeadQueues, type Kind, KINDS, numberOf, range } from './queues.ts';
import { died } from './sweep-ground.ts';
import { systemClock } from '../../time.ts';

const SEEDS = range(8);
const COUNT_MAX = 300;

withService('rabbitmq', () => {
  describe.each(KINDS)('a random %s queue', (kind) => {
    test.each(SEEDS)('is drained as a list is (seed %i)', async (seed) => {
      const { chance, queue, target, count, some, look, connection } = await randomQueue(
        kind,
        seed,
      );
      const matches = some(0.5);
      const lost = some(0.2);
      const max = chance.happens(0.5) ? chance.between(1, count + 1) : undefined;
      const publisher = new ConfirmPublisher(connection.publishing, systemClock);
      const decide = (message: AmqpMessage): MoveErrand => {
        const number = numberOf(message);
        if (!matches.has(number)) return 'skip';
        if (lost.has(number)) return 'unroutable';
        const { content, properties } = message;
        return { exchange: '', key: target, content, properties };
      };
      const report = await moveMessages(
        { queue, decide, max, window: chance.between(1, 60) },
        { connection: await connection.consuming.tryConnect(), publisher, clock: systemClock },
      );
      await publisher.close();
      const list = drainedList(count, { matches, lost, max });
      expect(report).toEqual({ queue, ...list.report });
      await look.expect(queue, list.stays);
      await look.expect(target, list.moved);
    });

    test.each(SEEDS)('is swept as a list is (seed %i)', async (seed) => {
      const { chance, queue, target, count, look, connection, deaths } = await randomQueue(
        kind,
        seed,
      );
      const max = chance.between(1, 5);
      const limit = chance.happens(0.5) ? chance.between(1, count + 1) : undefined;
      const dryRun = chance.happens(0.25);
      const report = await sweepQueue({
        connection,
        queue,
        target,
        max,
        limit,
        dryRun,
        window: chance.between(1, 60),
        isTrusted: true,
      });
      const list = sweptList(deaths, { max, limit });
      expect(report).toMatchObject({ queue, target, already: 0, ...list.report });
      expect(report.error).toBeUndefined();
      await look.expect(queue, dryRun ? range(count) : list.stays);
      await look.expect(target, dryRun ? [] : list.moved);
    });

    test.each(SEEDS)('is taken as a list is (seed %i)', async (seed) => {
      const { chance, queue, target, count, some, look, connection } = await randomQueue(
        kind,
        seed,
      );
      const wanted = some(0.5);
      const draws = range(count).map(() => chance.between(SENT, LEFT));
      const home = await look.declare();
      const door = createQueueLetters({ connection, queue, parkedQueue: target, isTrusted: true });
      const isEager = chance.happens(0.5);
      const settling: Promise<unknown>[] = [];
      const letters = door.take({
        isWanted: ({ id }) => wanted.has(indexOf(id)),
        inHand: chance.between(1, 50),
      });
      for await (const letter of letters) {
        const verdict = verdictOf(draws[indexOf(letter.letter.id)] ?? LEFT, home);
        const settled = door.settle(letter, verdict);
        settling.push(settled);
        if (!isEager) await settled;
      }
      for (const settled of await Promise.all(settling)) expect(settled).toEqual({ kind: 'done' });
      await door.close();
      const went = (number: number): number[] =>
        range(count).filter((at) => wanted.has(at) && draws[at] === number);
      const isGone = (at: number): boolean => wanted.has(at) && (draws[at] ?? 0) < LEFT;
      await look.expect(
        queue,
        range(count).filter((at) => !isGone(at)),
      );
      await look.expect(home, went(SENT));
      await look.expect(target, went(PARKED));
    });
  });
});

const [SENT, PARKED, REMOVED, LEFT] = [0, 1, 2, 3] as const;

function verdictOf(number: number, home: string): LetterVerdict {
  const to = { kind: 'queue', exchange: '', key: home } as const;
  if (number === SENT) return { kind: 'send', to, replay: 'r', by: 'test' };
  if (number === PARKED) return { kind: 'park', code: 'test', reason: 'test', by: 'test' };
  if (number === REMOVED) return { kind: 'remove', hard: true, reason: 'test', by: 'test' };
  return { kind: 'leave' };
}

function indexOf(id: string): number {
  return Number(id.slice(1));
}

async function randomQueue(kind: Kind, seed: number) {
  const chance = createChance(seed);
  const queues = await DeadQueues.open();
  const [queue, target] = [await queues.declare(kind), await queues.declare(kind)];
  const count = chance.happens(0.1) ? 0 : chance.between(1, COUNT_MAX);
  const deaths = range(count).map(() => chance.between(0, 7));
  await queues.fill(queue, count, (index) => died(deaths[index] ?? 0));
  const connection = createConnection({ url: await service('rabbitmq') });
  onTestFinished(() => connection.close());
  // All of them were looked at and given back once, as after a list.
  const to = { exchange: '', key: target };
  if (chance.happens(0.5)) await drainQueue({ connection, queue, to, match: () => false });
  const look = {
    declare: () => queues.declare(kind),
    /** Takes everything out of a queue. */
    expect: async (name: string, numbers: readonly number[]): Promise<void> => {
      await expect.poll(() => queues.hands.depth(name)).toBe(numbers.length);
      expect((await queues.takeAll(name, numbers.length)).map(numberOf)).toEqual(numbers);
    },
  };
  const some = (share: number): Set<number> =>
    new Set(range(count).filter(() => chance.happens(share)));
  return { chance, queue, target, count, some, look, connection, deaths };
}

interface DrainCase {
  readonly matches: ReadonlySet<number>;
  readonly lost: ReadonlySet<number>;
  readonly max: number | undefined;
}

function drainedList(count: number, { matches, lost, max }: DrainCase) {
  const moved: number[] = [];
  const stays: number[] = [];
  let [skipped, unroutable] = [0, 0];
  const goal = Math.min(count, max ?? count);
  for (const at of range(count)) {
    if (moved.length < goal && matches.has(at) && !lost.has(at)) {
      moved.push(at);
      continue;
    }
    stays.push(at);
    if (moved.length >= goal) continue;
    if (matches.has(at)) unroutable += 1;
    else skipped += 1;
  }
  const isMax = count > 0 && moved.length >= goal && goal < count;
  const end = isMax ? 'max' : 'done';
  return { moved, stays, report: { total: count, moved: moved.length, skipped, unroutable, end } };
}

function sweptList(
  deaths: readonly number[],
  {
    max,
    limit = Number.POSITIVE_INFINITY,
  }: { readonly max: number; readonly limit?: number | undefined },
) {
  const over = range(deaths.length).filter((at) => (deaths[at] ?? 0) > max);
  const moved = over.slice(0, limit);
  const next = over[moved.length];
  const stays = range(deaths.length).filter((at) => !moved.includes(at));
  const seen = next === undefined ? deaths.length : next + 1;
  const end = next === undefined ? 'done' : 'limit';
  const total = deaths.length;
  return {
    moved,
    stays,
    report: { total, seen, moved: moved.length, left: seen - moved.length, end },
  };
}
