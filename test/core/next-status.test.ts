/** The next status of an entry: at insert, claim, heartbeat and settle. */
import { describe, expect, test } from 'vitest';
import { sampleEntry, type SampleParts } from 'respool/testkit';
import { failure, type Lane, type Status } from 'respool';
import {
  claimedStatus,
  extendedStatus,
  handedOffStatus,
  initialStatus,
  keepsBody,
  nextStatus,
  type Retention,
} from '../../src/core/next-status.ts';
import { type ClaimableState, mayMove } from '../../src/core/state.ts';
import {
  because,
  broken,
  CLAIM,
  CLAIMS,
  KEEPING,
  LEAN,
  NOW,
  VERDICTS,
  type VerdictName,
  active,
  context,
  settled,
} from './settling.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../time.ts';

describe('the first status', () => {
  test('is incoming when it is due, deferred when it is not yet', () => {
    const due = initialStatus({ now: NOW, dueAt: NOW, policy: null });
    expect(due).toEqual({
      state: 'incoming',
      lane: 'delivery',
      policy: null,
      revision: 1,
      attempts: 0,
      postponed: 0,
      lost: 0,
      replays: 0,
      notices: 0,
      dueAt: NOW,
      history: [],
      notes: {},
      updatedAt: NOW,
    });
    const later = initialStatus({ now: NOW, dueAt: NOW + 1, policy: 'mail' });
    expect(later).toEqual({ ...due, state: 'deferred', dueAt: NOW + 1, policy: 'mail' });
  });
});

describe('a claim', () => {
  test.each<[Lane, ClaimableState, Partial<Status>]>([
    ['delivery', 'incoming', { attempts: 4, notices: 0, lost: 2 }],
    ['delivery', 'deferred', { attempts: 4, notices: 0, lost: 2 }],
    ['delivery', 'active', { attempts: 3, notices: 0, lost: 3 }],
    ['notice', 'bounce', { attempts: 5, notices: 4, lost: 2 }],
    ['notice', 'active', { attempts: 5, notices: 3, lost: 3 }],
  ])('in lane %s from %s counts %o', (lane, state, counters) => {
    const before = { ...active(lane, 'incoming').status, state };
    const after = claimedStatus(before, CLAIM);
    expect(after).toEqual({
      ...before,
      ...counters,
      state: 'active',
      revision: 8,
      dueAt: NOW + MINUTE_MS,
      holder: 'h/1',
      claimedFrom: state,
      updatedAt: NOW,
    });
  });

  test('handed over with the insert is the same, with one write less', () => {
    const first = initialStatus({ now: NOW, dueAt: NOW, policy: null });
    expect(handedOffStatus(first, CLAIM)).toEqual({ ...claimedStatus(first, CLAIM), revision: 1 });
    expect(handedOffStatus(first, CLAIM)).toMatchObject({ attempts: 1, claimedFrom: 'incoming' });
  });

  test('that is extended only has a longer lease', () => {
    const before = claimedStatus(initialStatus({ now: NOW, dueAt: NOW, policy: null }), CLAIM);
    const later = NOW + 30_000;
    expect(extendedStatus(before, { now: later, leaseMs: MINUTE_MS })).toEqual({
      ...before,
      revision: before.revision + 1,
      dueAt: later + MINUTE_MS,
      updatedAt: later,
    });
  });
});

describe('every verdict on every claim', () => {
  const cases = CLAIMS.flatMap(([lane, from]) =>
    (Object.keys(VERDICTS) as VerdictName[]).flatMap((name) =>
      [LEAN, KEEPING].flatMap((retention) =>
        [true, false].map((announces) => ({ lane, from, name, retention, announces })),
      ),
    ),
  );

  test('is 160 cases', () => {
    expect(cases).toHaveLength(160);
  });

  test.each(cases)(
    '$name in lane $lane from $from is legal, one write, and ends the claim',
    ({ lane, from, name, retention, announces }) => {
      const entry = active(lane, from);
      const before = structuredClone(entry.status);
      const to = nextStatus(entry, VERDICTS[name], context({ retention, announces }));
      expect(entry.status).toEqual(before);
      if (to === 'remove') {
        expect([lane, name, retention.deliveredMs]).toEqual(['delivery', 'ack', null]);
        return;
      }
      expect(mayMove('active', to.state, 'settle')).toBe(true);
      expect(to.revision).toBe(8);
      expect(to.updatedAt).toBe(NOW);
      const isReturned = name === 'release' && from === 'active';
      expect([to.state === 'active', 'holder' in to]).toEqual([isReturned, isReturned]);
      expect(to.replays).toBe(1);
    },
  );
});

