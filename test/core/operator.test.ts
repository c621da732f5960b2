/** What an operator may do, in every state. */
import { describe, expect, test } from 'vitest';
import { type Entry, failure, type State, STATES, type Status } from 'respool';
import { SAMPLE_AT, sampleEntry, type SampleParts } from 'respool/testkit';
import { REASON_MAX_CHARS } from '../../src/core/failure.ts';
import type { Retention } from '../../src/core/next-status.ts';
import { actionToReach, type OperatorAction, operatorMove } from '../../src/core/operator.ts';
import { mayMove } from '../../src/core/state.ts';
import { DAY_MS, HOUR_MS } from '../time.ts';

const NOW = SAMPLE_AT + HOUR_MS;
const retention: Retention = {
  deliveredMs: null,
  bouncedMs: null,
  removedMs: 7 * DAY_MS,
  dedupeWindowMs: 30 * DAY_MS,
};
const CONTEXT = { now: NOW, by: 'ann', retention };

const ACTIONS = {
  hold: { kind: 'hold', reason: 'wait for legal' },
  release: { kind: 'release' },
  retry: { kind: 'retry' },
  bounce: { kind: 'bounce', reason: 'never mind' },
  remove: { kind: 'remove', hard: false, reason: 'junk' },
  'hard remove': { kind: 'remove', hard: true, reason: 'junk' },
  setPolicy: { kind: 'setPolicy', policy: 'patient' },
  touch: { kind: 'touch' },
} as const satisfies Record<string, OperatorAction>;
type ActionName = keyof typeof ACTIONS;

/** What the entry looks like in each state; `lost` is active with its lease over. */
const SHAPES: Readonly<Record<State | 'lost', SampleParts>> = {
  incoming: { dueAt: SAMPLE_AT },
  active: { attempts: 2, holder: 'h/1', claimedFrom: 'deferred', dueAt: NOW + 1 },
  lost: { attempts: 2, holder: 'h/1', claimedFrom: 'deferred', dueAt: NOW },
  deferred: { attempts: 2, dueAt: NOW + DAY_MS },
  hold: { attempts: 2, dueAt: null },
  bounce: { attempts: 10, notices: 1, lane: 'notice', ending: 'bounced', dueAt: null },
  archived: { attempts: 1, ending: 'removed', dueAt: NOW + DAY_MS },
};

function entryIn(shape: State | 'lost', parts: SampleParts = {}): Entry {
  const state: State = shape === 'lost' ? 'active' : shape;
  return sampleEntry('m-1', { revision: 4, ...SHAPES[shape], state, ...parts });
}

function done(entry: Entry, action: OperatorAction): Status {
  const answer = operatorMove(entry, action, CONTEXT);
  if (answer.kind === 'refused') throw new Error(answer.text);
  if (answer.to === 'remove') throw new Error('it was removed');
  return answer.to;
}

function refusedText(entry: Entry, action: OperatorAction): string {
  const answer = operatorMove(entry, action, CONTEXT);
  if (answer.kind === 'do') throw new Error('it was done');
  return answer.text;
}

/** Rows: state. Columns: action. The state it leads to, `gone`, `same`, or `-` refused. */
const TABLE = `
            hold  release   retry     bounce  remove    hardRemove  setPolicy  touch
  incoming  hold  -         -         bounce  archived  gone        same       same
  active    -     -         -         -       -         -           -          -
  lost      hold  -         incoming  bounce  archived  gone        -          -
  deferred  hold  -         incoming  bounce  archived  gone        same       same
  hold      -     incoming  incoming  bounce  archived  gone        same       same
  bounce    hold  -         incoming  -       archived  gone        same       same
  archived  hold  -         incoming  -       -         gone        same       same
`;

function expectations(): [ActionName, State | 'lost', string][] {
  const [, head, ...rows] = TABLE.trimEnd().split('\n');
  const columns = (head ?? '')
    .trim()
    .split(/\s+/)
    .map((name) => (name === 'hardRemove' ? 'hard remove' : name)) as ActionName[];
  return rows.flatMap((row) => {
    const [shape, ...cells] = row.trim().split(/\s+/) as [State | 'lost', ...string[]];
    return cells.map((cell, at): [ActionName, State | 'lost', string] => [
      columns[at] ?? 'touch',
      shape,
      cell,
    ]);
  });
}

describe('every action in every state', () => {
  const cases = expectations();

  test('is a table of 7 shapes × 8 actions', () => {
    expect(cases).toHaveLength(56);
  });

  test.each(cases)('%s of a message that is %s: %s', (name, shape, cell) => {
    const entry = entryIn(shape);
    const before = structuredClone(entry.status);
    const answer = operatorMove(entry, ACTIONS[name], CONTEXT);
    expect(entry.status).toEqual(before);
    if (answer.kind === 'refused') {
      expect(cell).toBe('-');
      expect(answer.text).toMatch(/^cannot .+ message "m-1": .+/);
    } else if (answer.to === 'remove') expect(cell).toBe('gone');
    else {
      const { to } = answer;
      expect(to.state).toBe(cell === 'same' ? entry.status.state : cell);
      expect(to.revision).toBe(5);
      expect(to.updatedAt).toBe(NOW);
      expect('holder' in to || 'claimedFrom' in to).toBe(false);
      if (cell !== 'same') expect(mayMove(entry.status.state, to.state, 'operator')).toBe(true);
    }
  });
});

