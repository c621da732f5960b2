/**
 * deadletters — a sweep and a replay beside a bare amqplib loop that moves the same messages:
 * consume, publish, wait for the confirm, ack, with the same number in hand.
 */

import { bareMove, ourReplay, ourSweep, type Errand, type Place } from './deadletters-run.ts';
import type { BenchCase, BenchOptions, Sample } from './measure.ts';
import { runCase } from './measure.ts';
import { Broker } from './rabbit-broker.ts';
import { createServers } from './servers.ts';

const IN_FLIGHT = [1, 100, 1_000];
const TYPES = ['quorum', 'classic'] as const;
const WORKS = { sweep: ourSweep, replay: ourReplay } as const;

/** What the ratios of some cases should be at least. */
const WANTED: Readonly<Record<string, number>> = {
  'quorum sweep 100 1 KiB': 0.7,
  'quorum replay 100 1 KiB': 0.7,
};
const QUICK = [...Object.keys(WANTED), 'classic sweep 100 1 KiB'];

/** A round is as many messages as this in so long. */
const PER_SECOND: Readonly<Record<number, number>> = { 1: 500 };
const PER_SECOND_MOST = 5_000;
const FOR_MS = 2_000;
const QUICK_MS = 600;
const ROUNDS = 5;

/** Runs the chosen cases, or the quick ones, or all. */
export async function deadLettersBench(options: BenchOptions): Promise<void> {
  const servers = createServers();
  try {
    const broker = new Broker(await servers.url('rabbitmq'));
    const place = { broker, managementUrl: await servers.url('rabbitmq-management') };
    for (const one of casesOf(place, options.isQuick ? QUICK_MS : FOR_MS)) {
      if (isChosen(one.name, options)) await runCase(one, options);
    }
    await broker.end();
  } finally {
    await servers.end();
  }
}

function isChosen(name: string, { isQuick, only }: BenchOptions): boolean {
  if (isQuick && !QUICK.includes(name)) return false;
  const fits = (parts: readonly string[]): boolean =>
    parts.length === 0 || parts.some((part) => name.includes(part));
  return fits(only.pairs) && fits(only.parts) && fits(only.inFlight.map((count) => ` ${count} `));
}

function casesOf(place: Place, forMs: number): BenchCase[] {
  return TYPES.flatMap((type) =>
    Object.entries(WORKS).flatMap(([what, ours]) =>
      IN_FLIGHT.map((inFlight): BenchCase => {
        const name = `${type} ${what} ${inFlight} 1 KiB`;
        const run =
          (side: (place: Place, errand: Errand) => Promise<Sample>) =>
          (lastsMs: number): Promise<Sample> => {
            const rate = PER_SECOND[inFlight] ?? PER_SECOND_MOST;
            return side(place, { type, inFlight, count: Math.ceil((rate * lastsMs) / 1_000) });
          };
        const wanted = WANTED[name] === undefined ? {} : { wanted: WANTED[name] };
        const shared = { bench: 'deadletters', unit: '/s', against: 'bare', rounds: ROUNDS };
        return { ...shared, ...wanted, name, forMs, ours: run(ours), theirs: run(bareMove) };
      }),
    ),
  );
}