describe('an ack', () => {
  test('removes a delivered message, unless it is kept', () => {
    const entry = active('delivery', 'incoming');
    expect(nextStatus(entry, VERDICTS.ack, context())).toBe('remove');
    expect(settled(entry, 'ack', { retention: KEEPING })).toMatchObject({
      state: 'archived',
      ending: 'delivered',
      lane: 'delivery',
      dueAt: NOW + 7 * DAY_MS,
      attempts: 3,
      lost: 0,
    });
  });

  test.each<[string, SampleParts]>([
    ['a dedupe key', { dedupeKey: 'order-42' }],
    ['an id of its caller', { ownId: true }],
  ])('remembers a message with %s for the dedupe window, without its body', (_, parts) => {
    const entry = active('delivery', 'incoming', parts);
    const to = settled(entry, 'ack');
    expect(to).toMatchObject({ state: 'archived', ending: 'delivered', dueAt: NOW + DAY_MS });
    expect(keepsBody(to, LEAN)).toBe(false);
  });

  test('keeps the longer of retention and dedupe window', () => {
    const entry = active('delivery', 'incoming', { dedupeKey: 'k' });
    const brief = { ...KEEPING, deliveredMs: HOUR_MS };
    expect(settled(entry, 'ack', { retention: KEEPING }).dueAt).toBe(NOW + 7 * DAY_MS);
    expect(settled(entry, 'ack', { retention: brief }).dueAt).toBe(NOW + DAY_MS);
  });

  test('takes away why it once waited', () => {
    const entry = active('delivery', 'deferred', { because, lastFailure: broken });
    const to = settled(entry, 'ack', { retention: KEEPING });
    expect('because' in to).toBe(false);
    expect(to.lastFailure).toEqual(broken);
  });

  test('of a notice leaves an announced bounce, due when an operator acts', () => {
    const to = settled(active('notice', 'bounce'), 'ack');
    expect(to).toMatchObject({ state: 'bounce', dueAt: null, ending: 'bounced', notices: 3 });
  });

  test.each(['bounced', 'expired'] as const)(
    'of a notice archives a message that %s, when bounces have a retention',
    (ending) => {
      const to = settled(active('notice', 'bounce', { ending }), 'ack', { retention: KEEPING });
      expect(to).toMatchObject({ state: 'archived', ending, dueAt: NOW + 30 * DAY_MS });
      expect(keepsBody(to, KEEPING)).toBe(true);
    },
  );
});

describe('a deferral', () => {
  test('costs the attempt, waits and says why', () => {
    const to = settled(active('delivery', 'incoming'), 'defer');
    expect(to).toMatchObject({
      state: 'deferred',
      attempts: 3,
      postponed: 2,
      lost: 0,
      dueAt: NOW + 5_000,
      because,
      lastFailure: broken,
    });
  });

  test('that was asked for costs nothing, and is counted as such', () => {
    const entry = active('delivery', 'incoming', { lastFailure: broken });
    const to = settled(entry, 'postpone');
    expect(to).toMatchObject({ state: 'deferred', attempts: 2, postponed: 3, because });
    expect(to.lastFailure).toEqual(broken);
  });

  test.each<[string, number, number]>([
    ['is cut at the expiry', 1_000, 1_000],
    ['may end with the expiry', 5_000, 5_000],
    ['ends before a later expiry', 9_000, 5_000],
    ['is over at once past the expiry', -1_000, -1_000],
  ])('%s', (_, expiresInMs, dueInMs) => {
    const entry = active('delivery', 'incoming', { expiresAt: NOW + expiresInMs });
    for (const name of ['defer', 'postpone'] as const) {
      expect(settled(entry, name).dueAt).toBe(NOW + dueInMs);
    }
  });

  test('of a notice stays in bounce, keeps why it bounced, and knows no expiry', () => {
    const bounced = { code: 'smtp.550', text: 'no such user', by: 'handler' };
    const final = failure('permanent', 'smtp.550', 'no such user');
    const entry = active('notice', 'bounce', {
      because: bounced,
      lastFailure: final,
      expiresAt: NOW - 1,
    });
    expect(settled(entry, 'defer')).toMatchObject({
      state: 'bounce',
      lane: 'notice',
      notices: 3,
      attempts: 5,
      dueAt: NOW + 5_000,
      because: bounced,
      lastFailure: final,
    });
    expect(settled(entry, 'postpone')).toMatchObject({ notices: 2, attempts: 5, postponed: 3 });
  });
});

