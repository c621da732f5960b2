/**
 * stores — every pair of stores beside the raw limit of its servers: enqueue and end to end, 1 to 500
 * in flight, bodies of 1 KiB to 1 MiB, and once with bodies kept apart from their entries.
 *
 * Ours and raw take turns on the same servers, which run for this bench alone.
 */

import { drainCase } from './drain.ts';
import { type BenchCase, type BenchOptions, runCase, type Selection } from './measure.ts';
import { endToEndRate, enqueueRate, type Load } from './ours.ts';
import { makerOf, PAIRS, type Pair, pairOf } from './pairs.ts';
import { rawRate } from './raw.ts';
import { rawOf } from './raw-pairs.ts';
import { PUBLISHED, seedRate } from './seed.ts';
import { createServers, type Servers } from './servers.ts';

const IN_FLIGHT = [1, 5, 50, 500];
const KIB = 1_024;
const SIZES: readonly (readonly [string, number])[] = [
  ['1 KiB', KIB],
  ['64 KiB', 64 * KIB],
  ['1 MiB', KIB * KIB],
];
/** More bytes than this in flight are measured in one round: they take long, and say little. */
const HEAVY_BYTES: number = 32 * KIB * KIB;
/** What a life at one in flight should keep of the raw one. */
const ALONE = 0.6;
/** What should be reached of what was published elsewhere. */
const TIMES_PUBLISHED = 5;

/** What the ratios of some cases should be at least. */
const WANTED: Readonly<Record<string, number>> = {
  'postgres end-to-end 500 1 KiB': 0.8,
  'postgres end-to-end 50 1 KiB': 0.6,
  'nats end-to-end 50 1 KiB': 0.6,
};

/** A case, and how it is made once it was chosen. */
interface Choice {
  readonly name: string;
  readonly pair: Pair;
  readonly inFlight: number;
  readonly size: string;
  readonly isQuick: boolean;
  readonly make: (servers: Servers, forMs: number) => Promise<BenchCase>;
}

/** Runs the chosen cases, or the quick ones, or all. */
export async function storesBench(options: BenchOptions): Promise<void> {
  const { only, isQuick } = options;
  for (const name of only.pairs) pairOf(name);
  const chosen = choices().filter(
    (choice) => isChosen(choice, only) && (!isQuick || choice.isQuick),
  );
  if (chosen.length === 0) throw new Error('there is no such case; see docs/project/benchmarks.md');
  const servers = createServers();
  try {
    for (const { make } of chosen) {
      await runCase(await make(servers, isQuick ? 1_300 : 2_000), options);
    }
  } finally {
    await servers.end();
  }
}

function isChosen({ name, pair, inFlight, size }: Choice, only: Selection): boolean {
  const { pairs, inFlight: counts, sizes, parts } = only;
  if (pairs.length > 0 && !pairs.includes(pair.name)) return false;
  if (counts.length > 0 && !counts.includes(String(inFlight))) return false;
  if (sizes.length > 0 && !sizes.includes(size)) return false;
  return parts.length === 0 || parts.some((part) => name.includes(part));
}

function choices(): Choice[] {
  return [
    ...PAIRS.flatMap((pair) => [
      ...IN_FLIGHT.flatMap((inFlight) =>
        SIZES.flatMap(([size, bodyBytes]) => gridOf(pair, { inFlight, size, bodyBytes })),
      ),
      ...gridOf(pair, { inFlight: 50, size: '1 KiB', bodyBytes: KIB, inlineBytes: 0 }),
      ...seedOf(pair),
    ]),
    {
      name: 'postgres drain 500 1 KiB',
      pair: pairOf('postgres'),
      inFlight: 500,
      size: '1 KiB',
      isQuick: true,
      make: (servers) => drainCase(servers, 'postgres drain 500 1 KiB'),
    },
  ];
}

type Point = Omit<Load, 'forMs'> & { readonly size: string };

function gridOf(pair: Pair, { size, ...point }: Point): Choice[] {
  const { inFlight, bodyBytes, inlineBytes } = point;
  return (['enqueue', 'end-to-end'] as const).map((what) => {
    const apart = inlineBytes === 0 ? ', bodies apart' : '';
    const name = `${pair.name} ${what} ${inFlight} ${size}${apart}`;
    const isAlone = inFlight === 1 && what === 'end-to-end' && size === '1 KiB';
    const wanted = WANTED[name] ?? (isAlone ? ALONE : undefined);
    const isQuick = wanted !== undefined && (!isAlone || PUBLISHED.has(pair.name));
    return {
      name,
      pair,
      inFlight,
      size,
      isQuick,
      async make(servers, forMs) {
        const make = await makerOf(pair, servers);
        const raw = rawOf(pair, servers);
        const ours = what === 'enqueue' ? enqueueRate : endToEndRate;
        const load = (ms: number): Load => ({ ...point, forMs: ms });
        return {
          bench: 'stores',
          name,
          unit: '/s',
          against: 'raw',
          forMs,
          ...(inFlight * bodyBytes > HEAVY_BYTES ? { rounds: 1 } : {}),
          ...(wanted === undefined ? {} : { wanted }),
          ours: (ms) => ours(make, load(ms)),
          theirs: (ms) => rawRate(raw, load(ms), what === 'end-to-end'),
        };
      },
    };
  });
}

/** The workload that was published for a pair elsewhere, beside the figure that was. */
function seedOf(pair: Pair): Choice[] {
  const published = PUBLISHED.get(pair.name);
  if (published === undefined) return [];
  const name = `${pair.name} produce-and-drain 5 1 KiB`;
  return [
    {
      name,
      pair,
      inFlight: 5,
      size: '1 KiB',
      isQuick: true,
      async make(servers, forMs) {
        const make = await makerOf(pair, servers);
        return {
          bench: 'stores',
          name,
          unit: '/s',
          against: 'published',
          forMs,
          wanted: TIMES_PUBLISHED,
          ours: (ms) => seedRate(make, { inFlight: 5, bodyBytes: KIB, forMs: ms }),
          theirs: async () => ({ value: published }),
        };
      },
    },
  ];
}
