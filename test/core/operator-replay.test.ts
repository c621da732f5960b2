/** What a replay makes of an entry, in every state. */
import { describe, expect, test } from 'vitest';
import { type Entry, failure, type State } from 'respool';
import { SAMPLE_AT, sampleEntry, type SampleParts } from 'respool/testkit';
import { changedHeaders, type OperatorAction, operatorMove } from '../../src/core/operator.ts';
import { DAY_MS, HOUR_MS } from '../time.ts';

const NOW = SAMPLE_AT + HOUR_MS;
const CONTEXT = {
  now: NOW,
  by: 'ann',
  retention: {
    deliveredMs: null,
    bouncedMs: null,
    removedMs: 7 * DAY_MS,
    dedupeWindowMs: 30 * DAY_MS,
  },
};
const REPLAY: OperatorAction = { kind: 'replay', replay: 'r1' };
const WHY = { code: 'smtp.550', text: 'no such user', by: 'handler' };
const LAST = failure('permanent', 'smtp.550', 'no such user');

const SHAPES: Readonly<Record<State | 'lost', SampleParts>> = {
  incoming: { dueAt: SAMPLE_AT },
  active: { holder: 'h/1', claimedFrom: 'deferred', dueAt: NOW + 1 },
  lost: { holder: 'h/1', claimedFrom: 'deferred', dueAt: NOW },
  deferred: { attempts: 2, dueAt: NOW + DAY_MS },
  hold: { attempts: 2, dueAt: null },
  bounce: { notices: 1, lane: 'notice', ending: 'bounced', dueAt: null },
  archived: { ending: 'removed', dueAt: NOW + DAY_MS },
};

function entryIn(shape: State | 'lost', parts: SampleParts = {}): Entry {
  const state: State = shape === 'lost' ? 'active' : shape;
  return sampleEntry('m-1', { revision: 4, ...SHAPES[shape], state, ...parts });
}

describe('a replay', () => {
  test.each<State>(['bounce', 'hold', 'archived'])(
    'of a message in %s is a new round, counted and marked',
    (state) => {
      const parts = { because: WHY, lastFailure: LAST, attempts: 9, lost: 2, replays: 1 };
      const entry = entryIn(state, parts);
      const answer = operatorMove(entry, REPLAY, CONTEXT);
      if (answer.kind === 'refused' || answer.to === 'remove') throw new Error('it was not sent');
      const { to, envelope } = answer;
      expect(to).toMatchObject({
        state: 'incoming',
        lane: 'delivery',
        attempts: 0,
        notices: 0,
        lost: 0,
        replays: 2,
        dueAt: NOW,
        revision: 5,
        updatedAt: NOW,
        lastFailure: LAST,
      });
      expect('ending' in to || 'because' in to || 'holder' in to).toBe(false);
      expect(envelope).toEqual({
        ...entry.envelope,
        headers: { ...entry.envelope.headers, 'respool-replay': 'r1' },
      });
    },
  );

  test.each<[State | 'lost', string]>([
    ['incoming', 'it is incoming; only what bounced, is archived or held can be'],
    ['active', 'it is active, leased by "h/1"'],
    ['lost', 'it is active; only what bounced'],
    ['deferred', 'it is deferred; only what bounced'],
  ])('of a message that is %s is refused, with the reason', (shape, why) => {
    const answer = operatorMove(entryIn(shape), REPLAY, CONTEXT);
    expect(answer).toMatchObject({
      kind: 'refused',
      text: expect.stringContaining(`cannot replay message "m-1": ${why}`),
    });
  });

  test('takes an expiry away that is over, and only that', () => {
    const { envelope, status } = entryIn('hold');
    const expiring = (expiresAt: number) =>
      operatorMove({ envelope: { ...envelope, expiresAt }, status }, REPLAY, CONTEXT);
    expect(expiring(NOW)).not.toHaveProperty('envelope.expiresAt');
    expect(expiring(NOW + 1)).toHaveProperty('envelope.expiresAt', NOW + 1);
  });

  test('can change topic and headers on the way', () => {
    const { envelope, status } = entryIn('bounce');
    const entry = { envelope: { ...envelope, headers: { keep: 'a', drop: 'b' } }, status };
    const headers = { drop: null, add: 'c' };
    const action = { ...REPLAY, topic: 'other', headers, contentType: 'text/csv' };
    expect(operatorMove(entry, action, CONTEXT)).toMatchObject({
      envelope: {
        topic: 'other',
        headers: { keep: 'a', add: 'c', 'content-type': 'text/csv', 'respool-replay': 'r1' },
      },
    });
    expect(entry.envelope.headers).toEqual({ keep: 'a', drop: 'b' });
  });

  test('is refused when the body was not kept', () => {
    const { envelope, status } = entryIn('archived', { ending: 'delivered' });
    const bare = { ...envelope, body: { ...envelope.body, place: 'none' as const } };
    expect(operatorMove({ envelope: bare, status }, REPLAY, CONTEXT)).toMatchObject({
      kind: 'refused',
      text: expect.stringContaining('its body was not kept'),
    });
  });
});

test.each<[State, OperatorAction]>([
  ['archived', REPLAY],
  ['archived', { kind: 'retry' }],
  ['hold', { kind: 'retry' }],
  ['hold', { kind: 'bounce', reason: 'why' }],
  ['archived', { kind: 'hold', reason: 'why' }],
])('a copy of a message of a broker that is %s is not delivered by %j', (state, action) => {
  const { envelope, status } = entryIn(state);
  const copy = { envelope: { ...envelope, headers: { 'respool-amqp': '{}' } }, status };
  expect(operatorMove(copy, action, CONTEXT)).toMatchObject({
    kind: 'refused',
    text: expect.stringContaining('run: respool dlq restore'),
  });
});

test('a copy of a message of a broker that an earlier version held goes back to the archive', () => {
  const { envelope, status } = entryIn('hold', { ending: 'removed' });
  const copy = { envelope: { ...envelope, headers: { 'respool-amqp': '{}' } }, status };
  expect(operatorMove(copy, { kind: 'release' }, CONTEXT)).toMatchObject({
    kind: 'do',
    to: { state: 'archived', ending: 'removed', dueAt: NOW + 7 * DAY_MS },
  });
});

test('a content type replaces the one that is there, however it is written', () => {
  const given = { 'Content-Type': 'a/b', x: '1' };
  expect(changedHeaders(given, { contentType: 'c/d' })).toEqual({ x: '1', 'content-type': 'c/d' });
  expect(changedHeaders(given, {})).toEqual(given);
});
