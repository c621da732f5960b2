/** setup — a replay in virtual time: a place of letters in memory, an operator, and processes that die. */
import { access } from 'node:fs/promises';
import { onTestFinished } from 'vitest';
import { seededDice, SimClock } from 'respool/testkit';
import {
  type DeadLetters,
  planReplay,
  type Replay,
  type ReplayLine,
  type ReplayOperator,
  type ReplayOptions,
  reportReplay,
  resumeReplay,
  runReplay,
  type RunTools,
} from 'respool/dead-letters';
import type { KeptCopy, RecordStore } from 'respool';
import { memory } from 'respool/stores/memory';
import { createPlace, type MemoryPlace } from './memory-letters.ts';

export const SOURCE = { kind: 'queue', queue: 'dead', broker: 'main' } as const;

/** A process: its own door and operator, and a moment at which it dies. */
export interface Process {
  readonly letters: DeadLetters;
  readonly operator: ReplayOperator;
  /** Steps that it took so far. */
  readonly steps: () => number;
  readonly isDead: () => boolean;
}

export interface Setup {
  readonly place: MemoryPlace;
  readonly clock: SimClock;
  readonly records: RecordStore;
  readonly audit: string[];
  readonly kept: KeptCopy[];
  /** Dies before or after its nth step, or never. */
  readonly process: (dies?: number) => Process;
  readonly plan: (options?: ReplayOptions) => Promise<Replay>;
  readonly run: (id: string, tools?: RunTools & { readonly as?: Process }) => Promise<Replay>;
  readonly resume: (id: string, tools?: RunTools & { readonly as?: Process }) => Promise<Replay>;
  readonly report: (id: string) => Promise<ReplayLine[]>;
}

/** `count` letters with ids `letter-000` and up. */
export async function setup(count = 0): Promise<Setup> {
  const place = createPlace();
  place.put(named(count).map((id) => ({ id })));
  const clock = new SimClock();
  const store = memory();
  await store.open();
  const { records } = store;
  const audit: string[] = [];
  const kept: KeptCopy[] = [];
  const dice = seededDice(7);
  const process = (dies?: number) => createProcess({ place, records, audit, kept, dies });
  const main = process();
  return {
    place,
    clock,
    records,
    audit,
    kept,
    process,
    plan: (options = {}) =>
      planReplay(main.operator, main.letters, SOURCE, options, { clock, dice }),
    run: (id, { as = main, ...tools } = {}) =>
      drive(clock, runReplay(as.operator, as.letters, id, { clock, dice, ...tools })),
    resume: (id, { as = main, ...tools } = {}) =>
      drive(clock, resumeReplay(as.operator, as.letters, id, { clock, dice, ...tools })),
    report: async (id) => {
      const lines = [];
      for await (const line of reportReplay(main.operator, id)) lines.push(line);
      return lines;
    },
  };
}

export function idOf(at: number): string {
  return `letter-${String(at).padStart(3, '0')}`;
}

/** The ids of the first letters. */
export function named(count: number): string[] {
  return Array.from({ length: count }, (_, at) => idOf(at));
}

/** Turns in which nothing but memory is needed. */
const QUICK_TURNS = 100;

/** Lets time go on until it is done. Files are read in real time, which must not be outrun. */
export async function drive<T>(clock: SimClock, work: Promise<T>): Promise<T> {
  let isDone = false;
  const done = work.finally(() => (isDone = true));
  done.catch(() => undefined);
  // One that hangs must not go on behind the tests of other files.
  let isOver = false;
  onTestFinished(() => void (isOver = true));
  for (let turns = 0; ; turns += 1) {
    await clock.settle();
    // oxlint-disable-next-line typescript/no-unnecessary-condition -- set by the work.
    if (isDone) return done;
    // oxlint-disable-next-line typescript/no-unnecessary-condition -- set by the test.
    if (isOver) throw new Error('it did not end before its test did');
    if (turns > QUICK_TURNS) await access(import.meta.filename);
    await clock.advance(100);
  }
}

/** The ids of all letters, sorted, as often as there is a place with it. */
export function everywhere({ items, sent, parked, removed }: MemoryPlace): string[] {
  return [...items.map(({ letter }) => letter), ...sent]
    .concat([...parked, ...removed].map(({ letter }) => letter))
    .map(({ id }) => id)
    .sort();
}

interface ProcessParts extends Pick<Setup, 'place' | 'records' | 'audit' | 'kept'> {
  readonly dies: number | undefined;
}

function createProcess({ place, records, audit, kept, dies }: ProcessParts): Process {
  const door = place.door(() => step());
  let steps = 0;
  let isDead = false;
  /** Every call is two steps: before it and after it. */
  const step = () => {
    steps += 1;
    if (steps === dies) {
      isDead = true;
      door.drop();
    }
    if (isDead) throw new Error('the process died');
  };
  const through =
    <Args extends unknown[], T>(call: (...args: Args) => Promise<T>) =>
    async (...args: Args): Promise<T> => {
      step();
      const answer = await call(...args);
      step();
      return answer;
    };
  const letters: DeadLetters = {
    name: door.name,
    caution: () => door.caution(),
    count: () => door.count(),
    look: (options) => door.look(options),
    async *take(options) {
      step();
      for await (const taken of door.take(options)) {
        if (isDead) throw new Error('the process died');
        yield taken;
      }
    },
    settle: through((taken, fate) => door.settle(taken, fate)),
    isAlone: through(() => door.isAlone()),
    since: through((replay, ids) => door.since(replay, ids)),
    waitingAt: through(async (routes, options) => door.waitingAt?.(routes, options)),
    close: () => door.close(),
  };
  const operator: ReplayOperator = {
    by: 'tester',
    records: {
      ...records,
      append: through((kind, record) => records.append(kind, record)),
      put: through((kind, key, value, revision) => records.put(kind, key, value, revision)),
      get: through((kind, key) => records.get(kind, key)),
      read: through((kind, after, max) => records.read(kind, after, max)),
    },
    recordAction: through(async (action: string) => void audit.push(action)),
    keep: through(async (copies: readonly KeptCopy[]) => void kept.push(...copies)),
  };
  return { letters, operator, steps: () => steps, isDead: () => isDead };
}
