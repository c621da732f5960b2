import { describe, expect, test } from 'vitest';
import { SimClock } from 'respool/testkit';

const START = Date.UTC(2026, 0, 1);

/** A clock and a list of what happened when, in milliseconds since the start. */
function setup(options: ConstructorParameters<typeof SimClock>[0] = {}) {
  const clock = new SimClock(options);
  const seen: string[] = [];
  const note = (what: string) => () => {
    seen.push(`${what}@${clock.monotonic()}`);
  };
  const sleep = (ms: number) => new Promise<void>((resolve) => void clock.after(ms, resolve));
  return { clock, seen, note, sleep };
}

describe('virtual time', () => {
  test('starts at the first of January 2026 and stands still', async () => {
    const { clock } = setup();
    expect(clock.now()).toBe(START);
    expect(clock.monotonic()).toBe(0);
    await clock.advance(0);
    expect(clock.now()).toBe(START);
  });

  test('starts when it is told to', () => {
    expect(setup({ startAt: 5 }).clock.now()).toBe(5);
  });

  test('moves by spans as people write them', async () => {
    const { clock } = setup();
    await clock.advance('1h30m');
    expect(clock.now()).toBe(START + 5_400_000);
    expect(clock.monotonic()).toBe(5_400_000);
  });

  test('moves to a time, and refuses one that is over', async () => {
    const { clock, seen, note } = setup();
    clock.after(10, note('a'));
    await clock.advanceTo(START + 10);
    expect(seen).toEqual(['a@10']);
    await expect(clock.advanceTo(START)).rejects.toMatchObject({ code: 'config.invalid' });
    await expect(clock.advanceTo(Number.NaN)).rejects.toMatchObject({ code: 'config.invalid' });
  });

  test('refuses a span that is none', async () => {
    await expect(setup().clock.advance(-1)).rejects.toMatchObject({ code: 'config.invalid' });
  });

  test('refuses to be moved by two at once', async () => {
    const { clock } = setup();
    const first = clock.advance(10);
    await expect(clock.advance(10)).rejects.toMatchObject({ code: 'config.invalid' });
    await first;
    expect(clock.monotonic()).toBe(10);
  });
});

