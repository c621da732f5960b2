/**
 * mutants — bugs planted in the stores a spool gets: in the data itself (disks that break one rule)
 * or at its door (wrappers). Production code has no switch for any of them.
 */
import type {
  Change,
  ClaimFilter,
  ClaimRequest,
  Duplicate,
  Entry,
  EntryStore,
  Status,
} from 'respool';
import { type Invariant, type PlantedBug, SimDisk, type SimPlan } from 'respool/testkit';
import type { Row } from '../../src/stores/memory/due-flows.ts';

/** A planted bug and what must notice it. */
export interface Mutant {
  /** What is wrong, as a sentence. */
  readonly name: string;
  /** The promises any of which may break first. */
  readonly breaks: readonly Invariant[];
  readonly mutation: PlantedBug;
}

class IgnoresRevision extends SimDisk {
  override isCurrent({ state, holder }: Status, change: Change): boolean {
    return state !== 'active' || holder === change.holder;
  }
}

class IgnoresHolder extends SimDisk {
  override isCurrent({ revision }: Status, change: Change): boolean {
    return revision === change.revision;
  }
}

class CountsNoAttempt extends SimDisk {
  protected override take(row: Row, status: Status): Entry {
    return super.take(row, { ...status, attempts: row.entry.status.attempts });
  }
}

class AcceptsBeforeDurable extends SimDisk {
  override harden(position: number, by: string): void {
    if (by !== 'insert') super.harden(position, by);
  }
}

class ClaimsTooEarly extends SimDisk {
  override claim(request: ClaimRequest): Entry[] {
    // What is due in a millisecond counts as due: `>` where `>=` belongs.
    const { now, leaseMs } = request;
    return super.claim({ ...request, now: now + 1, leaseMs: leaseMs - 1 });
  }
}

class ClaimsHeld extends SimDisk {
  override claim(request: ClaimRequest): Entry[] {
    for (const row of this.data.rows.values()) {
      const { status } = row.entry;
      if (status.state !== 'hold' || status.lane !== request.lane) continue;
      const { now, leaseMs, holder } = request;
      const { revision, attempts } = status;
      const lease = { dueAt: now + leaseMs, holder, claimedFrom: 'incoming' as const };
      const to = { ...status, ...lease, state: 'active' as const };
      return [this.take(row, { ...to, revision: revision + 1, attempts: attempts + 1 })];
    }
    return super.claim(request);
  }
}

class ClaimsLeased extends SimDisk {
  override claim(request: ClaimRequest): Entry[] {
    const given = super.claim(request);
    const max = request.max - given.length;
    if (max === 0 || !request.states.includes('active')) return given;
    // Leases are taken as over when half of them is left.
    const halfMs = request.leaseMs / 2;
    const now = request.now + halfMs;
    return [
      ...given,
      ...super.claim({ ...request, max, states: ['active'], now, leaseMs: halfMs }),
    ];
  }
}

class GivesTwice extends SimDisk {
  #last: Entry | undefined;

  override claim(request: ClaimRequest): Entry[] {
    const given = super.claim(request);
    const again = this.#last;
    this.#last = given[0];
    return given.length === 0 && again?.status.lane === request.lane ? [again] : given;
  }
}

class ForgetsKeys extends SimDisk {
  override insert(entries: readonly Entry[]): ('stored' | Duplicate)[] {
    return entries.map((entry) => {
      const [answer] = super.insert([entry]);
      const { id, dedupeKey: _key, ...rest } = entry.envelope;
      if (answer === 'stored' || this.peek(id) !== undefined) return answer ?? 'stored';
      this.data.insert({ ...entry, envelope: { id, ...rest } });
      const row = this.data.rows.get(id);
      if (row !== undefined) row.entry = entry;
      this.wrote(id, undefined);
      return 'stored';
    });
  }
}

class ForgetsTurns extends SimDisk {
  override insert(entries: readonly Entry[]): ('stored' | Duplicate)[] {
    return entries.map((entry) => {
      const { orderKey: _key, ...envelope } = entry.envelope;
      const duplicateOf = this.data.insert({ ...entry, envelope });
      if (duplicateOf !== undefined) return { duplicateOf };
      // Filed as if it had no key, and then it has one.
      const row = this.data.rows.get(envelope.id);
      if (row !== undefined) row.entry = entry;
      this.wrote(envelope.id, undefined);
      return 'stored';
    });
  }
}

class RaisesByTwo extends SimDisk {
  override commit(changes: readonly Change[]): ('done' | 'stale')[] {
    return super.commit(
      changes.map((change) => {
        if (change.to === 'remove') return change;
        return { ...change, to: { ...change.to, revision: change.to.revision + 1 } };
      }),
    );
  }
}

