/**
 * runtime — the parts of one spool, put together, opened, started and stopped; and the enqueues
 * whose bodies are still coming in (`OpenUploads`), for which a stop waits.
 *
 *   closed ─open()─▶ open ─start()─▶ running ─stop()─▶ closed      (and again)
 *
 * Opening happens by itself with the first call that needs the stores. What delivers is made when
 * it is first needed: a process that serves an operator only has no engine.
 */

import { join } from 'node:path';
import { durationMs, type Millis, SECOND_MS } from '../core/duration.ts';
import { isRespoolError, RespoolError } from '../core/errors.ts';
import type { Entry } from '../core/entry.ts';
import type { RetryPolicy } from '../core/policy.ts';
import { Engine } from '../engine/engine.ts';
import { Events, logEvent } from '../engine/events.ts';
import { emitTrouble } from '../engine/parts.ts';
import { type HandlerRoute, Routes } from '../engine/handler-slots.ts';
import type { BodyStore } from '../ports/body-store.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { Durability, EntryStore } from '../ports/entry-store.ts';
import type { Claim } from '../ports/source.ts';
import type { HearOperation } from '../ports/store-operation.ts';
import type { TracedPlace } from '../ports/tracer.ts';
// Not through their index files: those load what the embedded default does not use.
import { filesystemBodies } from '../stores/filesystem/body-store.ts';
import { sqlite } from '../stores/sqlite/entry-store.ts';
import { StoreClock, systemClock, systemDice } from '../system/clock.ts';
import { createIdMaker, randomName } from '../system/ids.ts';
import { type ActionParts, audit } from './actions.ts';
import { type BodySettings, type OwnBody, BodyRemover } from './body.ts';
import { Caretaker, refOf } from './caretaker.ts';
import { Chain } from './chain.ts';
import { HandlerRecords } from './handler-records.ts';
import { DURABILITIES, type SpoolSettings, spoolSettingsOf, type SpoolOptions } from './options.ts';
import { Pauses } from './pauses.ts';
import type { RekeyContext } from './rekey.ts';
import { SpoolSource } from './source.ts';
import { MissingHandlers } from './missing-handlers.ts';
import { WhenIdle } from '../system/wait.ts';

/**
 * Dead processes are looked for this often. Also in docs/how-to/several-processes.md and
 * docs/operations/after-a-crash.md.
 */
const LOST_EVERY_MS: number = 10 * SECOND_MS;
/**
 * Pauses made by other processes are looked for this often, whether the store calls or not. Less
 * than PAUSE_KNOWN_MS of testkit/simulator/checks/writes.ts.
 */
const PAUSES_EVERY_MS: number = 30 * SECOND_MS;

/** What a sealed store can do besides. */
interface Sealed {
  readonly isSealOld: (entry: Entry) => boolean;
}

/** What delivers and looks after the store. */
interface Delivery {
  readonly routes: Routes;
  readonly bodyRemover: BodyRemover;
  readonly source: SpoolSource;
  readonly engine: Engine;
  readonly unserved: MissingHandlers;
  readonly handlerRecords: HandlerRecords;
  readonly caretaker: Caretaker;
}

type Phase = 'closed' | 'open' | 'starting' | 'running' | 'stopping';

/** Everything one spool is made of. */
export class Runtime implements ActionParts, RekeyContext {
  readonly settings: SpoolSettings;
  readonly clock: Clock;
  readonly dice: Dice;
  readonly entries: EntryStore;
  readonly bodies: BodyStore;
  /** What happens to bodies on their way to the store and back. */
  readonly chain: Chain;
  readonly events: Events = new Events();
  readonly pauses: Pauses;
  readonly uploads: OpenUploads;
  readonly makeId: (now: Millis) => string;
  /** The time of the store. */
  readonly now = (): Millis => this.#storeClock.now();
  /** When the entry store last found that it had gone back. */
  readonly wentBackAt = (): Millis | undefined => this.#wentBackAt;
  readonly #storeClock: StoreClock;
  #delivery: Delivery | undefined;
  #phase: Phase = 'closed';
  #wentBackAt: Millis | undefined;
  /** From the call of stop() until the next start(). */
  #isStopped = false;
  #opening: Promise<void> | undefined;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  #timers: (() => void)[] = [];
  #cleaning: Promise<unknown> | undefined;
  /** A round that waits for the one before it. */
  #nextCleanup: ReturnType<Caretaker['cleanUp']> | undefined;

