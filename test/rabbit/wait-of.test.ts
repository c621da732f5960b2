/** How long a deferred message waits in all is what its wait queues do, not what was asked for. */
import { expect, test } from 'vitest';
import { remainingWait, totalWaitMs } from '../../src/rabbit/consume/settle.ts';
import type { QueuePlan } from 'respool/rabbit';
import type { Past } from '../../src/rabbit/message-history.ts';

/** A plan with these wait queues: the longest that is not longer than the delay, or the first. */
function planOf(waitsMs: readonly number[]): QueuePlan {
  const wait: QueuePlan['wait'] = ({ delayMs }) => {
    const waitMs = waitsMs.findLast((ms) => ms <= delayMs) ?? waitsMs[0] ?? 0;
    return { exchange: '', routingKey: `wait.${waitMs}`, waitMs } as unknown as ReturnType<
      QueuePlan['wait']
    >;
  };
  return { wait } as QueuePlan;
}

const past = (restMs: number): Past => ({ restMs, attempts: 1, routingKey: 'q' }) as Past;

test.each([
  ['one queue of its length', [1_000, 5_000], 5_000, 5_000],
  ['a chain of queues, the last of them longer than the rest', [1_000, 5_000], 7_500, 8_000],
  ['the shortest queue where it is shorter than any', [1_000, 5_000], 10, 1_000],
] as const)('it waits in %s', (_, waitsMs, askedMs, totalMs) => {
  const plan = planOf(waitsMs);
  expect(totalWaitMs(remainingWait(past(askedMs), plan), plan)).toBe(totalMs);
});

test('a step that does not wait is due at once', () => {
  const plan = planOf([1_000]);
  expect(
    totalWaitMs({ route: { exchange: '', routingKey: 'q' } as never, past: past(0) }, plan),
  ).toBe(0);
});
