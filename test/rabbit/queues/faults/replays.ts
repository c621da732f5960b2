/**
 * replays — letters are replayed by processes that are killed, cancelled, or find that their
 * destination or their broker is broken; then the replay is resumed until it is done.
 *
 *   exchange ─key─▶ home queue ─reject─▶ dead queue ─replay─▶ exchange
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Replay, ReplayOptions } from 'respool/dead-letters';
import { createManagement } from 'respool/rabbit';
import { LEASE_MS } from '../../../../src/dead-letters/replay/run-state.ts';
import type { LetterRoute } from '../../../../src/ports/dead-letters.ts';
import { type Chance, createChance } from '../../../torture/chance.ts';
import { type Child, startChild } from '../../../torture/child.ts';
import { inFolder } from '../../../torture/folder.ts';
import type { PrivateServer } from '../../../services/index.ts';
import { ownName } from '../../faults/names.ts';
import { type Broker, YOUNG_MS } from '../../faults/runs.ts';
import { judgeLetters, type Verdict } from './judge.ts';
import type { Ended, ReplayOrder } from './replay-order.ts';
import { declareDead, depthOf, type Desk, drain, type Laid, layFrom, openDesk } from './stock.ts';

export interface ReplaysOptions {
  readonly letters: number;
  readonly seed: number;
}

/** What came of it. */
export interface ReplaysResult extends Verdict {
  readonly seed: number;
  /** How often something was done to it. */
  readonly faults: number;
  readonly replay: Replay | undefined;
}

/** How a destination breaks: nothing leads to it any more, or it takes no more. */
export type Break = 'unbound' | 'full';

const WINDOW = 100;
/** Meant to be sent by one process at once: what is on its way, and two batches of half as many. */
const IN_HAND = 2 * WINDOW;
const KEY = 'order.made';
/** A process lives on so long after it was to be killed. */
const LATE_MS = [0, 12] as const;
/** A replay that is killed, cancelled or whose road is taken away takes about so long. */
const LASTS_SECONDS = 4;
/** A process is gone so long after its work. */
const LEAVE_MAX_MS = 120_000;
const GOAL_MAX_MS = 120_000;
/** No canaries: no consumer takes them here. */
const PLAIN: ReplayOptions = { window: WINDOW, canary: 0 };

/** The destination breaks half way: the guard stops the replay, which goes on when it is mended. */
export function replayBroken(
  broker: Broker,
  { how, ...options }: ReplaysOptions & { readonly how: Break },
): Promise<ReplaysResult> {
  return withGround(broker, options, async (ground) => {
    const { letters } = options;
    const half = Math.floor(letters / 2);
    const recover = how === 'full' ? await ground.limit(half) : () => ground.bind();
    // Home is the queue itself; whoever names the exchange depends on its binding.
    const to = how === 'unbound' ? { to: ground.road } : {};
    const child = ground.begin({ ...slowly(options), ...to });
    if (how === 'unbound') {
      await ground.reached(half);
      await ground.unbind();
    }
    const stopped = await ground.ended(child);
    if (stopped.replay.state !== 'stopped') ground.complain(`is ${stopped.replay.state}: no guard`);
    const there = await depthOf(ground.desk, ground.home);
    if (there === 0 || there >= letters) ground.complain(`${there} were there when it stopped`);
    await recover();
    return ground.finish({ faults: 1 });
  });
}

/** Processes are killed with SIGKILL, and the replay is resumed each time. */
export function replayKilled(
  broker: Broker,
  { kills, ...options }: ReplaysOptions & { readonly kills: number },
): Promise<ReplaysResult> {
  return withGround(broker, options, async (ground) => {
    const { chance } = ground;
    const most = Math.floor(options.letters * 0.8);
    const goals = Array.from({ length: kills }, () => chance.between(0, most));
    for (const goal of goals.toSorted((a, b) => a - b)) {
      const child = ground.begin(slowly(options));
      await ground.reached(goal, child);
      await sleep(chance.between(...LATE_MS));
      await ground.kill(child);
    }
    return ground.finish({ faults: kills, mayBeUnsure: true });
  });
}

