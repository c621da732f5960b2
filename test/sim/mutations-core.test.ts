/**
 * mutations-core — bugs planted in core/, engine/ and spool/ themselves: each function is exchanged
 * for a broken one while its worlds run, and is the real one otherwise.
 */
import { afterEach, describe, expect, test, vi } from 'vitest';
import type { Entry, Status, Verdict } from 'respool';
import { commandFor, type Invariant, simulate } from 'respool/testkit';
import type * as nextStatuses from '../../src/core/next-status.ts';
import type * as operators from '../../src/core/operator.ts';
import type * as verdicts from '../../src/core/verdict.ts';
import type * as bodies from '../../src/spool/body.ts';

type Verdicts = typeof verdicts;
type NextStatus = typeof nextStatuses;
type Operator = typeof operators;
type Bodies = typeof bodies;

/** What is exchanged now; everything else is real. */
interface Planted {
  readonly judge?: (real: Verdicts['judge']) => Verdicts['judge'];
  readonly judgeLost?: (real: Verdicts['judgeLost']) => Verdicts['judgeLost'];
  readonly judgeExpiry?: (real: Verdicts['judgeExpiry']) => Verdicts['judgeExpiry'];
  readonly nextStatus?: (real: NextStatus['nextStatus']) => NextStatus['nextStatus'];
  readonly claimedStatus?: (real: NextStatus['claimedStatus']) => NextStatus['claimedStatus'];
  readonly extendedStatus?: (real: NextStatus['extendedStatus']) => NextStatus['extendedStatus'];
  readonly operatorMove?: (real: Operator['operatorMove']) => Operator['operatorMove'];
  readonly inlineBytes?: (real: Bodies['inlineBytes']) => Bodies['inlineBytes'];
}

const planted = vi.hoisted(() => ({ now: {} as Planted }));

/** The real module, with those of its functions that may be exchanged looking at `planted`. */
function exchangeable<M extends object>(real: M, names: readonly (keyof M & keyof Planted)[]): M {
  const changed = { ...real } as Record<string, unknown>;
  for (const name of names) {
    const own = real[name] as (...args: unknown[]) => unknown;
    changed[name] = (...args: unknown[]) => {
      const exchange = planted.now[name] as ((real: unknown) => typeof own) | undefined;
      return exchange === undefined ? own(...args) : exchange(own)(...args);
    };
  }
  return changed as M;
}

vi.mock('../../src/core/verdict.ts', async (original) =>
  exchangeable(await original<Verdicts>(), ['judge', 'judgeLost', 'judgeExpiry']),
);
vi.mock('../../src/core/next-status.ts', async (original) =>
  exchangeable(await original<NextStatus>(), ['nextStatus', 'claimedStatus', 'extendedStatus']),
);
vi.mock('../../src/core/operator.ts', async (original) =>
  exchangeable(await original<Operator>(), ['operatorMove']),
);
vi.mock('../../src/spool/body.ts', async (original) =>
  exchangeable(await original<Bodies>(), ['inlineBytes']),
);

const SEEDS_MAX = 200;

interface CoreMutant {
  readonly name: string;
  readonly breaks: readonly Invariant[];
  readonly plant: Planted;
}

/** A next status that is changed for one kind of verdict. */
function afterVerdict(
  kind: Verdict['kind'],
  change: (to: Status, entry: Entry) => Status | 'remove',
): Planted {
  return {
    nextStatus: (real) => (entry, verdict, context) => {
      const to = real(entry, verdict, context);
      return to === 'remove' || verdict.kind !== kind ? to : change(to, entry);
    },
  };
}

