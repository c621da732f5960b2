/** The judge of the fault tests is judged first: shown a bad run, it must complain. */
import { describe, expect, test } from 'vitest';
import { type Evidence, type Found, judgeRun, NOT_DUE } from '../torture/checker.ts';
import type { Effect, Facts, Written } from '../torture/ledger.ts';

/** One accepted and delivered message, unless told otherwise. */
function evidence(
  change: {
    readonly messages?: readonly Partial<Written>[];
    readonly effects?: readonly Partial<Effect>[];
    readonly found?: readonly Partial<Found>[];
    readonly completions?: Facts['completions'];
    readonly settledClaims?: Facts['completions'];
    readonly more?: Partial<Evidence>;
    readonly expiries?: number;
  } = {},
): Evidence {
  const { messages = [{}], effects = [{}], found = [], completions = new Map() } = change;
  const written = messages.map(
    (message): Written => ({
      key: 'a',
      plan: 'ok',
      size: 1,
      sha256: 'right',
      hasOwnId: true,
      outcome: 'ok',
      wasUnknown: false,
      removal: 'none',
      ...message,
    }),
  );
  return {
    facts: {
      messages: new Map(written.map((message) => [message.key, message])),
      effects: effects.map((effect, at) => ({
        key: 'a',
        kind: 'delivered',
        fence: `a:${at}`,
        attempt: 1,
        sha256: 'right',
        pid: 1,
        ...effect,
      })),
      completions,
      settledClaims: change.settledClaims ?? new Map(),
      expiries: change.expiries ?? 0,
      stale: 0,
    },
    found: found.map((entry) => ({ key: 'a', state: 'incoming', sha256: 'right', ...entry })),
    kills: 0,
    concurrency: 8,
    attemptsMax: 5,
    ...change.more,
  };
}

/** Named as they stand in a verdict, with the evidence that must bring them about. */
const BAD: Readonly<Record<string, Evidence>> = {
  'accepted and lost': evidence({ effects: [] }),
  'accepted and lost: a': evidence({ effects: [], found: [{ state: 'archived' }] }),
  'that nobody enqueued': evidence({ effects: [{}, { key: 'stranger' }] }),
  'that nobody enqueued: stranger': evidence({ found: [{ key: 'stranger', state: 'hold' }] }),
  'that nobody enqueued: a': evidence({ messages: [{ outcome: 'refused' }] }),
  'other bytes than were accepted': evidence({ effects: [{ sha256: 'wrong' }] }),
  'other bytes than were accepted: a': evidence({ found: [{ state: 'hold', sha256: 'wrong' }] }),
  'duplicates, the bound is 0': evidence({ effects: [{}, {}] }),
  'removed and still there': evidence({
    messages: [{ plan: 'remove', removal: 'done' }],
    effects: [],
    found: [{ state: 'deferred', code: NOT_DUE }],
  }),
  'that wait although nothing is left to do': evidence({ found: [{ state: 'deferred' }] }),
  'with two entries': evidence({ found: [{ state: 'hold' }, { state: 'hold' }] }),
  'handled twice under one fence': evidence({
    effects: [{ fence: 'a:1' }, { fence: 'a:1' }],
    more: { kills: 1 },
  }),
  'settled as delivered more than once': evidence({ completions: new Map([['a', 2]]) }),
  'settled twice under one claim': evidence({ settledClaims: new Map([['a a:1', 2]]) }),
  'given to two handlers under a valid lease': evidence({
    effects: [
      { kind: 'begun', fence: 'a:1', pid: 1, askedAt: 1_000, answeredAt: 1_010 },
      { kind: 'begun', fence: 'a:2', pid: 2, askedAt: 1_900, answeredAt: 1_990 },
      { fence: 'a:2', pid: 2 },
    ],
    more: { leaseMs: 1_000, kills: 1 },
  }),
  'tried more than 5 times': evidence({ effects: [{ attempt: 6 }] }),
};

describe('the checker', () => {
  test('finds nothing wrong with a message that was accepted and delivered once', () => {
    expect(judgeRun(evidence())).toMatchObject({ lost: 0, duplicated: 0, complaints: [] });
  });

  test.each(Object.entries(BAD))('complains of messages "%s"', (complaint, run) => {
    expect(judgeRun(run).complaints.join('\n')).toContain(complaint);
  });

  test('allows as many duplicates as kills, unknown outcomes and lost leases explain', () => {
    const twice = { effects: [{}, {}] };
    expect(judgeRun(evidence({ ...twice, more: { kills: 1 } })).bound).toBe(8);
    expect(judgeRun(evidence({ ...twice, messages: [{ wasUnknown: true }] })).bound).toBe(1);
    expect(judgeRun(evidence({ ...twice, expiries: 1 })).complaints).toEqual([]);
  });

  test('allows two handlers for a message when the first one ended, lost its lease or is gone', () => {
    const begun = { kind: 'begun', askedAt: 1_000, answeredAt: 1_010 } as const;
    const first = { ...begun, fence: 'a:1', pid: 1 };
    const second = { ...begun, fence: 'a:2', pid: 2, askedAt: 1_100, answeredAt: 1_110 };
    const last = { fence: 'a:2', pid: 2 };
    const more = { leaseMs: 1_000 };
    const fine = [
      evidence({ effects: [first, { kind: 'failed', fence: 'a:1' }, second, last], more }),
      evidence({ effects: [first, { ...second, answeredAt: 2_000 }, last], more }),
      evidence({ effects: [first, second, last], more: { ...more, seenGone: new Set([1]) } }),
    ];
    expect(fine.flatMap((run) => judgeRun(run).complaints)).toEqual([]);
  });

  test('allows what a crashed server forgot, and no more', () => {
    const twice = { effects: [{}, {}], completions: new Map([['a', 2]]) };
    expect(judgeRun(evidence({ ...twice, more: { forgotten: 1 } })).complaints).toEqual([]);
    expect(judgeRun(evidence({ ...twice, more: { forgotten: 0 } })).complaints).toHaveLength(2);
  });

  test('does not miss a message whose enqueue was never acknowledged', () => {
    const run = evidence({ messages: [{ outcome: 'unknown', wasUnknown: true }], effects: [] });
    expect(judgeRun(run)).toMatchObject({ lost: 0, recovered: 0, complaints: [] });
  });

  test('counts a held, a bounced and a removed message as safe', () => {
    const safe = [
      evidence({ messages: [{ plan: 'hold' }], effects: [], found: [{ state: 'hold' }] }),
      evidence({ messages: [{ plan: 'permanent' }], effects: [], found: [{ state: 'bounce' }] }),
      evidence({ messages: [{ plan: 'permanent' }], effects: [{ kind: 'notice' }] }),
      evidence({ messages: [{ plan: 'remove', removal: 'done' }], effects: [] }),
      evidence({ messages: [{ plan: 'remove', removal: 'asked' }], effects: [] }),
    ];
    expect(safe.flatMap((run) => judgeRun(run).complaints)).toEqual([]);
  });

  test('misses a message to be removed that is gone before anybody asked for it', () => {
    const run = evidence({ messages: [{ plan: 'remove' }], effects: [] });
    expect(judgeRun(run).lost).toBe(1);
  });
});
