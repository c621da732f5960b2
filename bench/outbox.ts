/**
 * outbox — from a commit to a handler on the other side of RabbitMQ: emit, relay, listen, beside a
 * bare loop over the same rows with pg and amqplib, and beside pg-transactional-outbox.
 *
 * `relay` is how fast rows that wait get through a relay. `flow` repeats the published workload of
 * the Python outbox: rates, relays, consumers, sizes, batches and prefetches, with the time that a
 * message takes from its commit to its handler.
 */

import { type BenchCase, type BenchOptions, runCase, type Sample } from './measure.ts';
import { drain, type Errand, flow, type Ground } from './outbox-run.ts';
import type { SideName } from './outbox-words.ts';
import { createServers } from './servers.ts';

const IN_FLIGHT = [1, 10, 100, 500];
const SIZES: readonly (readonly [string, number])[] = [
  ['64 B', 64],
  ['256 B', 256],
  ['1 KiB', 1_024],
  ['4 KiB', 4_096],
];
const RATES = [1_000, 2_000, 3_000, 4_000, 5_000, Number.POSITIVE_INFINITY];
const CREWS = [
  [1, 1],
  [1, 4],
  [2, 2],
  [2, 4],
] as const;
const BATCHES = [10, 20, 50, 100, 500];
const PREFETCHES = [1, 5, 10, 100];
/** The rate at which sizes, batches and prefetches are compared. */
const SWEEP_RATE = 5_000;

/** What the ratios of some cases should be at least. */
const WANTED: Readonly<Record<string, number>> = { 'outbox relay 100 256 B': 0.6 };
const QUICK = [
  'outbox relay 100 256 B',
  'outbox flow open 1 relay 1 consumer 256 B batch 100 prefetch 100',
];

/** How many rows keep a relay busy for a second, as far as earlier runs tell. */
const DRAIN_RATE: Readonly<Record<number, number>> = { 1: 400, 10: 3_000 };
const DRAIN_RATE_MAX = 8_000;
/** The other one looks at every row that waits in each of its rounds: more would never end. */
const PEER_WAITING_MAX = 3_000;
/** As long as the published workload. */
const FLOW_MS = 5_000;
const DRAIN_MS = 2_000;
/** The same for a short look. */
const QUICK_MS = 1_300;

/** As the published workload has it: a batch of 50 on its way, ten deliveries sent ahead. */
const SEED: Errand = {
  relays: 1,
  consumers: 1,
  bodyBytes: 256,
  batch: 50,
  inFlight: 50,
  prefetch: 10,
  isWhole: true,
};

/** A case before its servers are there. */
interface Choice {
  readonly name: string;
  readonly inFlight: number;
  readonly size: string;
  readonly make: (ground: Ground, options: BenchOptions) => BenchCase;
}

/** Runs the chosen cases, or the quick ones, or all. */
export async function outboxBench(options: BenchOptions): Promise<void> {
  const chosen = [...relayChoices(), ...flowChoices()].filter((one) => isChosen(one, options));
  if (chosen.length === 0) throw new Error('there is no such case; see docs/project/benchmarks.md');
  const servers = createServers();
  try {
    const ground = { url: await servers.url('postgres'), amqp: await servers.url('rabbitmq') };
    for (const { make } of chosen) await runCase(make(ground, options), options);
  } finally {
    await servers.end();
  }
}

function isChosen({ name, inFlight, size }: Choice, { isQuick, only }: BenchOptions): boolean {
  if (isQuick && !QUICK.includes(name)) return false;
  if (only.inFlight.length > 0 && !only.inFlight.includes(String(inFlight))) return false;
  if (only.sizes.length > 0 && !only.sizes.includes(size)) return false;
  return only.parts.length === 0 || only.parts.some((part) => name.includes(part));
}