describe('timers', () => {
  test('run by due time, then by the order of their making, each at its instant', async () => {
    const { clock, seen, note } = setup();
    clock.after(20, note('c'));
    clock.after(10, note('a'));
    clock.after(10, note('b'));
    clock.after(31, note('late'));
    await clock.advance(30);
    expect(seen).toEqual(['a@10', 'b@10', 'c@20']);
    expect(clock.monotonic()).toBe(30);
    expect(clock.timers).toBe(1);
  });

  test('run not a millisecond early', async () => {
    const { clock, seen, note } = setup();
    clock.after(10, note('a'));
    await clock.advance(9);
    expect(seen).toEqual([]);
    await clock.advance(1);
    expect(seen).toEqual(['a@10']);
  });

  test('with a part of a millisecond run after it', async () => {
    const { clock, seen, note } = setup();
    clock.after(1.2, note('a'));
    clock.after(-5, note('b'));
    clock.after(Number.NaN, note('c'));
    await clock.advance(5);
    expect(seen).toEqual(['b@0', 'c@0', 'a@2']);
  });

  test('that were called off do not run', async () => {
    const { clock, seen, note } = setup();
    const callOff = clock.after(10, note('a'));
    clock.after(5, () => callOff());
    clock.after(10, note('b'));
    await clock.advance(20);
    callOff();
    expect(seen).toEqual(['b@10']);
    expect(clock.timers).toBe(0);
  });

  test('that are made by timers run within the same advance, if they are due in it', async () => {
    const { clock, seen, note } = setup();
    clock.after(10, () => {
      clock.after(0, note('at once'));
      clock.after(5, note('inside'));
      clock.after(100, note('outside'));
    });
    await clock.advance(20);
    expect(seen).toEqual(['at once@10', 'inside@15']);
    expect(clock.nextTimerAt).toBe(START + 110);
  });

  test('a chain of waits and promises goes on at the right instants', async () => {
    const { clock, seen, note, sleep } = setup();
    const work = async () => {
      for (let round = 0; round < 3; round += 1) {
        await sleep(10);
        for (let depth = 0; depth < 50; depth += 1) await Promise.resolve();
        note(`round ${round}`)();
      }
    };
    void work();
    await clock.advance(100);
    expect(seen).toEqual(['round 0@10', 'round 1@20', 'round 2@30']);
  });

  test('what a timer sets off has settled before the next timer runs', async () => {
    const { clock, seen, note } = setup();
    clock.after(10, () => {
      void (async () => {
        for (let depth = 0; depth < 100; depth += 1) await Promise.resolve();
        note('settled')();
      })();
    });
    clock.after(10, note('next'));
    await clock.advance(10);
    expect(seen).toEqual(['settled@10', 'next@10']);
  });

  test('a timer that throws makes the advance fail, and the clock can go on', async () => {
    const { clock, seen, note } = setup();
    clock.after(10, () => {
      throw new Error('oops');
    });
    clock.after(20, note('after'));
    await expect(clock.advance(30)).rejects.toThrow('oops');
    await clock.advance(30);
    expect(seen).toEqual(['after@20']);
  });

  test('a timer without an end is never due', async () => {
    const { clock, seen, note } = setup();
    const callOff = clock.after(Number.POSITIVE_INFINITY, note('never'));
    await clock.advance('3650d');
    expect(seen).toEqual([]);
    expect(clock.timers).toBe(1);
    callOff();
    expect(clock.timers).toBe(0);
    expect(clock.nextTimerAt).toBeNull();
  });

  test('a thousand of them in any order run in their order', async () => {
    const { clock } = setup();
    const ran: number[] = [];
    const callOffs: (() => void)[] = [];
    for (let n = 0; n < 1_000; n += 1) {
      const ms = (n * 7_919) % 1_000;
      callOffs.push(clock.after(ms, () => ran.push(clock.monotonic())));
    }
    for (let n = 0; n < 1_000; n += 3) callOffs[n]?.();
    await clock.advance(1_000);
    expect(ran).toHaveLength(666);
    expect(ran).toEqual(ran.toSorted((one, other) => one - other));
  });
});

describe('soon', () => {
  test('runs in the same instant, without the clock being moved', async () => {
    const { clock, seen, note } = setup();
    clock.soon(note('soon'));
    expect(seen).toEqual([]);
    await Promise.resolve();
    expect(seen).toEqual(['soon@0']);
  });

  test('runs after what was queued before it', async () => {
    const { clock, seen, note } = setup();
    queueMicrotask(note('before'));
    clock.soon(note('soon'));
    await clock.settle();
    expect(seen).toEqual(['before@0', 'soon@0']);
  });

  test('a chain of them belongs to the instant it began in', async () => {
    const { clock, seen, note } = setup();
    const again = (left: number) => {
      if (left > 0) clock.soon(() => again(left - 1));
      else note('end')();
    };
    clock.after(10, () => again(100));
    clock.after(11, note('next'));
    await clock.advance(20);
    expect(seen).toEqual(['end@10', 'next@11']);
  });
});

describe('a jump', () => {
  test('moves the wall clock, and neither spans nor timers notice', async () => {
    const { clock, seen, note } = setup();
    clock.after(100, note('a'));
    clock.jump(3_600_000);
    expect(clock.now()).toBe(START + 3_600_000);
    expect(clock.monotonic()).toBe(0);
    await clock.advance(99);
    expect(seen).toEqual([]);
    await clock.advance(1);
    expect(seen).toEqual(['a@100']);
    clock.jump(-7_200_000);
    expect(clock.now()).toBe(START - 3_600_000 + 100);
    expect(clock.monotonic()).toBe(100);
  });
});

test('work that never comes to rest is refused instead of hanging', async () => {
  const { clock } = setup();
  // Asks for another timer of this instant in every turn of the real loop.
  let isOver = false;
  const restless = () => {
    clock.after(1e6, () => {})();
    if (!isOver) setImmediate(restless);
  };
  restless();
  await expect(clock.advance(10)).rejects.toMatchObject({ code: 'limit.exceeded' });
  isOver = true;
});
