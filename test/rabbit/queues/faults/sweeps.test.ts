/**
 * Sweeps that are killed at random moments lose nothing, and what is within the limit lies as it
 * lay. `npm run torture -- dead` does the same with larger numbers.
 */
import { expect, test } from 'vitest';
import { service, withService } from '../../../services/index.ts';
import { freshSeed } from '../../../torture/chance.ts';
import type { Broker } from '../../faults/runs.ts';
import { type SweepsOptions, sweepsKilled } from './sweeps.ts';

const TIMEOUT_MS = 600_000;
const NUMBERS = { letters: 1_000, kills: 5, further: 5 };

withService('rabbitmq', (url) => {
  const run = async (options: Pick<SweepsOptions, 'type' | 'hasJournal'>) => {
    const broker: Broker = { url: url(), managementUrl: await service('rabbitmq-management') };
    return sweepsKilled(broker, { ...NUMBERS, ...options, seed: freshSeed() });
  };

  test.each([
    ['quorum', 'without', false],
    ['classic', 'without', false],
    ['quorum', 'with', true],
  ] as const)(
    'a sweep of a %s queue %s a journal that is killed again and again loses nothing',
    async (type, _with, hasJournal) => {
      const result = await run({ type, hasJournal });
      expect(result.complaints, `seed ${result.seed}`).toEqual([]);
      expect(result).toMatchObject({ messages: 1_000, lost: 0, unexpected: 0, corrupt: 0 });
      expect(result.duplicated).toBeLessThanOrEqual(result.bound);
    },
    TIMEOUT_MS,
  );
});
