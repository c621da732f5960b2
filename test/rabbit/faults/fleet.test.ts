/**
 * Consumers on one queue with failing handlers: nothing is lost while they are killed, while their
 * connections are cut, and while their bindings are removed. `npm run torture -- rabbit` does the
 * same with larger numbers.
 */
import { expect, test } from 'vitest';
import { service, withService } from '../../services/index.ts';
import { freshSeed } from '../../torture/chance.ts';
import type { FlowResult } from './flow.ts';
import { type Broker, CUTS, cuts, kills, removals } from './runs.ts';

const TIMEOUT_MS = 600_000;

withService('rabbitmq', (url) => {
  const broker = async (): Promise<Broker> => ({
    url: url(),
    managementUrl: await service('rabbitmq-management'),
  });

  test(
    'consumers that are killed again and again lose nothing',
    async () => {
      const result = await kills(await broker(), { kills: 5, consumers: 2, seed: freshSeed() });
      expectWell(result);
      expect(result.kills).toBeGreaterThanOrEqual(5);
    },
    TIMEOUT_MS,
  );

  test(
    'connections that are cut come back, and nothing is lost',
    async () => {
      const options = { cuts: 5, spoils: CUTS, consumers: 2, seed: freshSeed() };
      expectWell(await cuts(await broker(), options));
    },
    TIMEOUT_MS,
  );

  test(
    'a retry exchange that is deleted and a wait queue that is unbound come back under load',
    async () => {
      const options = { removals: 4, consumers: 2, seed: freshSeed() };
      expectWell(await removals(await broker(), options));
    },
    TIMEOUT_MS,
  );
});

function expectWell(result: FlowResult): void {
  expect(result.complaints, `seed ${result.seed}`).toEqual([]);
  expect(result).toMatchObject({ lost: 0, unexpected: 0, corrupt: 0, late: 0 });
  expect(result.duplicated).toBeLessThanOrEqual(result.bound);
  expect(result.messages).toBeGreaterThan(50);
}
