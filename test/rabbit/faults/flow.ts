/**
 * flow — several consumer processes on one queue, a producer, and the ledger that hears them all.
 *
 *   start ─▶ load ─faults─▶ finish (no new messages; everything has its end) ─▶ verdict
 *
 * A process that dies is replaced at once.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from 'amqplib';
import {
  type AmqpConnection,
  createConsumer,
  createPublisher,
  type Publisher,
  type QueuePlan,
  type QueueType,
} from 'respool/rabbit';
import { type Chance, createChance } from '../../torture/chance.ts';
import { type Child, startChild } from '../../torture/child.ts';
import { Ledger } from '../../torture/ledger.ts';
import { sha256 } from '../../torture/plans.ts';
import { ownName } from './names.ts';
import { type Found, type FlowVerdict, judgeFlow, unfinished } from './judge.ts';
import { type ConsumerOrder, MAX_LOST, optionsOf, PREFETCH } from './order.ts';
import { Producer } from './producer.ts';
import { ask, byHand } from './setup.ts';

export interface FlowOptions {
  /** Some messages kill whoever handles them. */
  readonly mayCrash?: boolean;
  /** Where consumers and the producer connect. */
  readonly url: string;
  /** Straight to the broker, for the test's own looks; default the same. */
  readonly straightUrl?: string;
  readonly managementUrl: string;
  readonly consumers: number;
  readonly seed: number;
  readonly type?: QueueType;
  readonly maxLost?: number;
  readonly prefetch?: number;
}

/** What came of a run. */
export interface FlowResult extends FlowVerdict {
  readonly seed: number;
  readonly kills: number;
  /** Messages that still waited when it was over, with a broker that lets them wait for long. */
  readonly late: number;
  readonly worstResumeMs: number;
}

/** The promise: at work again so long after a fault. */
const RESUME_MAX_MS = 240_000;
/** After this long what has not ended is lost. */
const END_MAX_MS = 240_000;
const LOOK_EVERY_MS = 100;

export class Flow {
  readonly ledger: Ledger = new Ledger();
  readonly chance: Chance;
  readonly complaints: string[] = [];
  readonly producer: Producer;
  readonly plan: QueuePlan;
  readonly found: Found[] = [];
  kills = 0;
  worstResumeMs = 0;
  /** Faults that may have forked what was in flight at one consumer. */
  forks = 0;
  readonly #options: FlowOptions;
  readonly #order: Omit<ConsumerOrder, 'port' | 'seed'>;
  readonly #publisher: Publisher;
  readonly #children: Child[] = [];
  readonly #burials = new Set<Promise<void>>();
  #port = 0;
  #isEnding = false;

