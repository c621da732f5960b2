/** Every operator move × state × ending × lane × body: what has ended is not brought back to life. */
import { describe, expect, test } from 'vitest';
import { type BodyInfo, type Ending, type Entry, type Lane, type State, STATES } from 'respool';
import { SAMPLE_AT, sampleEntry } from 'respool/testkit';
import { AMQP_HEADER } from '../../src/core/reserved-headers.ts';
import type { Retention } from '../../src/core/next-status.ts';
import { type OperatorAction, operatorMove } from '../../src/core/operator.ts';
import { DAY_MS, HOUR_MS } from '../time.ts';

const NOW = SAMPLE_AT + HOUR_MS;
const ENDINGS: readonly (Ending | undefined)[] = [
  undefined,
  'delivered',
  'bounced',
  'removed',
  'expired',
];
const LANES: readonly Lane[] = ['delivery', 'notice'];
const PLACES: readonly BodyInfo['place'][] = ['inline', 'store', 'none'];
const RETENTIONS: readonly Retention[] = [null, DAY_MS].map((keptMs) => ({
  deliveredMs: keptMs,
  bouncedMs: keptMs,
  removedMs: 7 * DAY_MS,
  dedupeWindowMs: 30 * DAY_MS,
}));
const MOVES = {
  hold: { kind: 'hold', reason: 'why' },
  release: { kind: 'release' },
  retry: { kind: 'retry' },
  replay: { kind: 'replay', replay: 'r1' },
  bounce: { kind: 'bounce', reason: 'why' },
  remove: { kind: 'remove', hard: false, reason: 'why' },
  hardRemove: { kind: 'remove', hard: true, reason: 'why' },
  setPolicy: { kind: 'setPolicy', policy: 'other' },
  touch: { kind: 'touch' },
} as const satisfies Record<string, OperatorAction>;
type Move = keyof typeof MOVES;
const NAMES = Object.keys(MOVES) as Move[];

/** Whether some step of the engine or of an operator, of this or an earlier release, leads here. */
function isPossible(state: State, lane: Lane, ending: Ending | undefined): boolean {
  if (state === 'incoming' || state === 'deferred') return lane === 'delivery' && !ending;
  if (state === 'bounce') return lane === 'notice' && ending !== undefined;
  if (state === 'archived') return ending !== undefined;
  // Held, or left by a lost holder: a delivery that goes on, a notice, or what was held after its
  // end.
  return lane === 'delivery' || ending !== undefined;
}

function dueAtOf(state: State): number | null {
  if (state === 'hold' || state === 'bounce') return null;
  return state === 'archived' || state === 'deferred' ? NOW + DAY_MS : SAMPLE_AT;
}

function everyEntry(): Entry[] {
  const entries: Entry[] = [];
  for (const state of STATES) {
    for (const lane of LANES) {
      for (const ending of ENDINGS) {
        if (!isPossible(state, lane, ending)) continue;
        for (const place of PLACES) {
          for (const isCopy of [false, true]) {
            const { envelope, status } = sampleEntry(
              [state, lane, ending, place, isCopy ? 'copy' : 'own'].join(' '),
              {
                state,
                lane,
                dueAt: dueAtOf(state),
                ...(ending === undefined ? {} : { ending }),
                ...(state === 'active' ? { holder: 'h/1', claimedFrom: 'deferred' as const } : {}),
                ...(isCopy ? { headers: { [AMQP_HEADER]: '{}' } } : {}),
              },
            );
            entries.push({ envelope: { ...envelope, body: { ...envelope.body, place } }, status });
          }
        }
      }
    }
  }
  return entries;
}

const ENTRIES = everyEntry();
const CONTEXTS = RETENTIONS.flatMap((retention) =>
  [true, false].map((announces) => ({ now: NOW, by: 'ann', retention, announces })),
);
const CASES = ENTRIES.flatMap((entry) =>
  CONTEXTS.flatMap((context) => NAMES.map((move) => ({ entry, context, move }))),
);
type Case = (typeof CASES)[number];

/** The entry after the move; undefined when it was refused, null when it is gone. */
function after({ entry, context, move }: Case): Entry | null | undefined {
  const answer = operatorMove(entry, MOVES[move], context);
  if (answer.kind === 'refused') return undefined;
  if (answer.to === 'remove') return null;
  return { envelope: answer.envelope ?? entry.envelope, status: answer.to };
}

function isWaiting({ status: { state } }: Entry): boolean {
  return state === 'incoming' || state === 'deferred';
}

function isDelivered({ envelope, status }: Entry): boolean {
  return status.ending === 'delivered' || envelope.body.place === 'none';
}

function isCopy({ envelope }: Entry): boolean {
  return Object.hasOwn(envelope.headers, AMQP_HEADER);
}

