/**
 * suites-dead — dead letters on a broker of their own, with full numbers: sweeps that are killed,
 * replays that are killed, cancelled, and whose destination or broker breaks.
 */
import type { Verdict } from '../rabbit/queues/faults/judge.ts';
import * as replays from '../rabbit/queues/faults/replays.ts';
import { sweepsKilled, type SweepsOptions } from '../rabbit/queues/faults/sweeps.ts';
import { type PrivateServer, privateServer, skipReason } from '../services/index.ts';
import { withServers } from './suites-nodes.ts';
import type { Row } from './verdict.ts';

interface DeadOptions {
  readonly seed: number;
  /** How many kills of sweeps, instead of the suite's own number. */
  readonly kills: number | undefined;
}

const KILLS = 50;
const LETTERS = 10_000;
const FURTHER = 100;
/** Kills of replays, and crashes of their broker, to so many kills of sweeps. */
const KILLS_PER_REPLAY_KILL = 2.5;
const KILLS_PER_RESTART = 25;
const CANCELS = 5;

type Result = Verdict & { readonly seed: number; readonly faults: number };
type Run = (server: PrivateServer, kills: number, seed: number) => Promise<readonly Result[]>;

const sweep =
  (options: Pick<SweepsOptions, 'type' | 'hasJournal'>): Run =>
  async (server, kills, seed) => {
    const numbers = { letters: LETTERS, further: FURTHER, kills, seed };
    const result = await sweepsKilled(server, { ...options, ...numbers });
    return [{ ...result, faults: result.kills }];
  };

const broken =
  (how: replays.Break): Run =>
  async (server, _kills, seed) => [
    await replays.replayBroken(server, { how, letters: LETTERS, seed }),
  ];

/** What is done, by its name in the verdict. */
const RUNS: Readonly<Record<string, Run>> = {
  'quorum sweep killed': sweep({ type: 'quorum', hasJournal: false }),
  'classic sweep killed': sweep({ type: 'classic', hasJournal: false }),
  'journal sweep killed': sweep({ type: 'quorum', hasJournal: true }),
  'replay unroutable': broken('unbound'),
  'replay refused': broken('full'),
  'replay killed': async (server, count, seed) => {
    const kills = Math.ceil(count / KILLS_PER_REPLAY_KILL);
    return [await replays.replayKilled(server, { kills, letters: LETTERS, seed })];
  },
  'replay cancelled': async (server, _kills, seed) => {
    const results: Result[] = [];
    for (let at = 0; at < CANCELS; at += 1) {
      results.push(await replays.replayCancelled(server, { letters: LETTERS, seed: seed + at }));
    }
    return results;
  },
  'replay broker killed': async (server, count, seed) => {
    const restarts = Math.ceil(count / KILLS_PER_RESTART);
    return [await replays.replayCrashed(server, { restarts, letters: LETTERS, seed })];
  },
};

/** Dead letters of RabbitMQ. */
export function deadSuite({ seed, kills = KILLS }: DeadOptions): Promise<readonly Row[]> {
  return withServers(async () => {
    const rows: Row[] = [];
    for (const [suite, run] of Object.entries(RUNS))
      rows.push(await rowOf(suite, run, kills, seed));
    return rows;
  });
}

async function rowOf(suite: string, run: Run, kills: number, seed: number): Promise<Row> {
  const skipped = skipReason('rabbitmq');
  const results = skipped === undefined ? await onServer(run, kills, seed) : [];
  const add = (pick: (result: Result) => number): number =>
    results.reduce((total, result) => total + pick(result), 0);
  return {
    suite,
    place: 'rabbitmq',
    faults: add(({ faults }) => faults),
    messages: add(({ messages }) => messages),
    lost: add(({ lost }) => lost),
    duplicated: add(({ duplicated }) => duplicated),
    bound: add(({ bound }) => bound),
    unexpected: add(({ unexpected }) => unexpected),
    corrupt: add(({ corrupt }) => corrupt),
    worstRecoveryMs: null,
    complaints: results.flatMap((one) => one.complaints.map((text) => `seed ${one.seed}: ${text}`)),
    ...(skipped === undefined ? {} : { skipped }),
  };
}

async function onServer(run: Run, kills: number, seed: number): Promise<readonly Result[]> {
  await using server = await privateServer('rabbitmq');
  return await run(server, kills, seed);
}