test('an active message is its holder’s until the lease is over', () => {
  const text = refusedText(entryIn('active'), ACTIONS.hold);
  expect(text).toBe(
    'cannot hold message "m-1": it is active, leased by "h/1" until ' +
      '2026-01-01T01:00:00.001Z; retry then',
  );
});

describe('a hold', () => {
  test('keeps the counters, waits for an operator, and says who and why', () => {
    const entry = entryIn('deferred', { attempts: 3, postponed: 1, lost: 1, replays: 2 });
    const { attempts, postponed, lost, replays, ...to } = done(entry, ACTIONS.hold);
    expect([attempts, postponed, lost, replays]).toEqual([3, 1, 1, 2]);
    expect(to.dueAt).toBeNull();
    expect(to.because).toEqual({ code: 'operator.hold', text: 'wait for legal', by: 'ann' });
  });

  test('cuts a long reason to one line of its limit', () => {
    const to = done(entryIn('incoming'), { kind: 'hold', reason: `a\nb${'x'.repeat(9_999)}` });
    expect(to.because?.text).toHaveLength(REASON_MAX_CHARS);
    expect(to.because?.text.startsWith('a b')).toBe(true);
  });
});

describe('a release', () => {
  test('goes on with its own attempts, due at once', () => {
    const entry = entryIn('hold', { because: { code: 'x', text: 'y', by: 'ann' } });
    const to = done(entry, ACTIONS.release);
    expect(to).toMatchObject({ state: 'incoming', lane: 'delivery', attempts: 2, dueAt: NOW });
    expect(to.replays).toBe(0);
    expect('because' in to).toBe(false);
  });

  test('of a held notice tells of the bounce again and never delivers', () => {
    const entry = entryIn('hold', { lane: 'notice', ending: 'expired', notices: 2 });
    expect(done(entry, ACTIONS.release)).toMatchObject({
      state: 'bounce',
      lane: 'notice',
      ending: 'expired',
      notices: 2,
      dueAt: NOW,
    });
  });

  test('of what was held after it was removed is a new round without that ending', () => {
    const archived = entryIn('archived', { ending: 'removed', attempts: 10 });
    const heldAgain = { ...archived, status: done(archived, ACTIONS.hold) };
    const to = done(heldAgain, ACTIONS.release);
    expect(to).toMatchObject({ state: 'incoming', attempts: 0, replays: 1 });
    expect('ending' in to).toBe(false);
  });

  test.each(['inline', 'none'] as const)(
    'of a delivered message that an earlier version held puts it back; its body is %s',
    (place) => {
      const { envelope, status } = entryIn('hold', { ending: 'delivered', dedupeKey: 'k' });
      const entry = { envelope: { ...envelope, body: { ...envelope.body, place } }, status };
      const to = done(entry, ACTIONS.release);
      expect(to).toMatchObject({ state: 'archived', ending: 'delivered', lane: 'delivery' });
      expect(to.dueAt).toBe(NOW + retention.dedupeWindowMs);
    },
  );
});

describe('retry', () => {
  test.each<[State | 'lost']>([['deferred'], ['hold'], ['lost']])(
    'of a message that is %s goes on with its own attempts',
    (shape) => {
      const to = done(entryIn(shape, { lost: 1 }), ACTIONS.retry);
      expect(to).toMatchObject({ state: 'incoming', attempts: 2, lost: 1, replays: 0, dueAt: NOW });
    },
  );

  test.each<[State]>([['bounce'], ['archived']])(
    'of a message in %s starts a new round',
    (state) => {
      const why = { code: 'smtp.550', text: 'no such user', by: 'handler' };
      const last = failure('permanent', 'smtp.550', 'no such user');
      const entry = entryIn(state, { because: why, lastFailure: last, lost: 2, replays: 1 });
      const to = done(entry, ACTIONS.retry);
      expect(to).toMatchObject({
        state: 'incoming',
        lane: 'delivery',
        attempts: 0,
        notices: 0,
        lost: 0,
        replays: 2,
        dueAt: NOW,
        lastFailure: last,
      });
      expect('ending' in to || 'because' in to).toBe(false);
    },
  );

  test('of a held or lost notice delivers again, on an operator’s word', () => {
    for (const shape of ['hold', 'lost'] as const) {
      const to = done(entryIn(shape, { lane: 'notice', ending: 'bounced' }), ACTIONS.retry);
      expect(to).toMatchObject({ state: 'incoming', lane: 'delivery', attempts: 0, replays: 1 });
    }
  });

  test('of what has ended takes an expiry away that is over, and only that', () => {
    const answerOf = (shape: State, expiresAt: number): unknown => {
      const entry = entryIn(shape);
      const envelope = { ...entry.envelope, expiresAt };
      return operatorMove({ ...entry, envelope }, ACTIONS.retry, CONTEXT);
    };
    for (const shape of ['bounce', 'archived'] as const) {
      const { envelope } = entryIn(shape);
      expect(answerOf(shape, NOW)).toMatchObject({ kind: 'do', envelope });
      expect(answerOf(shape, NOW)).not.toHaveProperty('envelope.expiresAt');
      expect(answerOf(shape, NOW + 1)).not.toHaveProperty('envelope');
    }
    // What only waited has not bounced yet: its time is over, and it will.
    expect(answerOf('hold', NOW)).not.toHaveProperty('envelope');
  });

  test('is refused when the body was not kept', () => {
    const { envelope, status } = entryIn('archived');
    const bare: Entry = {
      envelope: { ...envelope, body: { ...envelope.body, place: 'none' } },
      status,
    };
    expect(refusedText(bare, ACTIONS.retry)).toContain('its body was not kept');
  });
});

