/**
 * suites-nodes — several nodes on one store, with full numbers: `nodes` (they are killed and paused),
 * `servers` (their servers and connections are treated badly) and `idle` (a transaction is left
 * open); and `nats-kills`: a NATS server is killed on a busy machine.
 */
import { standingDoor, startKeeper } from '../../scripts/services/link.ts';
import { faults } from '../nodes/faults.ts';
import type { FleetResult } from '../nodes/fleet.ts';
import { isServerPlace, SERVERS_OF } from '../nodes/ground.ts';
import { idleTransaction, RATIO_MIN } from '../nodes/idle-transaction.ts';
import { kills } from '../nodes/kills.ts';
import { pauses } from '../nodes/pauses.ts';
import { serverKills } from '../nodes/server-kills.ts';
import { BROKER_VARIABLE } from '../services/broker.ts';
import { service, skipReason } from '../services/index.ts';
import type { Place } from './places.ts';
import type { Row } from './verdict.ts';

interface NodesOptions {
  readonly seed: number;
  /** How many kills or cuts, instead of the suite's own number. */
  readonly kills: number | undefined;
}

const NODE_PLACES = ['sqlite', 'postgres', 'nats', 'postgres-s3'] as const;
const SERVER_PLACES = ['postgres', 'nats', 'postgres-s3'] as const;
const KILLS = 500;
const CUTS = 1_000;
const SERVER_KILLS = 60;
/** One pause to so many kills, one crash of a server to so many cuts. */
const KILLS_PER_PAUSE = 10;
const CUTS_PER_RESTART = 10;
/** Faults in the life of one fleet: its processes do not live for ever. */
const KILLS_AT_ONCE = 50;
const PAUSES_AT_ONCE = 10;
const CUTS_AT_ONCE = 20;
const LONGEST_MS = 4_000;
/** The promise: at work again so long after the server's return. */
const RESUME_MAX_MS = 60_000;
const IDLE_MS = 600_000;

/** Kills and pauses of nodes. */
export function nodesSuite({ seed, kills: count = KILLS }: NodesOptions): Promise<readonly Row[]> {
  return withServers(async () => {
    const rows: Row[] = [];
    for (const place of NODE_PLACES) {
      rows.push(
        await row('nodes killed', place, inParts(count, KILLS_AT_ONCE), async (part, at) => {
          const result = await kills(place, { kills: part, nodes: 4, seed: seed + at });
          return { ...result, faults: result.kills };
        }),
        await row(
          'nodes paused',
          place,
          inParts(Math.ceil(count / KILLS_PER_PAUSE), PAUSES_AT_ONCE),
          async (part, at) => {
            const result = await pauses(place, { pauses: part, nodes: 3, seed: seed + at });
            return { ...result, faults: part };
          },
        ),
      );
    }
    return rows;
  });
}

/** Crashes, freezes and spoiled connections of servers. */
export function serversSuite({ seed, kills: cuts = CUTS }: NodesOptions): Promise<readonly Row[]> {
  return withServers(async () => {
    const rows: Row[] = [];
    for (const place of SERVER_PLACES) {
      rows.push(
        await row('servers', place, inParts(cuts, CUTS_AT_ONCE), (part, at) =>
          faults(place, {
            restarts: Math.ceil(part / CUTS_PER_RESTART),
            cuts: part,
            nodes: 2 + 2 * (at % 2),
            seed: seed + at,
            longestMs: LONGEST_MS,
            resumeMaxMs: RESUME_MAX_MS,
          }),
        ),
      );
    }
    return rows;
  });
}

/**
 * Kills of a NATS server with SIGKILL while two processes keep the machine busy. Which server, and
 * how it syncs: `RESPOOL_TEST_NATS_BIN`, `RESPOOL_TEST_NATS_SYNC`.
 */