function told({ entry, move }: Case): string {
  return `${move} of ${entry.envelope.id}`;
}

/** Where a message stands for an operator, whatever its counters and times. */
function standing({ status: { state, ending } }: Entry): string {
  if (state === 'incoming' || state === 'deferred' || state === 'active') return 'waits';
  if (state === 'archived' && ending === 'delivered') return 'delivered';
  if (state === 'archived' && ending === 'removed') return 'removed';
  return state === 'hold' ? 'held' : 'given up';
}

/** Where the operator's moves lead to from here, in at most this many of them. */
function reachable(entry: Entry, context: Case['context'], steps: number): Set<string> {
  const found = new Set([standing(entry)]);
  if (steps === 0) return found;
  for (const move of NAMES) {
    const next = after({ entry, context, move });
    if (!next || next.status.state === entry.status.state) continue;
    for (const one of reachable(next, context, steps - 1)) found.add(one);
  }
  return found;
}

describe('whatever an operator does', () => {
  test('is looked at for every possible entry', () => {
    expect(ENTRIES.length).toBeGreaterThan(150);
    expect(CASES.length).toBe(ENTRIES.length * 4 * 9);
  });

  test('a delivered message is never held or bounced', () => {
    for (const one of CASES.filter(({ entry }) => isDelivered(entry))) {
      const next = after(one);
      if (!next || next.status.state === one.entry.status.state) continue;
      expect(['hold', 'bounce'], told(one)).not.toContain(next.status.state);
      if (next.status.state === 'archived') {
        expect(next.status.ending, told(one)).toBe('delivered');
      }
    }
  });

  test('a delivered message is sent again by retry and replay only, in a new round', () => {
    for (const one of CASES.filter(({ entry }) => isDelivered(entry) && !isWaiting(entry))) {
      const next = after(one);
      if (!next || !isWaiting(next)) continue;
      expect(['retry', 'replay'], told(one)).toContain(one.move);
      expect(next.status.replays, told(one)).toBe(one.entry.status.replays + 1);
    }
  });

  test('a message without its body, or of a broker, never becomes due', () => {
    for (const one of CASES) {
      const { entry } = one;
      if (entry.envelope.body.place !== 'none' && !isCopy(entry)) continue;
      const next = after(one);
      if (!next || next.status.state === entry.status.state) continue;
      expect(next.status.state, told(one)).toBe('archived');
    }
  });

  test('every held message can be released', () => {
    for (const entry of ENTRIES.filter(({ status }) => status.state === 'hold')) {
      for (const context of CONTEXTS) {
        const next = after({ entry, context, move: 'release' });
        expect(next?.status.state, entry.envelope.id).toMatch(/^(incoming|bounce|archived)$/);
      }
    }
  });

  test('what a move puts on hold is held without an ending of delivered, and with a body', () => {
    for (const one of CASES.filter(({ move }) => move === 'hold')) {
      const next = after(one);
      if (!next) continue;
      expect([isDelivered(next), isCopy(next)], told(one)).toEqual([false, false]);
    }
  });

  // Final by docs/reference/states.md: a hard removal, and the end of a delivered one's archive.
  test('a move can be taken back, but for a hard removal and for sending what was delivered', () => {
    for (const one of CASES) {
      const { entry, context, move } = one;
      const next = after(one);
      if (next === undefined || move === 'hardRemove' || next?.status.state === entry.status.state)
        continue;
      if (next === null) throw new Error(`${told(one)} removed it for good`);
      if (isDelivered(entry) || isCopy(entry)) continue;
      expect([...reachable(next, context, 3)], told(one)).toContain(standing(entry));
    }
  });

  test('a refusal is a sentence that says what it is about and why', () => {
    for (const { entry, context, move } of CASES) {
      const answer = operatorMove(entry, MOVES[move], context);
      if (answer.kind === 'do') continue;
      const { id } = entry.envelope;
      expect(answer.text).toMatch(new RegExp(`^cannot [a-zA-Z ]+ message "${id}": .{10,}$`));
    }
  });
});

test.each([
  ['hold', 'inline', 'it was delivered; a retry sends it again'],
  [
    'hold',
    'none',
    'it was delivered and its body was not kept; only its id or dedupe key is remembered',
  ],
  ['bounce', 'inline', 'it was delivered; a retry sends it again'],
] as const)('the refusal to %s a delivered message whose body is %s', (move, place, why) => {
  const { envelope, status } = sampleEntry('m-1', { state: 'archived', ending: 'delivered' });
  const entry = { envelope: { ...envelope, body: { ...envelope.body, place } }, status };
  const [context] = CONTEXTS;
  if (context === undefined) throw new Error('no context');
  expect(operatorMove(entry, MOVES[move], context)).toEqual({
    kind: 'refused',
    text: `cannot ${move} message "m-1": ${why}`,
  });
});