  constructor(options: SpoolOptions) {
    const settings = spoolSettingsOf(options);
    this.settings = settings;
    this.clock = options.clock ?? systemClock;
    this.dice = options.dice ?? systemDice;
    this.entries = options.entries ?? sqlite({ path: settings.path });
    this.bodies = options.bodies ?? filesystemBodies({ path: join(settings.path, 'bodies') });
    this.chain = new Chain(settings.transforms);
    this.uploads = new OpenUploads(this.clock);
    this.makeId = createIdMaker(this.dice);
    this.#storeClock = new StoreClock(this.clock, this.entries);
    const restartTurns = (): void => this.#delivery?.source.restartTurns();
    this.pauses = new Pauses(this.entries.records, restartTurns, this.now);
    this.entries.onTrouble?.((error) => {
      if (isRespoolError(error, 'store.corrupt')) this.#wentBackAt = this.now();
      this.trouble('following the store', error);
    });
    const { logger } = options;
    if (logger !== undefined) this.events.on('*', (event) => logEvent(logger, event));
  }

  /** What delivers, as far as it is made. */
  get delivery(): Delivery | undefined {
    return this.#delivery;
  }

  get routes(): Routes {
    return this.#made.routes;
  }

  get bodyRemover(): BodyRemover {
    return this.#made.bodyRemover;
  }

  get source(): SpoolSource {
    return this.#made.source;
  }

  get engine(): Engine {
    return this.#made.engine;
  }

  get unserved(): MissingHandlers {
    return this.#made.unserved;
  }

  get handlerRecords(): HandlerRecords {
    return this.#made.handlerRecords;
  }

  get #made(): Delivery {
    return (this.#delivery ??= this.#makeDelivery());
  }

  get retention(): SpoolSettings['retention'] {
    return this.settings.retention;
  }

  get isImmediate(): boolean {
    return this.settings.isImmediate;
  }

  /** A process that does not deliver, as an operator's script, does not know who announces. */
  announces(topic: string): boolean {
    const { engine, routes } = this.#delivery ?? {};
    return engine?.isRunning !== true || routes?.serves('notice', topic) === true;
  }

  /** Bodies up to this size are stored with their entry. */
  get inlineMaxBytes(): number {
    return Math.min(this.settings.inlineMaxBytes, this.entries.traits.inlineMaxBytes);
  }

  get isOpen(): boolean {
    return this.#phase === 'open' || this.#phase === 'running';
  }

  /** Whether a message can be written at once: it is open, and was not stopped. */
  get isAccepting(): boolean {
    return this.isOpen && !this.#isStopped;
  }

  /** How bodies are kept now. */
  get bodySettings(): BodySettings {
    const { bodies, chain, inlineMaxBytes, settings, entries } = this;
    return {
      bodies,
      chain,
      inlineMaxBytes,
      bodyMaxBytes: settings.bodyMaxBytes,
      encodedInlineMaxBytes: entries.traits.inlineMaxBytes,
      newRef: this.#newRef,
    };
  }

  get isStopping(): boolean {
    return this.#phase === 'stopping' || this.#phase === 'closed';
  }

  /** Whether a sealed store would write this entry in another way now. */
  readonly isOldEntry = (entry: Entry): boolean => {
    const { isSealOld }: Partial<Sealed> = this.entries as Partial<Sealed>;
    return isSealOld?.(entry) === true;
  };

  /** Hears of what the stores do at their disks and servers. */
  onStoreOperation(hear: HearOperation): () => void {
    const stops = [this.entries.onOperation?.(hear), this.bodies.onOperation?.(hear)];
    return () => {
      for (const stop of stops) stop?.();
    };
  }

  /** Something changed that may have made anything due. */
  alarm(): void {
    this.#delivery?.engine.wake();
    this.#delivery?.source.alarm();
  }

