/** breaker — closed, open and half-open: when it opens, how long it pauses, what closes it. */
import { SimClock } from 'respool/testkit';
import { expect, test } from 'vitest';
import { Breaker, type BreakerOptions } from '../../src/system/breaker.ts';

function setup(options: Partial<BreakerOptions> = {}) {
  const clock = new SimClock();
  const changes: string[] = [];
  const breaker = new Breaker({
    clock,
    failures: 3,
    pause: { firstMs: 1_000, maxMs: 4_000 },
    onChange: (state) => changes.push(state),
    ...options,
  });
  return { clock, changes, breaker };
}

test('failures in a row open it, and a success in between begins the count again', () => {
  const { breaker, changes } = setup();
  expect([breaker.fail(), breaker.fail()]).toEqual([undefined, undefined]);
  breaker.reset();
  expect([breaker.fail(), breaker.fail(), breaker.fail()]).toEqual([undefined, undefined, 1_000]);
  expect(changes).toEqual(['open']);
});

test('its pause goes by, and a trial that succeeds closes it', async () => {
  const { breaker, changes, clock } = setup({ failures: 1 });
  breaker.fail();
  expect(breaker.waitMs()).toBe(1_000);
  await clock.advance(400);
  expect(breaker.waitMs()).toBe(600);
  await clock.advance(600);
  expect([breaker.waitMs(), breaker.state]).toEqual([0, 'open']);
  breaker.halfOpen();
  breaker.succeed();
  expect(changes).toEqual(['open', 'half-open', 'closed']);
  expect(breaker.openings).toBe(0);
});

test('each trial that fails doubles the pause up to its maximum', () => {
  const { breaker } = setup({ failures: 1 });
  const pauses = [breaker.fail()];
  for (let trials = 0; trials < 3; trials += 1) {
    breaker.halfOpen();
    pauses.push(breaker.fail());
  }
  expect(pauses).toEqual([1_000, 2_000, 4_000, 4_000]);
  expect(breaker.openings).toBe(4);
  breaker.succeed();
  expect(breaker.fail()).toBe(1_000);
});

test('one failure opens a half-open one, whatever a closed one takes', () => {
  const { breaker, changes } = setup({ failures: 100, state: 'half-open' });
  expect(breaker.fail()).toBe(1_000);
  expect(changes).toEqual(['open']);
});

test('what began before it opened changes no state and no pause', () => {
  const { breaker, changes } = setup({ failures: 1 });
  breaker.fail();
  expect(breaker.fail()).toBeUndefined();
  breaker.reset();
  expect(breaker.waitMs()).toBe(1_000);
  expect(changes).toEqual(['open']);
});

test('a call of halfOpen() without a pause does nothing', () => {
  const { breaker, changes } = setup();
  breaker.halfOpen();
  breaker.succeed();
  expect(changes).toEqual([]);
});