  constructor(options: FlowOptions) {
    const { url, seed, type = 'quorum', maxLost = MAX_LOST, prefetch = PREFETCH } = options;
    this.#options = options;
    this.chance = createChance(seed);
    const queue = ownName('flow');
    this.#order = { url, queue, type, maxLost, prefetch };
    this.plan = createConsumer(optionsOf(this.#order), () => undefined).plan;
    // A broker that was restarted may forget to confirm what came before its queues had a leader.
    this.#publisher = createPublisher({ url, exchange: '', confirmTimeout: '5s' });
    const { ledger, chance } = this;
    this.producer = new Producer({ publisher: this.#publisher, ledger, chance, queue });
  }

  /** The processes that live. */
  get children(): readonly Child[] {
    return this.#children;
  }

  async start(): Promise<void> {
    this.#port = await this.ledger.listen();
    for (let count = 0; count < this.#options.consumers; count += 1) this.#add();
    await Promise.all(this.#children.map((child) => child.line('started')));
  }

  /** Kills a process; another one takes its place. */
  async kill(child: Child): Promise<void> {
    child.signal('SIGKILL');
    await child.ended;
  }

  /** Ends one process in order, by SIGTERM; another one takes its place. */
  async retire(): Promise<void> {
    const [child] = this.#children;
    if (child === undefined) return;
    child.signal('SIGTERM');
    const { code } = await child.ended;
    if (code !== 0) this.complaints.push(`SIGTERM ended a consumer with ${code}`);
  }

  /** Waits until every process has had an effect after now. */
  async resumed(after: string): Promise<void> {
    const { ledger } = this;
    const [now, beganAt] = [Date.now(), performance.now()];
    const first = ledger.effects.length;
    const isBack = ({ pid }: Child): boolean =>
      ledger.effects.some((one, at) => at >= first && one.pid === pid && (one.at ?? 0) > now);
    const isOver = await Promise.race([
      ledger.until(() => this.#children.every(isBack)).then(() => true),
      sleep(RESUME_MAX_MS, false),
    ]);
    this.worstResumeMs = Math.max(this.worstResumeMs, Math.round(performance.now() - beganAt));
    if (isOver) return;
    const words = this.#children.map(({ lines }) => lines.slice(-2).join('; '));
    this.complaints.push(`not resumed after "${after}"; last ${words.join(' | ')}`);
  }

  /**
   * No more messages, and everything has to come to its end within the time. `mayLie`: what is in
   * a wait queue then is late, not lost.
   */
  async finish({
    withinMs = END_MAX_MS,
    mayLie = false,
  }: {
    readonly withinMs?: number;
    readonly mayLie?: boolean;
  } = {}) {
    await this.producer.finish();
    const connection = (await connect(this.#straightUrl)) as AmqpConnection;
    connection.on('error', () => undefined);
    await this.#collect(connection);
    const untilMs = performance.now() + withinMs;
    let open = unfinished({ facts: this.ledger, found: this.found });
    while (open.length > 0 && performance.now() < untilMs) {
      await sleep(LOOK_EVERY_MS);
      open = unfinished({ facts: this.ledger, found: this.found });
    }
    const lying = open.length > 0 && mayLie ? await this.#lying() : 0;
    // Some may have ended since.
    open = unfinished({ facts: this.ledger, found: this.found });
    if (open.length > lying) this.complaints.push(`no end after ${withinMs} ms: ${open.length}`);
    await this.#stopAll();
    await connection.close();
    return this.#verdict(Math.min(lying, open.length));
  }

  async close(): Promise<void> {
    this.#isEnding = true;
    for (const child of this.#children) child.signal('SIGKILL');
    await Promise.all(this.#burials);
    await this.producer.finish();
    await this.#publisher.close();
    this.ledger.close();
    await this.#remove();
  }

  get #straightUrl(): string {
    return this.#options.straightUrl ?? this.#options.url;
  }

  #verdict(lying: number): FlowResult {
    const { ledger: facts, found, forks, kills, worstResumeMs } = this;
    const bound = (forks + kills) * this.#order.prefetch + this.producer.unknown;
    const judged = judgeFlow({ facts, found, lying, bound });
    const complaints = [...judged.complaints, ...this.complaints];
    return { ...judged, complaints, seed: this.chance.seed, kills, late: lying, worstResumeMs };
  }

  /** Takes what ended in the dead, parked and unrouted queues, now and from now on. */
  async #collect(connection: AmqpConnection): Promise<void> {
    const channel = await connection.createChannel();
    for (const { name, role } of this.plan.topology.queues) {
      if (role === 'main' || role === 'wait') continue;
      await channel.consume(name, (message) => {
        if (message === null) return;
        const key = message.properties.messageId ?? '';
        this.found.push({ key, where: role, sha256: sha256(message.content) });
        channel.ack(message);
      });
    }
  }

  /** What the broker says it has in the main and wait queues, dead letters on their way included. */
  async #lying(): Promise<number> {
    // Counts of quorum queues are up to five seconds old.
    await sleep(6_000);
    let sum = 0;
    for (const { name, role } of this.plan.topology.queues) {
      if (role !== 'main' && role !== 'wait') continue;
      const path = `/api/queues/%2F/${encodeURIComponent(name)}`;
      const told = (await ask(this.#options.managementUrl, path)) as Record<string, unknown>;
      sum += Math.max(Number(told['messages'] ?? 0), Number(told['messages_dlx'] ?? 0));
    }
    return sum;
  }

  /** Every process stops in order, and ends by itself. */
  async #stopAll(): Promise<void> {
    this.#isEnding = true;
    const children = [...this.#children];
    for (const child of children) child.say('stop');
    for (const child of children) {
      const { code, signal } = await child.ended;
      // A fork of the message that kills may be met in the last moment, too.
      const isPoisoned = this.#options.mayCrash === true && signal === 'SIGKILL';
      if (code !== 0 && !isPoisoned)
        this.complaints.push(`a consumer ended with ${code}: ${child.complaint()}`);
    }
    await this.ledger.alone();
  }

  #add(): void {
    const seed = this.chance.between(1, 2 ** 30);
    const order: ConsumerOrder = { ...this.#order, port: this.#port, seed };
    const child = startChild('../rabbit/faults/consumer-child.ts', order);
    this.#children.push(child);
    const burial = this.#bury(child).finally(() => this.#burials.delete(burial));
    this.#burials.add(burial);
  }

  async #bury(child: Child): Promise<void> {
    const { signal, code } = await child.ended;
    this.#children.splice(this.#children.indexOf(child), 1);
    if (signal === 'SIGKILL') this.kills += 1;
    if (child.complaint() !== '') this.complaints.push(child.complaint().slice(0, 500));
    if (this.#isEnding) return;
    if (signal === null && code !== 0) this.complaints.push(`a consumer ended with ${code}`);
    this.#add();
  }

  #remove(): Promise<void> {
    return byHand(this.#straightUrl, async (channel) => {
      for (const { name } of this.plan.topology.queues) await channel.deleteQueue(name);
      for (const { name } of this.plan.topology.exchanges) await channel.deleteExchange(name);
    });
  }
}
