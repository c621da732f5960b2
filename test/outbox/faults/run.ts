/**
 * run — writers, relays and consumers on servers of their own, while relays are killed, the broker
 * goes away and the database crashes.
 *
 *   start ─▶ kills ─▶ broker away, kills ─▶ database crashes, kills ─▶ finish (nothing is left) ─▶ verdict
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { createOutbox, listen, once } from 'respool/outbox';
import { query } from '../../nodes/ground.ts';
import { type PrivateServer, privateServer } from '../../services/index.ts';
import { type Chance, createChance } from '../../torture/chance.ts';
import { judgeOutbox, type OutboxVerdict } from './judge.ts';
import { Observer } from './observer.ts';
import { BATCH, type RelayOrder } from './order.ts';
import { Relays } from './relays.ts';
import { Writers, writersSql } from './writers.ts';

export interface OutboxRunOptions {
  readonly kills: number;
  readonly seed: number;
  /** Transactions are held open up to so long. */
  readonly holdMs: number;
  readonly messagesMax: number;
  /** How long the broker is away. */
  readonly brokerAwayMs: number;
  /** Everything has its end so long after the last write. */
  readonly endMaxMs: number;
}

export interface OutboxResult extends OutboxVerdict {
  readonly seed: number;
  readonly kills: number;
  /** From the last commit until nothing was left. */
  readonly endedMs: number;
}

const WRITERS = 8;
const RELAYS = 3;
const CONSUMERS = 2;
const PREFETCH = 20;
const SCHEMA = 'sales';
const EXCHANGE = 'shop';
/** A kill falls after so many publications, or in a silence. */
const SIGHTS = [1, 40] as const;
const SILENCE_MAX_MS = 1_500;
/** And in between two of them. */
const BETWEEN_MS = [0, 15] as const;
/**
 * RabbitMQ 3.10.8 forgets a quorum queue that was declared right before it is killed, confirmed
 * messages included.
 */
const YOUNG_MS = 4_000;
/** Deliveries fail while the database is away: again every half second. */
const RETRY_DELAYS: readonly string[] = Array.from({ length: 100 }, () => '500ms');
const LOOK_EVERY_MS = 100;
const PAUSE_MS = 200;

/** Does all of it once and returns the verdict. */
export async function outboxRun(options: OutboxRunOptions): Promise<OutboxResult> {
  await using stack = new AsyncDisposableStack();
  const [database, broker] = await Promise.all([
    privateServer('postgres'),
    privateServer('rabbitmq'),
  ]);
  stack.use(database);
  stack.use(broker);
  const run = new Run(database, broker, options);
  stack.defer(() => run.close());
  await run.start();
  return await run.go();
}

class Run {
  readonly #database: PrivateServer;
  readonly #broker: PrivateServer;
  readonly #options: OutboxRunOptions;
  readonly #chance: Chance;
  readonly #pool: pg.Pool;
  readonly #outbox: ReturnType<typeof createOutbox>;
  readonly #observer: Observer;
  readonly #relays: Relays;
  readonly #writers: Writers;
  readonly #listeners: ReturnType<typeof listen>[] = [];
  readonly #complaints: string[] = [];
  #startedAt = 0;

