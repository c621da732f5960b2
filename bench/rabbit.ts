/**
 * rabbit — consume, publish and retry beside bare amqplib doing the same on the same broker, and
 * beside rascal's consumer; at 1, 100 and 1,000 in flight, on quorum and classic queues.
 */

import type { BenchCase, BenchOptions, Sample } from './measure.ts';
import { runCase } from './measure.ts';
import { bareConsume, bareForward, barePublish } from './rabbit-bare.ts';
import { Broker, type Errand } from './rabbit-broker.ts';
import { latenessCases } from './rabbit-lateness.ts';
import { ourConsume, ourPublish, ourRetry } from './rabbit-ours.ts';
import { rascalConsume, rascalForward } from './rabbit-rascal.ts';
import { createServers } from './servers.ts';

const IN_FLIGHT = [1, 100, 1_000];
const TYPES = ['quorum', 'classic'] as const;

/** What the ratios of some cases should be at least. */
const WANTED: Readonly<Record<string, number>> = {
  'quorum consume 100': 0.85,
  'quorum consume 1000': 0.85,
  'quorum publish 100': 0.85,
  'quorum publish 1000': 0.85,
  'quorum retry 100': 0.7,
};

type Run = (broker: Broker, errand: Errand) => Promise<Sample>;

interface Work {
  readonly what: string;
  readonly ours: Run;
  readonly bare: Run;
  readonly rascal?: Run;
}

const WORKS: readonly Work[] = [
  { what: 'consume', ours: ourConsume, bare: bareConsume, rascal: rascalConsume },
  { what: 'publish', ours: ourPublish, bare: barePublish },
  { what: 'retry', ours: ourRetry, bare: bareForward, rascal: rascalForward },
];

/** Runs the chosen cases, or the quick ones, or all. */
export async function rabbitBench(options: BenchOptions): Promise<void> {
  const servers = createServers();
  try {
    const broker = new Broker(await servers.url('rabbitmq'));
    const cases = [...casesOf(broker), ...latenessCases(broker)];
    for (const one of cases.filter(({ name }) => isChosen(name, options))) {
      await runCase(one, options);
    }
    await broker.end();
  } finally {
    await servers.end();
  }
}

function isChosen(name: string, { isQuick, only }: BenchOptions): boolean {
  if (isQuick && WANTED[name] === undefined) return false;
  const counts = only.inFlight;
  if (counts.length > 0 && !counts.some((count) => name.includes(` ${count}`))) return false;
  return only.parts.length === 0 || only.parts.some((part) => name.includes(part));
}

function casesOf(broker: Broker): BenchCase[] {
  return TYPES.flatMap((type) =>
    WORKS.flatMap(({ what, ours, bare, rascal }) =>
      IN_FLIGHT.flatMap((inFlight) => {
        const name = `${type} ${what} ${inFlight}`;
        const errand = (forMs: number): Errand => ({ type, inFlight, forMs });
        const shared = { bench: 'rabbit', unit: '/s', forMs: 2_000 };
        const beside = (title: string, against: string, theirs: Run): BenchCase => ({
          ...shared,
          name: title,
          against,
          ...(WANTED[title] === undefined ? {} : { wanted: WANTED[title] }),
          ours: (forMs) => ours(broker, errand(forMs)),
          theirs: (forMs) => theirs(broker, errand(forMs)),
        });
        return rascal === undefined
          ? [beside(name, 'bare', bare)]
          : [beside(name, 'bare', bare), beside(`${name}, rascal`, 'rascal', rascal)];
      }),
    ),
  );
}