class SaysDoneTooSoon extends SimDisk {
  override commit(changes: readonly Change[]): ('done' | 'stale')[] {
    return changes.length > 1 ? changes.map(() => 'done') : super.commit(changes);
  }
}

class SwapsBodies extends SimDisk {
  override insert(entries: readonly Entry[]): ('stored' | Duplicate)[] {
    const [first, second, ...rest] = entries;
    if (first === undefined || second === undefined) return super.insert(entries);
    return super.insert([withBodyOf(first, second), withBodyOf(second, first), ...rest]);
  }
}

class TakesTooMany extends SimDisk {
  override claim(request: ClaimRequest): Entry[] {
    return super.claim({ ...request, max: request.max + 1 });
  }
}

class PassesOverNotices extends SimDisk {
  override claim(request: ClaimRequest): Entry[] {
    return request.lane === 'notice' ? [] : super.claim(request);
  }
}

function withBodyOf(entry: Entry, other: Entry): Entry {
  const { inlineBody: _bytes, ...rest } = entry;
  const bytes = other.inlineBody === undefined ? {} : { inlineBody: other.inlineBody };
  return { ...rest, ...bytes, envelope: { ...entry.envelope, body: other.envelope.body } };
}

/** A wrapper around the entry store that every spool gets. */
function door(wrap: (entries: EntryStore) => Partial<EntryStore>): PlantedBug {
  return {
    stores: ({ entries, bodies }) => ({ entries: { ...entries, ...wrap(entries) }, bodies }),
  };
}

/** The statuses on their way to the store, changed. */
function settling(change: (to: Status) => Status): PlantedBug {
  return door((entries) => ({
    commit: (changes, how) =>
      entries.commit(
        changes.map((one) => (one.to === 'remove' ? one : { ...one, to: change(one.to) })),
        how,
      ),
  }));
}

function without(filter: ClaimFilter, state: string): ClaimFilter {
  return { ...filter, states: filter.states.filter((one) => one !== state) };
}

/** Worlds in which the power goes often. */
const DARK = (plan: SimPlan): SimPlan => ({
  ...plan,
  site: 'server',
  settle: 'lazy',
  processes: Math.max(3, plan.processes),
  concurrency: 10,
  wakes: true,
  leaseMs: 2_000,
  trouble: { ...plan.trouble, brisk: 0.8, faultEveryMs: 1_500 },
});

/** Worlds in which answers often come when the lease is over. */
const SLOW = (plan: SimPlan): SimPlan => ({
  ...plan,
  leaseMs: 2_000,
  trouble: { ...plan.trouble, slow: 0.2 },
});

