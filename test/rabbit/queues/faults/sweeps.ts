/**
 * sweeps — a dead queue is swept by processes that are killed at random moments, then by one that
 * comes to its end, then again and again with nothing left to move.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { QueueType } from 'respool/rabbit';
import { type Chance, createChance } from '../../../torture/chance.ts';
import { type Child, startChild } from '../../../torture/child.ts';
import { inFolder } from '../../../torture/folder.ts';
import { ownName } from '../../faults/names.ts';
import type { Broker } from '../../faults/runs.ts';
import { HEADER } from '../../../../src/rabbit/message-history.ts';
import { judgeLetters, outOfOrder, type Verdict } from './judge.ts';
import type { SweepOrder, Swept } from './sweep-order.ts';
import * as stock from './stock.ts';

export interface SweepsOptions {
  readonly type: QueueType;
  readonly letters: number;
  readonly kills: number;
  /** Sweeps afterwards that find nothing to move. */
  readonly further: number;
  /**
   * Notes what is confirmed before it is acked. n.b. Whoever is killed between the confirm and the
   * note has still copied a window twice: the bound is the same, only that it is met less often.
   */
  readonly hasJournal: boolean;
  readonly seed: number;
}

/** What came of it. */
export interface SweepsResult extends Verdict {
  readonly seed: number;
  readonly kills: number;
  /** Kills after which some were moved, and some were not. */
  readonly midway: number;
  /** Put out of their order by kills. */
  readonly displaced: number;
}

const WINDOW = 100;
/**
 * In both places after a kill: a window that waits for its confirm, and what was acked and not
 * applied. A broker that is busy is behind with these; 94 to 111 for each kill were seen in all.
 */
const TWICE_MAX = 3 * WINDOW;
/** A process lives on so long after it was to be killed. */
const LATE_MS = [0, 12] as const;
/** A process that moves nothing is killed all the same. */
const GOAL_MAX_MS = 5_000;

/** Sweeps with kills; judged at the end. */
export function sweepsKilled(broker: Broker, options: SweepsOptions): Promise<SweepsResult> {
  return inFolder(async (folder) => {
    const queue = ownName('swept');
    const target = `${queue}.failed`;
    await using desk = await stock.openDesk(broker.url);
    await stock.declareDead(desk, queue, options.type);
    try {
      const { url, managementUrl = '' } = broker;
      const journal = options.hasJournal ? { journal: `${folder}/journal` } : {};
      const order = { url, managementUrl, queue, target, window: WINDOW, ...journal };
      return await sweeps(desk, order, options);
    } finally {
      await desk.channel.deleteQueue(queue);
      await desk.channel.deleteQueue(target);
    }
  });
}

async function sweeps(
  desk: stock.Desk,
  order: Omit<SweepOrder, 'rounds'>,
  { letters, kills, further, seed }: SweepsOptions,
): Promise<SweepsResult> {
  const { queue, target } = order;
  const laid = await stock.layLetters(desk, queue, letters);
  const over = laid.filter(({ isOver }) => isOver).length;
  const chance = createChance(seed);
  const complaints: string[] = [];
  let midway = 0;
  for (const goal of goals(chance, kills, over)) {
    await killAt(desk, order, { goal, chance });
    const moved = await stock.depthOf(desk, target);
    if (moved > 0 && moved < over) midway += 1;
  }
  // What a killed process had in hand may lie behind the rest until the last of it came back.
  const ends = await sweepOn(order, 2);
  if (ends.at(-1)?.moved !== 0) complaints.push('a second sweep to the end still moved some');
  const lying = await stock.lookAt(desk, queue);
  const displaced = outOfOrder(laid, lying).length;
  if (displaced > 0) complaints.push(`${displaced} are out of their order`);
  for (const { moved, left } of await sweepOn(order, further)) {
    if (moved !== 0 || left !== letters - over) {
      complaints.push(`a further sweep moved ${moved} and left ${left}`);
    }
  }
  const [left, moved] = [await stock.drain(desk, queue), await stock.drain(desk, target)];
  const unmarked = moved.filter(({ headers }) => headers[HEADER.sweptFrom] !== queue);
  if (unmarked.length > 0) complaints.push(`${unmarked.length} do not tell where they come from`);
  const bound = kills * TWICE_MAX;
  if (left.some(({ id }, at) => id !== lying[at]?.id)) {
    complaints.push(`${outOfOrder(lying, left).length} were put out of order by further sweeps`);
  }
  const verdict = judgeLetters({
    laid,
    left,
    moved,
    bound,
    keepsOrder: false,
    mayLie: ({ isOver }, where) => isOver === (where === 'moved'),
  });
  const all = [...verdict.complaints, ...complaints];
  return { ...verdict, complaints: all, seed, kills, midway, displaced };
}

/** After so many moved messages each process is killed, ascending. */
function goals(chance: Chance, kills: number, over: number): number[] {
  return Array.from({ length: kills }, () => chance.between(0, over)).toSorted((a, b) => a - b);
}

/** Starts a process, and kills it when so many have been moved, or a little later. */
async function killAt(
  desk: stock.Desk,
  order: Omit<SweepOrder, 'rounds'>,
  { goal, chance }: { readonly goal: number; readonly chance: Chance },
): Promise<void> {
  const child = begin(order, Number.MAX_SAFE_INTEGER);
  await child.line('started');
  const untilMs = performance.now() + GOAL_MAX_MS;
  while (performance.now() < untilMs && (await stock.depthOf(desk, order.target)) < goal);
  await sleep(chance.between(...LATE_MS));
  child.signal('SIGKILL');
  const { signal, code } = await child.ended;
  if (signal !== 'SIGKILL') throw new Error(`a sweep ended with ${code}: ${child.complaint()}`);
}

/** Sweeps so often, one after the other, to the end. */
async function sweepOn(order: Omit<SweepOrder, 'rounds'>, rounds: number): Promise<Swept[]> {
  const child = begin(order, rounds);
  const { code } = await child.ended;
  if (code !== 0) throw new Error(`a sweep ended with ${code}: ${child.complaint()}`);
  const lines = child.lines.filter((line) => line.startsWith('swept '));
  return lines.map((line) => JSON.parse(line.slice('swept '.length)) as Swept);
}

function begin(order: Omit<SweepOrder, 'rounds'>, rounds: number): Child {
  return startChild('../rabbit/queues/faults/sweep-child.ts', { ...order, rounds });
}
