/** suites — what `npm run torture` can run, each with its full numbers, as rows of the verdict. */
import { createChance } from './chance.ts';
import { corruption } from './corruption.ts';
import { crash } from './crash.ts';
import { eio, type Failing } from './eio.ts';
import { full } from './full.ts';
import { DEADLY, type Poison } from './life-order.ts';
import { pause } from './pause.ts';
import { type Place, PLACES } from './places.ts';
import { points, type PointsResult } from './points.ts';
import { MESSAGES } from './points-order.ts';
import { poison } from './poison.ts';
import { cutsForget, powercut } from './powercut.ts';
import { reopening, type ReopeningResult } from './reopening.ts';
import { shutdown } from './shutdown.ts';
import { deadSuite } from './suites-dead.ts';
import { idleSuite, natsKillsSuite, nodesSuite, serversSuite } from './suites-nodes.ts';
import { outboxSuite } from './suites-outbox.ts';
import { rabbitSuite } from './suites-rabbit.ts';
import { cannotMount, lacking } from './tools.ts';
import type { Row } from './verdict.ts';

/** What a suite is told. */
export interface SuiteOptions {
  readonly seed: number;
  /** How many kills, points, cuts, pauses or damages, instead of the suite's own number. */
  readonly kills: number | undefined;
}

type Suite = (options: SuiteOptions) => Promise<readonly Row[]>;

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

/** How often each suite does its worst, unless told otherwise. */
const KILLS = { crash: 500, powercut: 40, stop: 20, poison: 3, shutdown: 20, corruption: 200 };
const POISONS: readonly Poison[] = [...DEADLY, 'undefined', 'huge', 'hang'];

export const SUITES: Readonly<Record<string, Suite>> = {
  async crash({ seed, kills = KILLS.crash }) {
    // Both at once: a process that is killed young spends most of its life starting, on one core.
    const results = await Promise.all(PLACES.map((place) => crash(place, { kills, seed })));
    return results.map((result) => ({ ...result, suite: 'crash', faults: result.kills }));
  },

  async points({ kills: max = Number.POSITIVE_INFINITY }) {
    const reason = await lacking('strace');
    return [
      ...(await each('points', reason, async (place) => fromPoints(await points(place, { max })))),
      ...(await each('reopening', reason, async (place) =>
        fromPoints(await reopening(place, { max })),
      )),
    ];
  },

  async powercut({ seed, kills = KILLS.powercut }) {
    const reason = await cannotMount();
    if (reason === undefined && !(await cutsForget())) {
      throw new Error('a copy of the image holds what was never synced: this test proves nothing');
    }
    return each('powercut', reason, async (place) => {
      const result = await powercut(place, { cuts: kills, seed });
      return { ...result, faults: result.cuts };
    });
  },

  async full() {
    const [noMount, noTrace] = [await cannotMount(), await lacking('strace')];
    const failing = Array.from({ length: 8 }, (_, at): Failing[] => [
      `fsync,fdatasync ${at + 1}`,
      `fsync,fdatasync ${at + 1}+`,
      `fdatasync ${at + 1}`,
      `fsync ${at + 1}`,
    ]).flat();
    return [
      ...(await each('disk full', noMount, async (place) => {
        const { accepted, refused, complaints } = await full(place);
        return { faults: refused, messages: accepted, complaints };
      })),
      ...(await each('fsync fails', noTrace, async (place) => {
        const result = await eio(place, { failing, canMount: noMount === undefined });
        const { faults, complaints } = result;
        return { faults, messages: faults * MESSAGES, complaints };
      })),
    ];
  },

  async stop({ seed, kills = KILLS.stop }) {
    const chance = createChance(seed);
    const results = await times(kills, () =>
      // 1.5 to 5 leases.
      pause('sqlite', { leases: chance.between(15, 50) / 10 }),
    );
    return [sum('stop', 'sqlite', results)];
  },

  async poison({ kills = KILLS.poison }) {
    return each('poison', undefined, async (place) => {
      const results = await times(kills * POISONS.length, (at) =>
        poison(place, POISONS[at % POISONS.length] ?? 'kill'),
      );
      return sum('poison', place, results);
    });
  },

  async shutdown({ seed, kills = KILLS.shutdown }) {
    const chance = createChance(seed);
    return each('shutdown', undefined, async (place) => {
      const results = await times(kills, () => shutdown(place, { slowMs: chance.between(5, 400) }));
      return sum('shutdown', place, results);
    });
  },

  async corruption({ seed, kills = KILLS.corruption }) {
    return each('corruption', undefined, async (place) => {
      const results = await times(kills, (at) => corruption(place, seed + at));
      const add = (pick: (result: (typeof results)[number]) => number): number =>
        results.reduce((total, result) => total + pick(result), 0);
      return {
        faults: add(({ damaged }) => damaged),
        messages: add(({ messages }) => messages),
        complaints: results.flatMap(({ complaints }) => complaints),
      };
    });
  },

  nodes: nodesSuite,
  servers: serversSuite,
  'nats-kills': natsKillsSuite,
  idle: idleSuite,
  rabbit: rabbitSuite,
  outbox: outboxSuite,
  dead: deadSuite,
};

/** Points that were never reached have proved nothing; a few are, as threads do not keep step. */
const MISSED_MAX = 0.1;

function fromPoints(result: PointsResult | ReopeningResult): Partial<Row> {
  const { tried, missed, worstRecoveryMs, complaints } = result;
  const few = missed <= tried * MISSED_MAX ? [] : [`${missed} of ${tried} points were not reached`];
  const messages = tried * MESSAGES;
  return { faults: tried, messages, worstRecoveryMs, complaints: [...complaints, ...few] };
}

/** One row for each place, or why there is none. */
async function each(
  suite: string,
  skipped: string | undefined,
  run: (place: Place) => Promise<Partial<Row>>,
): Promise<readonly Row[]> {
  const rows: Row[] = [];
  for (const place of PLACES) {
    const result = skipped === undefined ? await run(place) : { skipped };
    rows.push({ ...NOTHING, ...result, suite, place });
  }
  return rows;
}

async function times<Result>(
  count: number,
  run: (at: number) => Promise<Result>,
): Promise<readonly Result[]> {
  const results: Result[] = [];
  for (let at = 0; at < count; at += 1) results.push(await run(at));
  return results;
}

type Counts = Omit<Row, 'suite' | 'place' | 'faults' | 'worstRecoveryMs' | 'skipped'>;

function sum(suite: string, place: Place, results: readonly Counts[]): Row {
  let row: Row = { ...NOTHING, suite, place };
  for (const { messages, lost, duplicated, bound, unexpected, corrupt, complaints } of results) {
    row = {
      ...row,
      faults: row.faults + 1,
      messages: row.messages + messages,
      lost: row.lost + lost,
      duplicated: row.duplicated + duplicated,
      bound: row.bound + bound,
      unexpected: row.unexpected + unexpected,
      corrupt: row.corrupt + corrupt,
      complaints: [...row.complaints, ...complaints],
    };
  }
  return row;
}