function relayChoices(): Choice[] {
  return IN_FLIGHT.flatMap((inFlight) =>
    SIZES.flatMap(([size, bodyBytes]): Choice[] => {
      const errand = { ...SEED, bodyBytes, batch: inFlight, inFlight, prefetch: 500 };
      const waitingFor = (forMs: number): number =>
        Math.ceil(((DRAIN_RATE[inFlight] ?? DRAIN_RATE_MAX) * forMs) / 1_000);
      const beside = (side: SideName, against: string, max: number): Choice['make'] => {
        const run = (ground: Ground, by: SideName, forMs: number): Promise<Sample> => {
          const waiting = Math.min(max, waitingFor(forMs));
          return drain(ground, by, { ...errand, isWhole: false, waiting });
        };
        return (ground, { isQuick }) => ({
          ...caseOf(against === 'raw' ? name : `${name}, ${against}`, against),
          forMs: isQuick ? QUICK_MS : DRAIN_MS,
          ours: (forMs) => run(ground, 'ours', forMs),
          theirs: (forMs) => run(ground, side, forMs),
        });
      };
      const name = `outbox relay ${inFlight} ${size}`;
      const peer = 'pg-transactional-outbox';
      return [
        { name, inFlight, size, make: beside('raw', 'raw', Number.POSITIVE_INFINITY) },
        { name: `${name}, ${peer}`, inFlight, size, make: beside('peer', peer, PEER_WAITING_MAX) },
      ];
    }),
  );
}

function flowChoices(): Choice[] {
  const points: FlowPoint[] = [
    ...CREWS.flatMap(([relays, consumers]) =>
      RATES.map((ratePerSecond): FlowPoint => ({ ratePerSecond, relays, consumers })),
    ),
    ...SIZES.map(([, bodyBytes]): FlowPoint => ({ ratePerSecond: SWEEP_RATE, bodyBytes })),
    ...BATCHES.map((batch): FlowPoint => ({ ratePerSecond: SWEEP_RATE, batch, inFlight: batch })),
    ...PREFETCHES.map((prefetch): FlowPoint => ({ ratePerSecond: SWEEP_RATE, prefetch })),
    // As a relay is by itself.
    { ratePerSecond: Number.POSITIVE_INFINITY, batch: 100, inFlight: 500, prefetch: 100 },
  ];
  const choices = points.map(flowChoice);
  // The middle of every sweep is the same case.
  return choices.filter(({ name }, at) => choices.findIndex((one) => one.name === name) === at);
}

type FlowPoint = Partial<Errand> & { readonly ratePerSecond: number };

function flowChoice({ ratePerSecond, ...point }: FlowPoint): Choice {
  const errand: Errand = { ...SEED, ...point };
  const { relays, consumers, batch, prefetch, bodyBytes, inFlight } = errand;
  const isOpen = ratePerSecond === Number.POSITIVE_INFINITY;
  const size = SIZES.find(([, bytes]) => bytes === bodyBytes)?.[0] ?? '';
  const name = [
    `outbox flow ${isOpen ? 'open' : `${ratePerSecond}/s`}`,
    counted(relays, 'relay'),
    counted(consumers, 'consumer'),
    size,
    ...(batch === SEED.batch ? [] : [`batch ${batch}`]),
    ...(prefetch === SEED.prefetch ? [] : [`prefetch ${prefetch}`]),
  ].join(' ');
  return {
    name,
    inFlight,
    size,
    make: (ground, { isQuick }) => ({
      ...caseOf(name, 'raw'),
      forMs: isQuick ? QUICK_MS : FLOW_MS,
      ours: (forMs) => flow(ground, 'ours', { ...errand, ratePerSecond, forMs }),
      theirs: (forMs) => flow(ground, 'raw', { ...errand, ratePerSecond, forMs }),
    }),
  };
}

function caseOf(
  name: string,
  against: string,
): Pick<BenchCase, 'bench' | 'name' | 'unit' | 'against'> & {
  wanted?: number;
} {
  const wanted = WANTED[name];
  return {
    bench: 'outbox',
    name,
    unit: '/s',
    against,
    ...(wanted === undefined ? {} : { wanted }),
  };
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}
