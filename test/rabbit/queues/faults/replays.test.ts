/**
 * Replays that are killed, cancelled, or whose destination breaks half way: nothing is lost, and
 * nothing is sent twice. `npm run torture -- dead` does the same with larger numbers.
 */
import { expect, test } from 'vitest';
import { service, withService } from '../../../services/index.ts';
import { freshSeed } from '../../../torture/chance.ts';
import type { Broker } from '../../faults/runs.ts';
import * as replays from './replays.ts';

const TIMEOUT_MS = 600_000;
const LETTERS = 1_000;
const KILLS = 3;

withService('rabbitmq', (url) => {
  const broker = async (): Promise<Broker> => ({
    url: url(),
    managementUrl: await service('rabbitmq-management'),
  });

  test.each(['unbound', 'full'] as const)(
    'a replay whose destination is %s half way is stopped, and resumed when it is mended',
    async (how) => {
      const options = { how, letters: LETTERS, seed: freshSeed() };
      const result = await replays.replayBroken(await broker(), options);
      expectWell(result);
      expect(result).toMatchObject({ duplicated: 0, replay: { counts: { sent: LETTERS } } });
    },
    TIMEOUT_MS,
  );

  test(
    'a replay that is killed again and again sends nothing twice, and tells what is unsure',
    async () => {
      const options = { kills: KILLS, letters: LETTERS, seed: freshSeed() };
      expectWell(await replays.replayKilled(await broker(), options));
    },
    TIMEOUT_MS,
  );

  test(
    'a replay that is cancelled leaves every message where it was or where it should be',
    async () => {
      const options = { letters: LETTERS, seed: freshSeed() };
      const result = await replays.replayCancelled(await broker(), options);
      expectWell(result);
      expect(result.duplicated).toBe(0);
    },
    TIMEOUT_MS,
  );
});

function expectWell(result: replays.ReplaysResult): void {
  expect(result.complaints, `seed ${result.seed}`).toEqual([]);
  expect(result).toMatchObject({ messages: LETTERS, lost: 0, unexpected: 0, corrupt: 0 });
}