test('a bounce by an operator is announced like any other', () => {
  expect(done(entryIn('deferred', { notices: 7 }), ACTIONS.bounce)).toMatchObject({
    state: 'bounce',
    lane: 'notice',
    ending: 'bounced',
    notices: 0,
    attempts: 2,
    dueAt: NOW,
    because: { code: 'operator.bounce', text: 'never mind', by: 'ann' },
  });
});

test.each<[string, number | null, boolean | undefined, State, number]>([
  ['kept, nobody announces it', null, false, 'bounce', 0],
  ['announced, then archived', DAY_MS, true, 'bounce', 0],
  ['announced, unless said otherwise', DAY_MS, undefined, 'bounce', 0],
  ['archived at once, nobody announces it', DAY_MS, false, 'archived', DAY_MS],
])('a bounce by an operator is %s', (_, bouncedMs, announces, state, dueInMs) => {
  const context = { ...CONTEXT, retention: { ...retention, bouncedMs } };
  const answer = operatorMove(entryIn('deferred'), ACTIONS.bounce, {
    ...context,
    ...(announces === undefined ? {} : { announces }),
  });
  expect(answer).toMatchObject({
    kind: 'do',
    to: { state, lane: 'notice', ending: 'bounced', dueAt: NOW + dueInMs },
  });
});

test('what is archived or bounced cannot be bounced, announced or not', () => {
  const context = { ...CONTEXT, retention: { ...retention, bouncedMs: 1 }, announces: false };
  for (const state of ['bounce', 'archived'] as const) {
    expect(operatorMove(entryIn(state), ACTIONS.bounce, context).kind).toBe('refused');
  }
});

describe('a removal', () => {
  test('is soft: archived for its retention, with who and why', () => {
    expect(done(entryIn('bounce'), ACTIONS.remove)).toMatchObject({
      state: 'archived',
      ending: 'removed',
      dueAt: NOW + 7 * DAY_MS,
      because: { code: 'operator.remove', text: 'junk', by: 'ann' },
    });
  });

  test('remembers a dedupe key at least for the dedupe window', () => {
    const to = done(entryIn('incoming', { dedupeKey: 'k' }), ACTIONS.remove);
    expect(to.dueAt).toBe(NOW + 30 * DAY_MS);
  });
});

test('a change of policy or envelope is one write and nothing else', () => {
  const { status } = entryIn('deferred');
  const raised = { ...status, revision: 5, updatedAt: NOW };
  expect(done(entryIn('deferred'), ACTIONS.touch)).toEqual(raised);
  expect(done(entryIn('deferred'), ACTIONS.setPolicy)).toEqual({ ...raised, policy: 'patient' });
  expect(refusedText(entryIn('lost'), ACTIONS.touch)).toContain('hold or retry it first');
});

describe('the action that takes a message from one state to another', () => {
  const KINDS: Partial<Record<State, OperatorAction['kind']>> = {
    hold: 'hold',
    bounce: 'bounce',
    archived: 'remove',
    incoming: 'retry',
  };
  const pairs = STATES.flatMap((from) => STATES.map((to): [State, State] => [from, to]));

  test.each(pairs)('from %s to %s', (from, to) => {
    const action = actionToReach(from, to, 'why');
    expect(action?.kind).toBe(mayMove(from, to, 'operator') ? KINDS[to] : undefined);
    if (action === undefined || from === 'active') return;
    expect(done(entryIn(from), action).state).toBe(to);
  });

  test('removes softly and carries the reason', () => {
    expect(actionToReach('hold', 'archived', 'why')).toEqual({
      kind: 'remove',
      hard: false,
      reason: 'why',
    });
    expect(actionToReach('incoming', 'hold', 'why')).toEqual({ kind: 'hold', reason: 'why' });
  });
});