export function natsKillsSuite({
  seed,
  kills: count = SERVER_KILLS,
}: NodesOptions): Promise<readonly Row[]> {
  return withServers(async () => [
    await row('server killed', 'nats', [count], async (part) => {
      const result = await serverKills({ kills: part, nodes: 3, seed, spinners: 2 });
      const { resurrected, accepted, duplicated } = result;
      process.stderr.write(
        `accepted ${accepted}, lost ${result.lost}, resurrected ${resurrected}, ` +
          `duplicated ${duplicated}\n`,
      );
      const back = resurrected === 0 ? [] : [`${resurrected} came back after they were settled`];
      const complaints = [...result.complaints, ...back];
      return { ...result, complaints, faults: result.serverKills };
    }),
  ]);
}

/** A transaction left open for ten minutes; for as many seconds as there are kills by request. */
export function idleSuite({ kills: seconds }: NodesOptions): Promise<readonly Row[]> {
  const lastsMs = seconds === undefined ? IDLE_MS : Math.min(IDLE_MS, seconds * 1_000);
  return withServers(async () => [await leftOpen(lastsMs)]);
}

async function leftOpen(lastsMs: number): Promise<Row> {
  const about = { ...NOTHING, suite: 'left open', place: 'postgres' };
  const skipped = skipReason('postgres');
  if (skipped !== undefined) return { ...about, skipped };
  const { ratio, messages, told } = await idleTransaction(await service('postgres'), { lastsMs });
  const percent = Math.round(ratio * 100);
  const complaints = ratio >= RATIO_MIN ? [] : [`${percent} % of the rate was left`];
  if (told.held === undefined) complaints.push('the doctor did not name the transaction');
  return { ...about, faults: 1, messages, complaints };
}

/** What parts of a suite tell. */
type Part = FleetResult & { readonly faults: number; readonly worstResumeMs?: number };

const NOTHING: Omit<Row, 'suite' | 'place'> = {
  faults: 0,
  messages: 0,
  lost: 0,
  duplicated: 0,
  bound: 0,
  unexpected: 0,
  corrupt: 0,
  worstRecoveryMs: null,
  complaints: [],
};

async function row(
  suite: string,
  place: Place,
  parts: readonly number[],
  run: (part: number, at: number) => Promise<Part>,
): Promise<Row> {
  let sum: Row = { ...NOTHING, suite, place };
  const servers = isServerPlace(place) ? SERVERS_OF[place] : [];
  const skipped = servers.map((name) => skipReason(name)).find((reason) => reason !== undefined);
  if (skipped !== undefined) return { ...sum, skipped };
  for (const [at, part] of parts.entries()) {
    const one = await run(part, at);
    const { worstResumeMs: resumeMs } = one;
    const seeded = one.complaints.map((text) => `seed ${one.seed}: ${text}`);
    sum = {
      ...sum,
      faults: sum.faults + one.faults,
      messages: sum.messages + one.messages,
      lost: sum.lost + one.lost,
      duplicated: sum.duplicated + one.duplicated,
      bound: sum.bound + one.bound,
      unexpected: sum.unexpected + one.unexpected,
      corrupt: sum.corrupt + one.corrupt,
      worstRecoveryMs: resumeMs === undefined ? null : Math.max(sum.worstRecoveryMs ?? 0, resumeMs),
      complaints: [...sum.complaints, ...seeded],
    };
  }
  return sum;
}

function inParts(count: number, atOnce: number): readonly number[] {
  const parts = Array.from({ length: Math.floor(count / atOnce) }, () => atOnce);
  return count % atOnce === 0 ? parts : [...parts, count % atOnce];
}

/** Lets the suites find servers as the tests do, and ends those that were started for it. */
export async function withServers<Value>(work: () => Promise<Value>): Promise<Value> {
  if (process.env[BROKER_VARIABLE] !== undefined) return work();
  const standing = await standingDoor();
  const keeper = standing === undefined ? await startKeeper('owned') : undefined;
  process.env[BROKER_VARIABLE] = standing ?? keeper?.door ?? '';
  try {
    return await work();
  } finally {
    delete process.env[BROKER_VARIABLE];
    await keeper?.end();
  }
}