/** Somebody cancels it: every message is at its destination or where it was. */
export function replayCancelled(broker: Broker, options: ReplaysOptions): Promise<ReplaysResult> {
  return withGround(broker, options, async (ground) => {
    // n.b. Whoever runs it hears what is wanted once a second.
    const child = ground.begin(slowly(options));
    await ground.reached(ground.chance.between(1, Math.floor(options.letters / 2)));
    child.say('cancel');
    const { replay } = await ground.ended(child);
    if (replay.state !== 'cancelled') ground.complain(`is ${replay.state}, not cancelled`);
    return ground.judge({ faults: 1, replay, unsure: [], isAll: false });
  });
}

/** The broker is killed in the middle, and comes back with its data. */
export function replayCrashed(
  server: PrivateServer,
  { restarts, ...options }: ReplaysOptions & { readonly restarts: number },
): Promise<ReplaysResult> {
  return withGround(server, options, async (ground) => {
    await sleep(YOUNG_MS);
    for (let count = 1; count <= restarts; count += 1) {
      const child = ground.begin(slowly(options));
      await ground.reached(Math.floor((options.letters * count) / (restarts + 1)), child);
      await server.kill();
      await server.restart();
      await ground.reopen();
      // Whether it waits for the broker or gives up is its own affair.
      await ground.kill(child);
    }
    return ground.finish({ faults: restarts, mayBeUnsure: true });
  });
}

/** Slow enough for what is done to it half way. */
function slowly({ letters }: ReplaysOptions): ReplayOptions {
  return { ...PLAIN, rate: letters / LASTS_SECONDS };
}

async function withGround(
  broker: Broker,
  { letters, seed }: ReplaysOptions,
  run: (ground: Ground) => Promise<ReplaysResult>,
): Promise<ReplaysResult> {
  return await inFolder(async (folder) => {
    const ground = new Ground(broker, { folder, seed, desk: await openDesk(broker.url) });
    try {
      await ground.lay(letters);
      return await run(ground);
    } finally {
      await ground.close();
    }
  });
}

interface Judged {
  readonly faults: number;
  readonly replay: Replay;
  /** Ids that may be here and there. */
  readonly unsure: readonly string[];
  /** Whether nothing else may be left. */
  readonly isAll: boolean;
  /** Whether the order may have been lost with a process. */
  readonly mayBeMixed?: boolean;
}

/** Two queues, an exchange, and what is known of one replay. */
class Ground {
  readonly home: string = ownName('home');
  readonly chance: Chance;
  desk: Desk;
  readonly #broker: Broker;
  readonly #folder: string;
  readonly #complaints: string[] = [];
  #laid: readonly Laid[] = [];
  #id: string | undefined;
  #last: Child | undefined;
  #begun = 0;

  constructor(
    broker: Broker,
    given: { readonly folder: string; readonly seed: number; readonly desk: Desk },
  ) {
    this.#broker = broker;
    this.#folder = given.folder;
    this.desk = given.desk;
    this.chance = createChance(given.seed);
  }

