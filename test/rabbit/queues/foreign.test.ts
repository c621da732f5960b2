/** A quorum queue that others declared, without a delivery limit: what holds for it per release. */

import { expect, onTestFinished, test } from 'vitest';
import { createQueueLetters } from 'respool/rabbit';
import { service, withService } from '../../services/index.ts';
import { limitsForeign, lift, obey } from './foreign.ts';
import { lettersOf } from './queue-letters-ground.ts';
import { type Kind, numberOf, range } from './queues.ts';
import { halfDead, openGround } from './sweep-ground.ts';

const ALL = 200;
/** More often than a quorum queue of 4.0 to 4.2 gives back a message where nobody set a limit. */
const LOOKS = 25;
const isOdd = (value: number): boolean => value % 2 === 1;

withService('rabbitmq', () => {
  test('a foreign queue is refused where it has a limit, with the policy that lifts it', async () => {
    const { queue, target, door, ground } = await laid('foreign');
    const isLimited = await limitsForeign(ground.management);
    const report = await ground.sweep({ queue, target, dryRun: true });
    const caution = await door.caution();
    if (!isLimited) {
      expect(caution.kind).not.toBe('refused');
      expect(report).toMatchObject({ end: 'done', seen: ALL });
      expect(await lettersOf(door)).toHaveLength(ALL);
      return;
    }
    if (caution.kind !== 'refused') throw new Error(`it is ${caution.kind}`);
    expect(report).toMatchObject({ end: 'refused', seen: 0 });
    expect(report.error).toContain('the broker gives it a delivery limit of 20');
    expect(report.error).toContain(caution.remedy);
    await expect(lettersOf(door)).rejects.toMatchObject({ code: 'move.refused' });
    await obey(caution.remedy);
    ground.management.forget();
    expect(await ground.sweep({ queue, target })).toMatchObject({ end: 'done', moved: ALL / 2 });
  });

  test.each<[string, Kind]>([
    ['a foreign queue whose limit is lifted', 'foreign'],
    ['a queue of our own', 'own'],
    ['a classic queue', 'classic'],
  ])('%s keeps everything, however often it is looked at and swept', async (_, kind) => {
    const { queue, target, door, ground } = await laid(kind);
    await lift(queue, ground.management);
    const ids = range(ALL).map((index) => `m${index}`);
    for (let look = 0; look < LOOKS; look += 1) {
      expect((await lettersOf(door)).map(({ id }) => id)).toEqual(ids);
    }
    expect(await ground.sweep({ queue, target })).toMatchObject({ end: 'done', moved: ALL / 2 });
    for (let time = 0; time < LOOKS; time += 1) {
      const again = await ground.sweep({ queue, target, window: 1 + time });
      expect(again).toMatchObject({ end: 'done', seen: ALL / 2, moved: 0 });
    }
    const left = await ground.queues.takeAll(queue, ALL / 2);
    expect(left.map(numberOf)).toEqual(range(ALL).filter(isOdd));
  });
});

/** A dead queue, half of whose messages died too often, and a door to it. */
async function laid(kind: Kind) {
  const ground = await openGround();
  const queue = await ground.queues.declare(kind);
  const target = `${queue}.dead`;
  ground.queues.removeLater(target);
  await ground.queues.fill(queue, ALL, halfDead);
  const { management } = ground;
  const door = createQueueLetters({ url: await service('rabbitmq'), management, queue });
  onTestFinished(() => door.close());
  return { ground, queue, target, door };
}