describe('a bounce', () => {
  test('turns to lane notice, due at once for the bounce handler', () => {
    expect(settled(active('delivery', 'deferred'), 'bounce')).toMatchObject({
      state: 'bounce',
      lane: 'notice',
      ending: 'bounced',
      attempts: 3,
      notices: 0,
      dueAt: NOW,
      because,
      lastFailure: broken,
    });
  });

  test.each<[string, Retention, boolean, Status['state'], number]>([
    ['is kept, to be announced', LEAN, true, 'bounce', 0],
    ['is kept, though nobody announces it yet', LEAN, false, 'bounce', 0],
    ['is announced before its retention begins', KEEPING, true, 'bounce', 0],
    ['is archived at once when nobody announces it', KEEPING, false, 'archived', 30 * DAY_MS],
  ])('%s', (_, retention, announces, state, dueInMs) => {
    for (const name of ['bounce', 'expire'] as const) {
      const to = settled(active('delivery', 'incoming'), name, { retention, announces });
      expect([to.state, to.dueAt, to.lane]).toEqual([state, NOW + dueInMs, 'notice']);
      expect(to.ending).toBe(name === 'bounce' ? 'bounced' : 'expired');
      expect(keepsBody(to, retention)).toBe(true);
    }
  });

  test('by expiry gives the attempt back', () => {
    expect(settled(active('delivery', 'incoming'), 'expire').attempts).toBe(2);
    expect(settled(active('delivery', 'incoming'), 'bounce').attempts).toBe(3);
  });

  test('of a notice leaves it in bounce for an operator; it is never delivered again', () => {
    for (const retention of [LEAN, KEEPING]) {
      const to = settled(active('notice', 'bounce'), 'bounce', { retention });
      expect(to).toMatchObject({ state: 'bounce', lane: 'notice', dueAt: null, notices: 3 });
    }
  });
});

describe('a hold', () => {
  test.each<[VerdictName, Lane, number, number]>([
    ['hold', 'delivery', 3, 0],
    ['free hold', 'delivery', 2, 0],
    ['hold', 'notice', 5, 3],
    ['free hold', 'notice', 5, 2],
  ])('by %s in lane %s leaves %d attempts and %d notices', (name, lane, attempts, notices) => {
    const entry = active(lane, lane === 'delivery' ? 'incoming' : 'bounce');
    expect(settled(entry, name)).toMatchObject({
      state: 'hold',
      lane,
      dueAt: null,
      because,
      attempts,
      notices,
    });
  });
});

describe('a release', () => {
  test.each<[Lane, ClaimableState, Status['state'], number, number]>([
    ['delivery', 'incoming', 'incoming', 2, 0],
    ['delivery', 'deferred', 'deferred', 2, 0],
    ['notice', 'bounce', 'bounce', 5, 2],
  ])('in lane %s from %s goes to %s', (lane, from, state, attempts, notices) => {
    const to = settled(active(lane, from), 'release');
    expect(to).toMatchObject({ state, lane, attempts, notices, dueAt: NOW, lost: 2 });
  });

  // Regression: it was deferred, and a message that had spent its attempts got one more.
  test.each<Lane>(['delivery', 'notice'])(
    'in lane %s of a lost message returns it unjudged, with its lease over',
    (lane) => {
      const { status } = active(lane, 'active');
      const to = settled(active(lane, 'active'), 'release');
      expect(to).toEqual({ ...status, revision: 8, lost: 1, dueAt: NOW, updatedAt: NOW });
      const again = claimedStatus(to, CLAIM);
      expect(again).toMatchObject({ lost: 2, claimedFrom: 'active', attempts: status.attempts });
    },
  );

  test('undoes the claim, up to the revision', () => {
    const before = sampleEntry('m-1', { state: 'deferred', attempts: 4, dueAt: NOW });
    const after = { ...before, status: claimedStatus(before.status, CLAIM) };
    expect(settled(after, 'release')).toEqual({ ...before.status, revision: 3, updatedAt: NOW });
  });
});
