/**
 * suites-rabbit — consumers on a broker of their own, with full numbers: they are killed, their
 * connections are cut, bindings are removed, and the broker crashes.
 */
import { ALL_CUTS, cuts, kills, removals, restarts } from '../rabbit/faults/runs.ts';
import type { FlowResult } from '../rabbit/faults/flow.ts';
import { type PrivateServer, privateServer, skipReason } from '../services/index.ts';
import { withServers } from './suites-nodes.ts';
import type { Row } from './verdict.ts';

interface RabbitOptions {
  readonly seed: number;
  /** How many kills and cuts, instead of the suite's own number. */
  readonly kills: number | undefined;
}

const KILLS = 50;
/** Kills for each crash of the broker, and for each removal of bindings. */
const KILLS_PER_RESTART = 10;
/** Faults in the life of one flow: its processes do not live for ever. */
const CUTS_AT_ONCE = 25;
const CONSUMERS = 3;

/** What is done, by its name in the verdict. */
type Run = (server: PrivateServer, faults: number, seed: number) => Promise<FlowResult>;

const RUNS: Readonly<Record<string, Run>> = {
  'consumers killed': (server, faults, seed) =>
    kills(server, { kills: faults, consumers: CONSUMERS, seed }),
  'connections cut': (server, faults, seed) =>
    cuts(server, { cuts: faults, spoils: ALL_CUTS, consumers: CONSUMERS, seed }),
  'bindings removed': (server, faults, seed) =>
    removals(server, { removals: faults, consumers: CONSUMERS, seed }),
  'broker killed': (server, faults, seed) =>
    restarts(server, { restarts: faults, waitsForLate: true, consumers: CONSUMERS, seed }),
};

/** Consumers of RabbitMQ. */
export function rabbitSuite({ seed, kills: count = KILLS }: RabbitOptions): Promise<Row[]> {
  return withServers(async () => {
    const rows: Row[] = [];
    for (const [suite, run] of Object.entries(RUNS)) {
      const isRare = suite === 'broker killed' || suite === 'bindings removed';
      rows.push(
        await rowOf(suite, run, isRare ? Math.ceil(count / KILLS_PER_RESTART) : count, seed),
      );
    }
    return rows;
  });
}

async function rowOf(suite: string, run: Run, count: number, seed: number): Promise<Row> {
  let row: Row = {
    suite,
    place: 'rabbitmq',
    faults: 0,
    messages: 0,
    lost: 0,
    duplicated: 0,
    bound: 0,
    unexpected: 0,
    corrupt: 0,
    worstRecoveryMs: 0,
    complaints: [],
  };
  const skipped = skipReason('rabbitmq');
  if (skipped !== undefined) return { ...row, skipped };
  await using server = await privateServer('rabbitmq');
  for (let part = 0; row.faults < count; part += 1) {
    const faults = Math.min(CUTS_AT_ONCE, count - row.faults);
    const one = await run(server, faults, seed + part);
    row = {
      ...row,
      faults: row.faults + faults,
      messages: row.messages + one.messages,
      lost: row.lost + one.lost,
      duplicated: row.duplicated + one.duplicated,
      bound: row.bound + one.bound,
      unexpected: row.unexpected + one.unexpected,
      corrupt: row.corrupt + one.corrupt,
      worstRecoveryMs: Math.max(row.worstRecoveryMs ?? 0, one.worstResumeMs),
      complaints: [...row.complaints, ...one.complaints.map((text) => `seed ${one.seed}: ${text}`)],
    };
  }
  return row;
}
