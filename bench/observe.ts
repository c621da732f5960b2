/**
 * observe — what it costs to be seen: the same load on SQLite with and without somebody who looks.
 *
 * The difference is smaller than the drift of a machine within a second. So both spools are open at
 * once and have their turn for a tenth of a second each, a few hundred times; `--case "same twice"`
 * tells how far two equal sides are apart.
 */

import * as api from '@opentelemetry/api';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSpool, type Spool, type SpoolOptions } from 'respool';
import { createMetrics, type Metrics, openTelemetry } from 'respool/observe';
import { Events } from '../src/engine/events.ts';
import { type BenchOptions, reportPair, type Sample } from './measure.ts';
import { bytes } from './ours.ts';

const BODY_BYTES = 1_024;
const IN_FLIGHT = 50;
const TURN_MS = 100;
const TURNS = 300;
const QUICK_TURNS = 100;
/** Turns of each side that are not counted: code gets hot, files grow. */
const WARM_UP_TURNS = 10;

/** One of the two that are compared. */
interface Side {
  readonly options?: () => SpoolOptions;
  /** Begins to look at it; returns the end. */
  readonly watch?: (spool: Spool) => Promise<() => void>;
  /** Around each of its turns. */
  readonly enter?: () => () => void;
}

interface Case {
  readonly what: string;
  /** What the ratio should be at least. */
  readonly wanted?: number;
  readonly ours: Side;
  readonly theirs: Side;
}

const PLAIN: Side = {};

const CASES: readonly Case[] = [
  { what: 'metrics', wanted: 0.95, ours: { watch: count }, theirs: PLAIN },
  {
    what: 'tracing',
    wanted: 0.98,
    // The API is there, and no SDK.
    ours: { options: () => ({ tracing: openTelemetry({ api }) }) },
    theirs: PLAIN,
  },
  { what: 'listener of all', ours: { watch: listen }, theirs: PLAIN },
  { what: 'nobody listens', ours: PLAIN, theirs: { enter: withoutEvents } },
  { what: 'same twice', ours: PLAIN, theirs: PLAIN },
];

/** Runs every case. */
export async function observeBench(options: BenchOptions): Promise<void> {
  const { isQuick, only } = options;
  for (const { what, ours, theirs, ...rest } of CASES) {
    const name = `sqlite ${what} ${IN_FLIGHT} 1 KiB`;
    if (only.parts.length > 0 && !only.parts.some((part) => name.includes(part))) continue;
    const samples = await compare([ours, theirs], isQuick ? QUICK_TURNS : TURNS);
    reportPair(
      { bench: 'observe', name, unit: '/s', against: 'without', ...rest },
      samples,
      options,
    );
  }
}

/** Gives both their turns. */
async function compare(
  [ours, theirs]: readonly [Side, Side],
  turns: number,
): Promise<{ readonly ours: Sample; readonly theirs: Sample }> {
  const a = await Driven.open(ours);
  const b = await Driven.open(theirs);
  try {
    for (let turn = -WARM_UP_TURNS; turn < turns; turn += 1) {
      if (turn === 0) for (const one of [a, b]) one.forget();
      // Who goes first changes.
      for (const one of turn % 2 === 0 ? [a, b] : [b, a]) await one.turn();
    }
    return { ours: a.sample, theirs: b.sample };
  } finally {
    await a.close();
    await b.close();
  }
}

/** A spool with callers, each waiting for the delivery of its message before the next. */
class Driven {
  readonly #spool: Spool;
  readonly #side: Side;
  readonly #path: string;
  readonly #body = bytes(BODY_BYTES);
  readonly #waiting = new Map<string, () => void>();
  #unwatch: () => void = () => undefined;
  #done = 0;
  #tookMs = 0;

  private constructor(side: Side) {
    this.#side = side;
    this.#path = mkdtempSync(join(tmpdir(), 'respool-bench-'));
    const concurrency = 2 * IN_FLIGHT;
    this.#spool = createSpool({ path: this.#path, concurrency, ...side.options?.() });
  }

  static async open(side: Side): Promise<Driven> {
    const driven = new Driven(side);
    const spool = driven.#spool;
    spool.handle('bench', async (delivery) => {
      await delivery.body();
      driven.#waiting.get(delivery.headers['caller'] ?? '')?.();
    });
    driven.#unwatch = (await side.watch?.(spool)) ?? (() => undefined);
    await spool.start();
    return driven;
  }

  get sample(): Sample {
    return { value: (this.#done / this.#tookMs) * 1_000 };
  }

  forget(): void {
    this.#done = 0;
    this.#tookMs = 0;
  }

  async turn(): Promise<void> {
    const leave = this.#side.enter?.();
    const beganAt = performance.now();
    const endsAt = beganAt + TURN_MS;
    await Promise.all(
      Array.from({ length: IN_FLIGHT }, async (_, at) => {
        while (performance.now() < endsAt) {
          await this.#one(String(at));
          this.#done += 1;
        }
      }),
    );
    this.#tookMs += performance.now() - beganAt;
    leave?.();
  }

  async close(): Promise<void> {
    this.#unwatch();
    await this.#spool.stop();
    rmSync(this.#path, { recursive: true, force: true });
  }

  async #one(caller: string): Promise<void> {
    const delivered = new Promise<void>((resolve) => this.#waiting.set(caller, resolve));
    await this.#spool.enqueue({ topic: 'bench', body: this.#body, headers: { caller } });
    await delivered;
  }
}

/** Everything is counted, and scraped as often as Prometheus does by default. */
async function count(spool: Spool): Promise<() => void> {
  const metrics: Metrics = await createMetrics({ processMetrics: true });
  metrics.watch(spool);
  const timer = setInterval(() => void metrics.text(), SCRAPE_EVERY_MS);
  return () => {
    clearInterval(timer);
    metrics.close();
  };
}

const SCRAPE_EVERY_MS = 15_000;

function listen(spool: Spool): Promise<() => void> {
  return Promise.resolve(spool.on('*', () => undefined));
}

/** As if there were no events at all: nobody is even asked whether he listens. */
function withoutEvents(): () => void {
  const { prototype } = Events;
  const own = Object.getOwnPropertyDescriptors(prototype);
  Object.defineProperties(prototype, {
    hears: { ...own.hears, value: () => false },
    emit: { ...own.emit, value: () => undefined },
  });
  return () => void Object.defineProperties(prototype, { hears: own.hears, emit: own.emit });
}