const MUTANTS: readonly CoreMutant[] = [
  {
    name: 'a failure that is taken for a delivery',
    breaks: ['conservation', 'verdict'],
    plant: {
      judge: (real) => (judgement) =>
        judgement.outcome.kind === 'failed' ? { kind: 'ack' } : real(judgement),
    },
  },
  {
    name: 'one attempt more than the policy allows',
    breaks: ['verdict', 'attempts'],
    plant: {
      judge: (real) => (judgement) => {
        const { policy } = judgement;
        return real({ ...judgement, policy: { ...policy, maxAttempts: policy.maxAttempts + 1 } });
      },
    },
  },
  {
    name: 'what is not final bounces at once',
    breaks: ['verdict'],
    plant: {
      judge: (real) => (judgement) => {
        const verdict = real(judgement);
        if (verdict.kind !== 'defer' || !verdict.costsAttempt) return verdict;
        return { kind: 'bounce', because: verdict.because, spent: false };
      },
    },
  },
  {
    name: 'a lost holder whose message runs again at once',
    breaks: ['verdict', 'early', 'liveness'],
    plant: { judgeLost: () => () => ({ kind: 'release' }) },
  },
  {
    name: 'an expiry that nobody looks at',
    breaks: ['expiry'],
    plant: { judgeExpiry: () => () => undefined },
  },
  {
    name: 'an attempt that is counted when it is settled',
    breaks: ['attempts'],
    plant: {
      claimedStatus: (real) => (status, claim) => ({
        ...real(status, claim),
        attempts: status.attempts,
      }),
    },
  },
  {
    name: 'a lost holder that costs a second attempt',
    breaks: ['attempts'],
    plant: {
      claimedStatus: (real) => (status, claim) => ({
        ...real(status, claim),
        attempts: status.attempts + 1,
      }),
    },
  },
  {
    name: 'a heartbeat that does not raise the revision',
    breaks: ['revision'],
    plant: {
      extendedStatus: (real) => (status, lease) => ({
        ...real(status, lease),
        revision: status.revision,
      }),
    },
  },
  {
    name: 'a release that costs an attempt',
    breaks: ['attempts'],
    plant: afterVerdict('release', (to, { status }) => ({ ...to, attempts: status.attempts })),
  },
  {
    name: 'a postponement that costs an attempt',
    breaks: ['attempts'],
    plant: afterVerdict('defer', (to, { status }) => ({ ...to, attempts: status.attempts })),
  },
  {
    name: 'a bounce that is dropped',
    breaks: ['conservation'],
    plant: afterVerdict('bounce', () => 'remove'),
  },
  {
    name: 'a hold that comes back by itself',
    breaks: ['verdict'],
    plant: afterVerdict('hold', (to) => ({ ...to, state: 'deferred', dueAt: to.updatedAt })),
  },
  {
    name: 'a remembered message that is removed with its delivery',
    breaks: ['dedupe'],
    plant: afterVerdict('ack', (to) => (to.lane === 'delivery' ? 'remove' : to)),
  },
  {
    name: 'an operator who takes what is leased',
    // Liveness too: what it moves is due at the end of time.
    breaks: ['verdict', 'guard', 'conservation', 'liveness'],
    plant: {
      operatorMove: (real) => (entry, action, context) =>
        real(entry, action, { ...context, now: Number.MAX_SAFE_INTEGER }),
    },
  },
  {
    name: 'a release by an operator that delivers a notice',
    breaks: ['audit'],
    plant: {
      operatorMove: (real) => (entry, action, context) => {
        const answer = real(entry, action, context);
        if (answer.kind !== 'do' || answer.to === 'remove' || action.kind !== 'release')
          return answer;
        return { kind: 'do', to: { ...answer.to, state: 'incoming' } };
      },
    },
  },
  {
    name: 'a body that is handed over unverified and damaged',
    breaks: ['integrity'],
    plant: {
      inlineBytes: () => (entry) =>
        Uint8Array.from(entry.inlineBody ?? [], (byte, at) => (at === 3 ? byte ^ 1 : byte)),
    },
  },
];

afterEach(() => {
  planted.now = {};
});

describe('the simulator finds', () => {
  test.for(MUTANTS)('$name', { timeout: 600_000 }, async ({ name, breaks, plant }) => {
    planted.now = plant;
    for (let seed = 1; seed <= SEEDS_MAX; seed += 1) {
      const { violation } = await simulate(seed);
      if (violation === undefined) continue;
      console.info(`${seed} seeds, "${violation.invariant}": ${name}`);
      expect(breaks, `${violation.text} (${commandFor(seed)})`).toContain(violation.invariant);
      return;
    }
    throw new Error(`nothing was found in ${SEEDS_MAX} seeds`);
  });

  test('nothing where nothing is planted', { timeout: 600_000 }, async () => {
    for (let seed = 1; seed <= 20; seed += 1) {
      expect((await simulate(seed)).violation).toBeUndefined();
    }
  });
});