  get #dead(): string {
    return `${this.home}.dlq`;
  }

  /** The way through the exchange. */
  get road(): LetterRoute {
    return { kind: 'queue', exchange: this.#exchange, key: KEY };
  }

  get #exchange(): string {
    return `${this.home}.in`;
  }

  complain(text: string): void {
    this.#complaints.push(text);
  }

  async lay(letters: number): Promise<void> {
    const { desk, home } = this;
    const { channel } = desk;
    await channel.assertExchange(this.#exchange, 'topic', { durable: true });
    await declareDead(desk, this.#dead, 'quorum');
    const leads = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': this.#dead };
    const args = { 'x-queue-type': 'quorum', ...leads };
    await channel.assertQueue(home, { durable: true, arguments: args });
    await this.bind();
    const from = { exchange: this.#exchange, key: KEY, home };
    this.#laid = await layFrom(desk, from, { queue: this.#dead, count: letters });
  }

  async bind(): Promise<void> {
    await this.desk.channel.bindQueue(this.home, this.#exchange, KEY);
  }

  async unbind(): Promise<void> {
    await this.desk.channel.unbindQueue(this.home, this.#exchange, KEY);
  }

  /** The home takes so many and refuses more; gives back how to lift that. */
  async limit(max: number): Promise<() => Promise<void>> {
    const management = createManagement({ url: this.#broker.managementUrl ?? '' });
    const name = `${this.home}.limit`;
    const definition = { 'max-length': max, overflow: 'reject-publish' };
    await management.putPolicy({ name, pattern: `^${this.home}$`, definition, priority: 9 });
    return async () => {
      await management.deletePolicy(name);
      await management.close();
    };
  }

  /** A process that plans the replay, or goes on with it. */
  begin(options: ReplayOptions): Child {
    const { url, managementUrl = '' } = this.#broker;
    this.#begun += 1;
    this.#id ??= this.#last?.lines.find((line) => line.startsWith('planned '))?.slice(8);
    const order: ReplayOrder = {
      url,
      managementUrl,
      queue: this.#dead,
      folder: this.#folder,
      options,
      aheadMs: this.#begun * (LEASE_MS + 1_000),
      ...(this.#id === undefined ? {} : { id: this.#id }),
    };
    this.#last = startChild('../rabbit/queues/faults/replay-child.ts', order);
    return this.#last;
  }

  /** Waits until so many are at their destination, or the process has ended. */
  async reached(goal: number, child?: Child): Promise<void> {
    const untilMs = performance.now() + GOAL_MAX_MS;
    let isOver = false;
    void child?.ended.then(() => {
      isOver = true;
    });
    while ((await depthOf(this.desk, this.home)) < goal) {
      if (isOver || performance.now() > untilMs) return;
    }
  }

  async kill(child: Child): Promise<void> {
    child.signal('SIGKILL');
    const { code } = await child.ended;
    // One that came to its end before is one kill less; one that broke is a fault.
    if (code !== null && code !== 0) this.complain(`ended with ${code}: ${child.complaint()}`);
  }

  async ended(child: Child): Promise<Ended> {
    const line = await child.line('ended ');
    const hasEnded = await Promise.race([child.ended.then(() => true), sleep(LEAVE_MAX_MS, false)]);
    if (!hasEnded)
      this.complain(`did not leave; its last word was "${child.lines.at(-1)?.slice(0, 20)}"`);
    return JSON.parse(line.slice('ended '.length)) as Ended;
  }

  /** The broker is another one, so to speak. */
  async reopen(): Promise<void> {
    await this.desk[Symbol.asyncDispose]();
    this.desk = await openDesk(this.#broker.url);
  }

  /** Resumes until it is done, and judges. */
  async finish({ faults, mayBeUnsure = false }: { faults: number; mayBeUnsure?: boolean }) {
    const { replay, unsure } = await this.ended(this.begin(PLAIN));
    if (replay.state !== 'done') this.complain(`is ${replay.state}, not done`);
    if (!mayBeUnsure && unsure.length > 0) this.complain(`${unsure.length} are unsure`);
    return this.judge({ faults, replay, unsure, isAll: true, mayBeMixed: mayBeUnsure });
  }

  /** Takes everything out of both queues, and compares. */
  async judge({
    faults,
    replay,
    unsure,
    isAll,
    mayBeMixed = false,
  }: Judged): Promise<ReplaysResult> {
    const [left, moved] = [await drain(this.desk, this.#dead), await drain(this.desk, this.home)];
    const there = new Set(moved.map(({ id }) => id));
    // The ack of what was sent may have been lost with the process: then it lies here and there.
    const unacked = mayBeMixed ? left.filter(({ id }) => there.has(id)) : [];
    const open = new Set([...unsure, ...unacked.map(({ id }) => id)]);
    if (open.size > faults * IN_HAND)
      this.complain(`${open.size} are unsure after ${faults} kills`);
    const verdict = judgeLetters({
      laid: this.#laid,
      left,
      moved,
      // What is unsure lies here, and perhaps there.
      bound: open.size,
      // A quorum queue puts what a killed process had in hand behind what came back before it.
      keepsOrder: !mayBeMixed,
      mayLie: ({ id }, where) => where === 'moved' || !isAll || open.has(id),
    });
    if (there.size < moved.length) this.complain(`${moved.length - there.size} were sent twice`);
    const complaints = [...verdict.complaints, ...this.#complaints];
    return { ...verdict, complaints, seed: this.chance.seed, faults, replay };
  }

  async close(): Promise<void> {
    this.#last?.signal('SIGKILL');
    await this.#last?.ended;
    const { channel } = this.desk;
    await channel.deleteQueue(this.home);
    await channel.deleteQueue(this.#dead);
    await channel.deleteExchange(this.#exchange);
    await this.desk[Symbol.asyncDispose]();
  }
}