/** All planted bugs. */
export const MUTANTS: readonly Mutant[] = [
  {
    name: 'a store that ignores the revision',
    breaks: ['guard'],
    mutation: { disk: (timeline) => new IgnoresRevision(timeline) },
  },
  {
    name: 'a store that ignores the holder',
    breaks: ['guard'],
    mutation: { disk: (timeline) => new IgnoresHolder(timeline), plan: DARK },
  },
  {
    name: 'a store that counts no attempt at the claim',
    breaks: ['attempts'],
    mutation: { disk: (timeline) => new CountsNoAttempt(timeline) },
  },
  {
    name: 'an insert that is told before it is durable',
    breaks: ['conservation'],
    mutation: { disk: (timeline) => new AcceptsBeforeDurable(timeline) },
  },
  {
    name: 'a store that forgets what is deferred when it is opened',
    breaks: ['conservation'],
    mutation: {
      stores: ({ entries, bodies }, world) => {
        const open = async (): Promise<void> => {
          await entries.open();
          const { disk } = world;
          for (const { envelope, status } of disk.entries()) {
            if (status.state !== 'deferred') continue;
            const { revision } = status;
            disk.commit([{ id: envelope.id, revision, to: 'remove' }]);
          }
        };
        return { entries: { ...entries, open }, bodies };
      },
    },
  },
  {
    name: 'a plain kill that loses lazy writes',
    breaks: ['attempts', 'duplicates', 'conservation', 'claim'],
    mutation: {
      kill: ({ disk, chance }) => {
        disk.powerCut(chance);
      },
    },
  },
  {
    name: 'bodies that go before the removal of their entry is durable',
    breaks: ['body'],
    mutation: door(() => ({ flush: async () => undefined })),
  },
  {
    name: 'a store that claims a millisecond too early',
    breaks: ['early'],
    mutation: { disk: (timeline) => new ClaimsTooEarly(timeline) },
  },
  {
    name: 'a store that claims what is held',
    breaks: ['claim'],
    mutation: { disk: (timeline) => new ClaimsHeld(timeline) },
  },
  {
    name: 'a store that claims what is leased',
    breaks: ['early'],
    mutation: { disk: (timeline) => new ClaimsLeased(timeline) },
  },
  {
    name: 'a store that gives an entry to two claimers',
    breaks: ['claim'],
    mutation: { disk: (timeline) => new GivesTwice(timeline) },
  },
  {
    name: 'a store that compares ids but not dedupe keys',
    breaks: ['dedupe'],
    mutation: { disk: (timeline) => new ForgetsKeys(timeline) },
  },
  {
    name: 'a store that lets messages go before their turn',
    breaks: ['order', 'answer'],
    mutation: { disk: (timeline) => new ForgetsTurns(timeline) },
  },
  {
    name: 'a store that raises the revision by two',
    breaks: ['revision'],
    mutation: { disk: (timeline) => new RaisesByTwo(timeline) },
  },
  {
    name: 'a commit that is told and not done',
    breaks: ['answer'],
    mutation: { disk: (timeline) => new SaysDoneTooSoon(timeline) },
  },
  {
    name: 'a batch that swaps the bodies of two messages',
    breaks: ['integrity'],
    mutation: {
      disk: (timeline) => new SwapsBodies(timeline),
      plan: (plan) => ({ ...plan, inlineBodyBytes: 1024 }),
    },
  },
  {
    name: 'a claim that takes more than was asked for',
    breaks: ['limits'],
    mutation: { disk: (timeline) => new TakesTooMany(timeline) },
  },
  {
    name: 'a store that never finds a notice',
    breaks: ['answer'],
    mutation: { disk: (timeline) => new PassesOverNotices(timeline) },
  },
  {
    name: 'a store that does not tell when deferred messages are due',
    breaks: ['prompt'],
    mutation: door((entries) => ({
      nextDueAt: (filter) => entries.nextDueAt(without(filter, 'deferred')),
    })),
  },
  {
    name: 'a watch that never calls',
    breaks: ['prompt'],
    mutation: {
      ...door((entries) => (entries.watch === undefined ? {} : { watch: () => () => undefined })),
      plan: (plan) => ({
        ...plan,
        wakes: true,
        site: 'machine',
        processes: Math.max(3, plan.processes),
      }),
    },
  },
  {
    name: 'leases that are said to be kept and are not',
    breaks: ['lease'],
    mutation: {
      ...door((entries) => ({
        commit: async (changes, how) => {
          const isKept = ({ to }: Change): boolean => to !== 'remove' && to.state === 'active';
          const others = changes.filter((change) => !isKept(change));
          const answers = [...(await entries.commit(others, how))];
          return changes.map((change) => (isKept(change) ? 'done' : (answers.shift() ?? 'stale')));
        },
      })),
      plan: SLOW,
    },
  },
  {
    name: 'leases that never end',
    breaks: ['liveness'],
    mutation: door((entries) => ({
      claim: (request) =>
        entries.claim({ ...request, states: request.states.filter((one) => one !== 'active') }),
    })),
  },
  {
    name: 'a list that hides what is archived',
    breaks: ['liveness'],
    mutation: door((entries) => ({
      list: async (query) => {
        const page = await entries.list(query);
        return { ...page, entries: page.entries.filter((one) => one.status.state !== 'archived') };
      },
    })),
  },
  {
    name: 'a list that takes everything archived for past its retention',
    breaks: ['conservation'],
    mutation: door((entries) => ({
      list: ({ dueBefore: _due, ...query }) => entries.list(query),
    })),
  },
  {
    name: 'a bounce that turns into a deferral',
    breaks: ['verdict', 'attempts'],
    mutation: settling((to) =>
      to.state === 'bounce'
        ? { ...to, state: 'deferred', lane: 'delivery', dueAt: to.updatedAt }
        : to,
    ),
  },
  {
    name: 'a notice that becomes a delivery when it is put off',
    breaks: ['notice'],
    mutation: settling((to) =>
      to.state === 'bounce' && to.notices > 0 && to.dueAt !== null
        ? { ...to, state: 'deferred', lane: 'delivery' }
        : to,
    ),
  },
  {
    name: 'a deferral that is due at once',
    breaks: ['early'],
    mutation: settling((to) => (to.state === 'deferred' ? { ...to, dueAt: to.updatedAt } : to)),
  },
  {
    name: 'an audit record that is not kept',
    breaks: ['audit', 'conservation'],
    mutation: door(({ records }) => ({ records: { ...records, append: async () => 1 } })),
  },
  {
    name: 'pauses that nobody can read',
    breaks: ['pause'],
    mutation: door(({ records }) => ({ records: { ...records, list: async () => [] } })),
  },
  {
    name: 'bodies without entry that are never listed',
    breaks: ['orphans'],
    mutation: {
      stores: ({ entries, bodies }) => ({
        entries,
        bodies: { ...bodies, refs: async function* () {} },
      }),
    },
  },
];