  /** Reports what went wrong beside a message. */
  trouble(doing: string, thrown: unknown): void {
    emitTrouble({ events: this.events, source: this.#storeClock }, doing, thrown);
  }

  /** A stop waits for this. */
  during<T>(work: () => Promise<T>): Promise<T> {
    return this.uploads.during(work);
  }

  /** A ref for a new body of this message. */
  readonly #newRef = (id: string): string => refOf(id, randomName(this.dice));

  /** Opens the stores if they are not; every call of the spool comes through here. */
  async ready(): Promise<void> {
    if (this.isOpen || this.#phase === 'starting') return;
    if (this.#phase === 'stopping') {
      throw stopped(this.#phase);
    }
    this.#opening ??= this.#open();
    try {
      await this.#opening;
    } finally {
      this.#opening = undefined;
    }
  }

  /** As `ready()`, for what brings messages in: after a stop only once it is started again. */
  async readyToAccept(): Promise<void> {
    if (this.#isStopped) throw stopped(this.#phase);
    await this.ready();
  }

  async start(): Promise<void> {
    if (this.#starting !== undefined || this.#phase === 'running') {
      throw new RespoolError('config.invalid', 'cannot start the spool: it is started already');
    }
    this.#isStopped = false;
    this.#starting = this.#start().finally(() => {
      this.#starting = undefined;
    });
    await this.#starting;
  }

  async #start(): Promise<void> {
    await this.ready();
    this.#phase = 'starting';
    try {
      // What a dead process held is due at once; without this it would wait for its lease to end.
      await this.entries.expireLost?.(this.now());
    } catch (error) {
      this.#phase = 'open';
      throw error;
    }
    this.source.restartTurns();
    this.engine.start();
    this.#phase = 'running';
    this.handlerRecords.start();
    this.unserved.start();
    this.#watch();
    this.events.emit({ at: this.now(), kind: 'engine-started' });
  }

  /** Idempotent; a second call waits for the first. */
  stop(within: number | string): Promise<void> {
    const withinMs = durationMs(within, 'within');
    this.#isStopped = true;
    this.#stopping ??= this.#stop(withinMs).finally(() => {
      this.#stopping = undefined;
    });
    return this.#stopping;
  }

  policyFor(claim: Claim, route: HandlerRoute | undefined): RetryPolicy {
    const { policies, defaultPolicy, noticePolicy } = this.settings;
    if (claim.lane === 'delivery' && claim.policy !== null) {
      const named = policies.get(claim.policy);
      if (named !== undefined) return named;
      if (claim.policy !== 'default') this.unserved.policyUnknown(claim.envelope, claim.policy);
      return defaultPolicy;
    }
    const own = typeof route?.policy === 'string' ? policies.get(route.policy) : route?.policy;
    return own ?? (claim.lane === 'delivery' ? defaultPolicy : noticePolicy);
  }