  constructor(database: PrivateServer, broker: PrivateServer, options: OutboxRunOptions) {
    const { url } = database;
    const { seed, holdMs, messagesMax } = options;
    this.#database = database;
    this.#broker = broker;
    this.#options = options;
    this.#chance = createChance(seed);
    this.#pool = new pg.Pool({ connectionString: url });
    // A connection that breaks while nobody uses it is no news here.
    this.#pool.on('error', () => undefined);
    const outbox = createOutbox({ pool: this.#pool, schema: SCHEMA });
    this.#outbox = outbox;
    this.#observer = new Observer(broker.url, EXCHANGE);
    const place = { url, schema: SCHEMA };
    const order: RelayOrder = { ...place, amqp: broker.url, exchange: EXCHANGE, pauseMs: PAUSE_MS };
    this.#relays = new Relays(order);
    this.#writers = new Writers({ ...place, outbox, count: WRITERS, seed, holdMs, messagesMax });
  }

  async start(): Promise<void> {
    await this.#outbox.migrate();
    await query(this.#database.url, writersSql(SCHEMA));
    await this.#observer.start();
    for (let count = 0; count < CONSUMERS; count += 1) await this.#listen();
    this.#startedAt = performance.now();
    await this.#relays.start(RELAYS);
    this.#writers.start();
  }

  async go(): Promise<OutboxResult> {
    const { kills } = this.#options;
    await this.#killUntil(Math.ceil(kills / 2));
    await sleep(Math.max(0, YOUNG_MS - (performance.now() - this.#startedAt)));
    await this.#brokerAway(Math.ceil(kills * 0.7));
    await this.#databaseCrash();
    await this.#killUntil(kills);
    await this.#writers.finish();
    const finishedAt = performance.now();
    await this.#rest();
    const endedMs = Math.round(performance.now() - finishedAt);
    await this.#relays.stop();
    const verdict = await this.#verdict();
    const complaints = [...verdict.complaints, ...this.#complaints, ...this.#relays.complaints];
    const { seed } = this.#options;
    return { ...verdict, complaints, seed, kills: this.#relays.kills, endedMs };
  }

  async close(): Promise<void> {
    await this.#relays.close();
    // A writer that failed has said so in go(), unless something else was first.
    await this.#writers.finish().catch(() => undefined);
    for (const listener of this.#listeners) await listener.stop();
    await this.#observer.close();
    await this.#outbox.close();
    await this.#pool.end();
  }

  /** An effect in the database, once for each message. */
  async #listen(): Promise<void> {
    const text = `INSERT INTO "${SCHEMA}".effects VALUES ($1)`;
    const listener = listen(
      '#',
      {
        url: this.#broker.url,
        exchange: EXCHANGE,
        queue: 'billing',
        retryDelays: RETRY_DELAYS,
        prefetch: PREFETCH,
        concurrency: PREFETCH,
      },
      async ({ id }) => {
        await once(this.#pool, id, (tx) => tx.query(text, [id]), { schema: SCHEMA });
      },
    );
    this.#listeners.push(listener);
    await listener.start();
  }

  async #killUntil(kills: number): Promise<void> {
    while (this.#relays.kills < kills) await this.#killOne();
  }

  async #killOne(): Promise<void> {
    const seen = this.#observer.seen(this.#chance.between(...SIGHTS));
    await Promise.race([seen, sleep(SILENCE_MAX_MS)]);
    await sleep(this.#chance.between(...BETWEEN_MS));
    const { children } = this.#relays;
    const child = children[this.#chance.between(0, children.length - 1)];
    if (child === undefined) return;
    await this.#relays.kill(child);
  }

  async #brokerAway(kills: number): Promise<void> {
    await this.#broker.kill();
    const backAt = performance.now() + this.#options.brokerAwayMs;
    await this.#killUntil(kills);
    await sleep(Math.max(0, backAt - performance.now()));
    await this.#broker.restart();
    await this.#observer.seen(1);
  }

  async #databaseCrash(): Promise<void> {
    await this.#database.kill();
    await this.#database.restart();
    await this.#observer.seen(1);
  }

  /** Nothing is left in the outbox, and all that was kept has come and had its effect. */
  async #rest(): Promise<void> {
    const { endMaxMs } = this.#options;
    const untilMs = performance.now() + endMaxMs;
    let open = await this.#open();
    while (open.some((count) => count > 0) && performance.now() < untilMs) {
      await sleep(LOOK_EVERY_MS);
      open = await this.#open();
    }
    const [rows = 0, effects = 0, sights = 0] = open;
    if (rows + effects + sights === 0) return;
    const what = `${rows} rows, ${effects} effects and ${sights} publications are missing`;
    this.#complaints.push(`no end after ${endMaxMs} ms: ${what}`);
  }

  /** How many rows, effects and publications are still to come. */
  async #open(): Promise<readonly number[]> {
    const sql = `SELECT (SELECT count(*) FROM "${SCHEMA}".entries)::int,
  (SELECT count(*) FROM "${SCHEMA}".kept k
    WHERE NOT EXISTS (SELECT FROM "${SCHEMA}".effects e WHERE e.id = k.id))::int,
  (SELECT count(*) FROM "${SCHEMA}".kept)::int`;
    const [[rows, effects, kept] = []] = await query(this.#database.url, sql);
    const seen = new Set(this.#observer.sights.map(({ id }) => id)).size;
    return [Number(rows), Number(effects), Math.max(0, Number(kept) - seen)];
  }

  async #verdict(): Promise<OutboxVerdict> {
    const { url } = this.#database;
    const kept = await query(url, `SELECT id FROM "${SCHEMA}".kept`);
    const effects = await query(
      url,
      `SELECT id, count(*)::int FROM "${SCHEMA}".effects GROUP BY id`,
    );
    const [[left] = []] = await query(url, `SELECT count(*)::int FROM "${SCHEMA}".entries`);
    return judgeOutbox({
      written: this.#writers.written,
      kept: new Set(kept.map(([id]) => String(id))),
      sights: this.#observer.sights,
      effects: new Map(effects.map(([id, count]) => [String(id), Number(count)])),
      left: Number(left),
      // The broker and the database die as well, and have no share of their own.
      bound: this.#relays.kills * BATCH,
    });
  }
}
