/**
 * observe — what it costs to be seen: the same load on SQLite with and without somebody who looks.
 *
 * Both sides are the same code on the same disk, and the difference is small: many short rounds in
 * turns, so that a drift of the machine hits both.
 */

import * as api from '@opentelemetry/api';
import { join } from 'node:path';
import type { Spool } from 'respool';
import { createMetrics, openTelemetry } from 'respool/observe';
import { filesystemBodies } from 'respool/stores/filesystem';
import { sqlite } from 'respool/stores/sqlite';
import { Events } from '../src/engine/events.ts';
import { type BenchOptions, runCase, type Sample } from './measure.ts';
import { type Besides, endToEndRate, type Load, type StoreMaker } from './ours.ts';

const BODY_BYTES = 1_024;
const IN_FLIGHT = 50;
const ROUNDS = 15;
const QUICK_ROUNDS = 7;

const onSqlite: StoreMaker = (path) => ({
  entries: sqlite({ path }),
  bodies: filesystemBodies({ path: join(path, 'bodies') }),
});

interface Case {
  readonly what: string;
  /** What the ratio should be at least. */
  readonly wanted?: number;
  ours(forMs: number): Promise<Sample>;
  theirs(forMs: number): Promise<Sample>;
}

/** Runs every case. */
export async function observeBench(options: BenchOptions): Promise<void> {
  const { isQuick, only } = options;
  const plain = (forMs: number): Promise<Sample> => rate(forMs);
  const cases: readonly Case[] = [
    { what: 'metrics', wanted: 0.95, ours: withMetrics, theirs: plain },
    { what: 'tracing', wanted: 0.98, ours: withTracing, theirs: plain },
    { what: 'listener of all', ours: (ms) => rate(ms, { watch: listen }), theirs: plain },
    { what: 'nobody listens', ours: plain, theirs: withoutEvents },
  ];
  for (const { what, ...sides } of cases) {
    const name = `sqlite ${what} ${IN_FLIGHT} 1 KiB`;
    if (only.parts.length > 0 && !only.parts.some((part) => name.includes(part))) continue;
    const rounds = isQuick ? QUICK_ROUNDS : ROUNDS;
    await runCase(
      { bench: 'observe', name, unit: '/s', against: 'without', forMs: 1_200, rounds, ...sides },
      options,
    );
  }
}

function rate(forMs: number, besides?: Besides): Promise<Sample> {
  const load: Load = { inFlight: IN_FLIGHT, bodyBytes: BODY_BYTES, forMs };
  return endToEndRate(onSqlite, load, besides);
}

/** Everything is counted, and scraped once while it runs: more often than anybody does. */
async function withMetrics(forMs: number): Promise<Sample> {
  const metrics = await createMetrics({ processMetrics: true });
  let scraped: Promise<unknown> = Promise.resolve();
  const watch = (spool: Spool): (() => void) => {
    const unwatch = metrics.watch(spool);
    const timer = setTimeout(() => {
      scraped = metrics.text();
    }, forMs * 0.7);
    return () => {
      clearTimeout(timer);
      unwatch();
    };
  };
  try {
    return await rate(forMs, { watch });
  } finally {
    await scraped;
    metrics.close();
  }
}

/** The API is there, and no SDK. */
function withTracing(forMs: number): Promise<Sample> {
  return rate(forMs, { options: { tracing: openTelemetry({ api }) } });
}

function listen(spool: Spool): () => void {
  return spool.on('*', () => undefined);
}

/** As if there were no events at all: nobody is even asked whether he listens. */
async function withoutEvents(forMs: number): Promise<Sample> {
  const { prototype } = Events;
  const own = Object.getOwnPropertyDescriptors(prototype);
  Object.defineProperties(prototype, {
    hears: { ...own.hears, value: () => false },
    emit: { ...own.emit, value: () => undefined },
  });
  try {
    return await rate(forMs);
  } finally {
    Object.defineProperties(prototype, { hears: own.hears, emit: own.emit });
  }
}