  /**
   * One round of the caretaker. Rounds do not overlap, and those who ask while one runs share the
   * next: a stop waits for two at most, however many were asked for.
   */
  cleanUp(): ReturnType<Caretaker['cleanUp']> {
    if (this.#nextCleanup !== undefined) return this.#nextCleanup;
    if (this.#cleaning === undefined) return this.#cleanUpNow();
    this.#nextCleanup = this.#cleaning
      .catch(() => undefined)
      .then(() => {
        this.#nextCleanup = undefined;
        return this.#cleanUpNow();
      });
    return this.#nextCleanup;
  }

  #cleanUpNow(): ReturnType<Caretaker['cleanUp']> {
    const work = this.#made.caretaker.cleanUp().finally(() => {
      this.#cleaning = undefined;
    });
    this.#cleaning = work;
    return work;
  }

  #makeDelivery(): Delivery {
    const { settings, entries, bodies, events, clock } = this;
    const routes = new Routes();
    const bodyRemover = new BodyRemover(entries, bodies, (error) =>
      this.trouble('removing bodies', error),
    );
    const source = this.#makeSource(routes, bodyRemover);
    const shared = { ...settings, entries, bodies, source, bodyRemover, routes, events, clock };
    const handlerRecords = new HandlerRecords({
      ...shared,
      trouble: (error) => this.trouble('recording the handlers of this process', error),
    });
    const unserved = new MissingHandlers(shared);
    const { pauses } = this;
    const refreshPauses = (): Promise<void> => this.#refreshPauses();
    return {
      routes,
      bodyRemover,
      source,
      engine: this.#makeEngine(routes, source),
      unserved,
      handlerRecords,
      caretaker: new Caretaker({ ...shared, unserved, handlerRecords, pauses, refreshPauses }),
    };
  }

  #makeSource(routes: Routes, bodyRemover: BodyRemover): SpoolSource {
    return new SpoolSource({
      ...this.settings,
      entries: this.entries,
      bodies: this.bodies,
      chain: this.chain,
      bodyRemover,
      events: this.events,
      clock: this.clock,
      storeClock: this.#storeClock,
      announces: (topic) => routes.serves('notice', topic),
      wentBackAt: this.wentBackAt,
      recordSettledAgain: (id, settledAs) => {
        const details = { settledAs, because: 'it came back without its body' };
        return audit(this, { by: 'engine', action: 'settle-again', ids: [id], details });
      },
      onClockJump: (byMs) => this.events.emit({ at: this.now(), kind: 'clock-jumped', byMs }),
    });
  }

  #makeEngine(routes: Routes, source: SpoolSource): Engine {
    const { settings, entries } = this;
    const takesUnhandled = settings.unhandled === 'hold' && entries.traits.processes === 'one';
    return new Engine({
      source,
      routes,
      events: this.events,
      clock: this.clock,
      dice: this.dice,
      name: entries.instance,
      slots: { ...settings, takesUnhandled },
      backoffs: settings.backoffs,
      policyFor: (claim, route) => this.policyFor(claim, route),
      pauses: this.pauses,
      ...(settings.tracer === undefined
        ? {}
        : { tracing: { tracer: settings.tracer, place: placeOf } }),
    });
  }

  async #open(): Promise<void> {
    // First: a key that cannot be had must not leave a store open, or locked.
    await this.chain.open();
    const opened: (() => Promise<void>)[] = [];
    try {
      for (const store of [this.entries, this.bodies]) {
        await store.open();
        opened.push(() => store.close());
        // What a server promises is known once it was asked.
        this.#requireDurability(store);
      }
      await this.#storeClock.measure();
      await this.pauses.refresh();
    } catch (error) {
      // An error of the close must not hide why the spool did not open.
      await Promise.allSettled(opened.map((close) => close()));
      throw error;
    }
    this.#phase = 'open';
  }

  #requireDurability({ name, traits }: EntryStore | BodyStore): void {
    const wanted = this.settings.requireDurability;
    const rank = (durability: Durability): number => DURABILITIES.indexOf(durability);
    if (rank(traits.durability) >= rank(wanted)) return;
    throw new RespoolError(
      'config.invalid',
      `cannot open the spool: requireDurability is "${wanted}", but store "${name}" only ` +
        `promises "${traits.durability}"; change its settings or take another store`,
    );
  }

  #watch(): void {
    const unwatch = this.entries.watch?.(() => void this.#onForeignWrite());
    if (unwatch !== undefined) this.#timers.push(unwatch);
    this.#every(this.settings.caretakerEveryMs, 'looking after the store', () => this.cleanUp());
    if (this.entries.expireLost !== undefined) {
      this.#every(LOST_EVERY_MS, 'looking for dead processes', async () => {
        const freed = (await this.entries.expireLost?.(this.now())) ?? 0;
        if (freed > 0) this.source.alarm();
      });
    }
    if (this.entries.traits.processes === 'many') {
      // Not every store has a watch, and a call of one that has may come while it cannot be read:
      // without another look a process would stay paused, or not be, for good.
      this.#every(PAUSES_EVERY_MS, 'looking for pauses', () => this.#refreshPauses());
    }
  }

  async #refreshPauses(): Promise<void> {
    if (await this.pauses.refresh()) this.engine.wake();
  }

  async #onForeignWrite(): Promise<void> {
    try {
      await this.pauses.refresh();
    } catch (error) {
      this.trouble('looking at what another process wrote', error);
    }
    this.source.alarm();
    // The engine may be waiting after trouble with the store, which is back if it notifies us.
    this.engine.wake();
  }

  #every(ms: number, doing: string, duty: () => Promise<unknown>): void {
    let cancel = (): void => undefined;
    const again = (): void => {
      cancel = this.clock.after(ms, () => void round());
    };
    const round = async (): Promise<void> => {
      try {
        await duty();
      } catch (error) {
        this.trouble(doing, error);
      }
      if (this.#phase === 'running') again();
    };
    again();
    this.#timers.push(() => cancel());
  }

  async #stop(withinMs: number): Promise<void> {
    // Stopped in the middle of its start it would run on over closed stores.
    await this.#starting?.catch(() => undefined);
    if (this.#opening !== undefined) await this.#opening.catch(() => undefined);
    if (this.#phase === 'closed') return;
    const wasRunning = this.#phase === 'running';
    this.#phase = 'stopping';
    try {
      for (const cancel of this.#timers.splice(0)) cancel();
      const delivery = this.#delivery;
      delivery?.unserved.stop();
      const recorded = delivery?.handlerRecords.stop();
      const reason = new RespoolError('engine.stopping', 'the spool is stopping');
      await Promise.all([delivery?.engine.stop(withinMs), this.uploads.end(withinMs, reason)]);
      await (this.#nextCleanup ?? this.#cleaning)?.catch(() => undefined);
      await delivery?.bodyRemover.idle();
      await recorded;
      await this.entries.close();
      await this.bodies.close();
    } finally {
      this.#phase = 'closed';
    }
    if (wasRunning) this.events.emit({ at: this.clock.now(), kind: 'engine-stopped' });
  }
}

function stopped(phase: Phase): RespoolError {
  return new RespoolError(
    'engine.stopping',
    phase === 'stopping'
      ? 'the spool is stopping; nothing new is accepted'
      : 'the spool was stopped; call start() before you enqueue, or make another spool',
  );
}

function placeOf({ envelope }: Claim): TracedPlace {
  return { system: 'respool', destination: envelope.topic };
}

// Enqueues whose bodies are still coming in. A stop waits for them as long as for handlers, then
// fails what is left: a slow upload must not keep a process from ending.

/** Once their streams failed, enqueues have this long to clean up. */
const CLEAN_UP_MS = 5_000;

/** Makes a stream of a body fail when the spool gives up. */
type UploadGuard = (body: OwnBody) => OwnBody;

/** The enqueues of one spool that take longer than one turn. */
class OpenUploads {
  readonly #clock: Clock;
  readonly #open = new Set<Failing>();
  readonly #whenIdle = new WhenIdle(() => this.#open.size === 0);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs an enqueue; what it reads through the guard fails when the spool gives up. */
  async during<T>(enqueue: (guard: UploadGuard) => T | Promise<T>): Promise<T> {
    const failing = new Failing();
    this.#open.add(failing);
    try {
      return await enqueue((body) =>
        'stream' in body ? { stream: guarded(body.stream, failing) } : body,
      );
    } finally {
      this.#open.delete(failing);
      this.#whenIdle.check();
    }
  }

  /** Waits until nothing is coming in, at most this long; then fails what is. */
  async end(withinMs: number, error: Error): Promise<void> {
    await this.#whenIdle.within(this.#clock, withinMs);
    for (const failing of this.#open) failing.fail(error);
    await this.#whenIdle.within(this.#clock, CLEAN_UP_MS);
  }
}

/** Whether one enqueue may go on reading. */
class Failing {
  #error: Error | undefined;
  readonly #waits = new Set<(error: Error) => void>();

  fail(error: Error): void {
    this.#error = error;
    for (const reject of this.#waits) reject(error);
  }

  /**
   * The same promise, unless it fails first. n.b. A race against one promise for all parts would
   * keep every part in memory until the last.
   */
  orFail<T>(promise: Promise<T>): Promise<T> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    return new Promise<T>((resolve, reject) => {
      this.#waits.add(reject);
      // Made one of ours: an iterator may answer with something that only looks like a promise.
      void Promise.resolve(promise)
        .then(resolve, reject)
        .finally(() => this.#waits.delete(reject));
    });
  }
}

async function* guarded(
  input: AsyncIterable<Uint8Array | string>,
  failing: Failing,
): AsyncGenerator<Uint8Array | string> {
  const parts = input[Symbol.asyncIterator]();
  let isOver = false;
  try {
    for (;;) {
      const step = await failing.orFail(parts.next());
      isOver = step.done === true;
      if (step.done === true) return;
      yield step.value;
    }
  } finally {
    // Not waited for: a source that hangs in next() would hang here too.
    if (!isOver) endQuietly(parts);
  }
}

/** Whatever its end throws or returns: the caller knows already that the enqueue failed. */
function endQuietly(parts: AsyncIterator<unknown>): void {
  const end = async (): Promise<void> => void (await parts.return?.());
  end().catch(() => undefined);
}
