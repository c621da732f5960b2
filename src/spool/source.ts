/**
 * source — the spool as a Source: claims from the entry store, settles back into it.
 *
 *   next(): one round of claims, fair between kinds     wait(): until something may be due
 *   settle(): verdict ─nextStatus()─▶ commit            extend(): heartbeat as a commit
 *
 * A wait ends when something is due, when `noteDue` or `alarm` is called, when its signal fires, or
 * when the poll interval is over.
 *
 * Kinds of work in order: due deferred, incoming, bounce notices; lost leases go with the first and
 * the last. Their shares of the slots: claim-fairness.ts.
 *
 * Hand-off: enqueue.ts inserts a message already claimed, and gives it to the engine as a claim;
 * `mayHandOff` says whether nothing older is due. `process` in spool.ts makes its own claim too.
 *
 * Also here: a claimed message whose seal this process cannot open is held; a message that had
 * ended and came back (body.ts) is ended again, and its settlement is `stale`; how a replay's
 * canary ended is recorded before the write that ends it.
 */

import {
  canaryEnd,
  replayOfCanary,
  isSealed,
  replayLogKind,
  markReasonUnsealed,
  REPLAYS_RECORD_KIND,
  SEAL_MISSING,
} from '../core/reserved-headers.ts';
import type { Millis } from '../core/duration.ts';
import type { Entry, Envelope, Headers, Status } from '../core/entry.ts';
import type { Failure } from '../core/failure.ts';
import {
  extendedStatus,
  keepsBody,
  nextStatus,
  type Retention,
  type SettleContext,
} from '../core/next-status.ts';
import type { ClaimableState, Lane } from '../core/state.ts';
import { takesTopic } from '../core/topic.ts';
import type { Verdict } from '../core/verdict.ts';
import { emitArchived, type Events } from '../engine/events.ts';
import type { BodyStore, SettledAs } from '../ports/body-store.ts';
import type { Clock } from '../ports/clock.ts';
import type { Change, EntryStore } from '../ports/entry-store.ts';
import type { Claim, Demand, Settlement, Source, Want, WantGroup } from '../ports/source.ts';
import { backoffMs, Sleeper } from '../system/wait.ts';
import {
  type BodyRemover,
  cameBack,
  removedBodyRef,
  inlineBytes,
  readBody,
  settledBefore,
  statusOfEnding,
} from './body.ts';
import type { Chain } from './chain.ts';
import {
  type ClaimKind,
  ClaimMixture,
  FairTurns,
  KINDS,
  NOTICE_STATES,
  TURN_CYCLE,
} from './claim-fairness.ts';
import type { StoreClock } from '../system/clock.ts';

/**
 * After a round that took everything due, hand-offs go on this long until a wait knows more: for so
 * long a new message may go before one that came due meanwhile. Below the 60 ms of
 * test/engine/hand-off.test.ts.
 */
const CLEAR_MS = 50;
/** When the store says "due" but gives nothing, the wait grows from this, to not spin. */
const EMPTY_WAIT = { firstMs: 5, maxMs: 1_000 };
/** A round that takes longer than a lease divided by this: the process stood still. */
const STANDSTILL_DIVISOR = 4;
/** Maximum number of topic lists whose turns are remembered; beyond it they begin again. */
const LIMITED_TURNS_MAX = 1_000;

/** A claim that is asked for, and what came of it. */
interface Ask {
  readonly kind: ClaimKind;
  readonly want: Want;
  /** How many its want can still take, over all kinds. */
  readonly room: { left: number };
  isExhausted: boolean;
  /** How many there were; undefined until the store was asked. */
  found?: number;
}

/** The spool, as an engine sees it. */
export class SpoolSource implements Source {
  readonly name = 'spool';
  readonly leaseMs: number;
  readonly #parts: SourceOptions;
  #claimCalls = 0;
  readonly #turns = new FairTurns();
  /** Which want comes first in this round. */
  #round = 0;
  /** Whose turn it is among the kinds of a handler with a limit of its own, by lane and topics. */
  readonly #limitedTurns = new Map<string, number>();
  // What is known of due times, for rounds of claims, for waits and for hand-offs:
  //
  //   next()   #clearSince ── nothing else is due: enqueue may hand off ── #clearUntil
  //   wait()   asleep ── nothing is due ── #quietUntil
  //   noteDue(), alarm()   #notedDueAt, one time; #alarms, no time: both cut the spans short

  /** Raised whenever something became due that a sleeping wait does not know of. */
  #alarms = 0;
  /** The alarms that the last round of claims had seen when it began. */
  #seenAlarms = -1;
  /** When the next thing is due as far as the present wait knows; -Infinity outside a wait. */
  #quietUntil: Millis = Number.NEGATIVE_INFINITY;
  /** Until then nothing that may run is due, as far as the last round of claims or wait knows. */
  #clearUntil: Millis = Number.NEGATIVE_INFINITY;
  /** When that was found out; a `now` before it means that the clock was set back. */
  #clearSince: Millis = Number.POSITIVE_INFINITY;
  /** The earliest due time that was noted and has not come, or came in this round of claims. */
  #notedDueAt: Millis = Number.POSITIVE_INFINITY;
  #emptyRounds = 0;
  readonly #sleeper: Sleeper;

  constructor(parts: SourceOptions) {
    this.#parts = parts;
    this.#sleeper = new Sleeper(parts.clock);
    this.leaseMs = parts.leaseMs;
  }

  now(): Millis {
    return this.#parts.storeClock.now();
  }

  /** A time that the store's clock has reached for certain; what is due by it is due. */
  earliest(): Millis {
    return this.#parts.storeClock.earliest();
  }

  /**
   * How long a lease has to be that begins at `now`: it is counted from the latest time that it may
   * be, so no other process finds it over before we do.
   */
  leaseFrom(now: Millis): number {
    return this.leaseMs + this.#parts.storeClock.latest() - now;
  }

  /** A holder's name: it begins with this opened store's, by which SQLite finds the lost ones. */
  holder(): string {
    this.#claimCalls += 1;
    return `${this.#parts.entries.instance}/${this.#claimCalls.toString(36)}`;
  }

  /** Whether nothing older is due, so that a new message may be handed over with its insert. */
  mayHandOff(now: Millis): boolean {
    return now >= this.#clearSince && now < this.#clearUntil;
  }

  /** An entry of this store is due then: a sleeping wait must not sleep past it. */
  noteDue(dueAt: Millis): void {
    this.#clearUntil = Math.min(this.#clearUntil, dueAt);
    if (!this.#sleeper.isAsleep) this.#notedDueAt = Math.min(this.#notedDueAt, dueAt);
    else if (dueAt < this.#quietUntil) this.alarm();
  }

  /** Something changed that may have made anything due. */
  alarm(): void {
    this.#alarms += 1;
    this.#clearUntil = Number.NEGATIVE_INFINITY;
    this.#sleeper.wake();
  }

  /**
   * Handlers or pauses changed, so other messages can be claimed than before: those that waited
   * are claimed in order of precedence, and before what is enqueued now.
   */
  restartTurns(): void {
    if (this.#turns.restart()) this.#limitedTurns.clear();
    this.alarm();
  }

  async next(demand: Demand): Promise<readonly Claim[]> {
    this.#seenAlarms = this.#alarms;
    if (this.#notedDueAt <= this.earliest()) this.#notedDueAt = Number.POSITIVE_INFINITY;
    this.#turns.ask(JSON.stringify([demand.wants.map(topicsOf), demand.exceptDestinations]));
    this.#round = (this.#round + 1) % Number.MAX_SAFE_INTEGER;
    const startedAt = this.now();
    let isCut = false;
    const claims = new ClaimMixture<ClaimKind, SpoolClaim>(TURN_CYCLE);
    const take = async (ask: Ask, max: number): Promise<number> => {
      // After a standstill our own leases may be over: no further claim may find them so.
      isCut ||= this.now() - startedAt > this.leaseMs / STANDSTILL_DIVISOR;
      if (isCut) return 0;
      const got = await this.#claim(ask, Math.min(max, ask.room.left), demand);
      ask.room.left -= got.length;
      claims.add(ask.kind, got);
      return got.length;
    };
    const asks: Ask[] = [];
    const askAll = async (some: readonly Ask[]): Promise<void> => {
      asks.push(...some);
      const kinds = new Set(some.map(({ kind }) => kind));
      for (const kind of this.#turns.looks(kinds, this.earliest())) {
        if (claims.size === demand.max) break;
        const wanting = some.filter((ask) => ask.kind === kind);
        for (const ask of wanting) if ((await take(ask, 1)) > 0) break;
        this.#noteKinds(wanting);
      }
      const shares = this.#turns.shares(demand.max - claims.size, kinds);
      await this.#takeShares(demand.max, some, shares, take);
      // Then, in order of precedence, kinds with more work take the remaining slots.
      for (const ask of some) if (!ask.isExhausted) await take(ask, demand.max - claims.size);
    };
    try {
      await askAll(this.#asks(wantsAtFirst(demand), demand.max));
      const singly = wantsSingly(demand, asks, claims.inTurn());
      const left = singly.flatMap(({ group, wants }) =>
        this.#asks(wants, demand.max).filter(({ kind }) => hasMore(asks, group.together, kind)),
      );
      if (left.length > 0 && claims.size < demand.max) await askAll(left);
    } catch (error) {
      // What was claimed before the trouble is ours: dropped here, it would wait for its lease to
      // end and be counted as a lost holder. The next round meets the trouble again.
      if (claims.size === 0) throw error;
      return claims.inTurn();
    }
    this.#noteKinds(asks);
    this.#noteRound(claims.size < demand.max && !isCut);
    return claims.inTurn();
  }

  /** A kind had nothing if none of its wants that were asked for had. */
  #noteKinds(asks: readonly Ask[]): void {
    const now = this.earliest();
    for (const kind of new Set(asks.map((ask) => ask.kind))) {
      const founds = asks.flatMap((ask) => (ask.kind === kind ? (ask.found ?? []) : []));
      if (founds.length > 0) this.#turns.note(kind, Math.max(...founds), now);
    }
  }

  /** A round that left slots free took all that was due; hand-offs need not wait for more. */
  #noteRound(isExhaustive: boolean): void {
    const now = this.now();
    const hasChangedSince = this.#alarms !== this.#seenAlarms || this.#notedDueAt <= now;
    if (!isExhaustive || hasChangedSince) return;
    this.#clearSince = now;
    this.#clearUntil = Math.min(now + CLEAR_MS, this.#notedDueAt);
  }

  /** Every kind its share: at once, unless several wants share it or have a limit of their own. */
  async #takeShares(
    max: number,
    asks: readonly Ask[],
    shares: ReadonlyMap<ClaimKind, number>,
    take: (ask: Ask, max: number) => Promise<number>,
  ): Promise<void> {
    const wants = [...new Set(asks.map(({ want }) => want))];
    const lanes = new Set(wants.map((want) => want.lane)).size;
    const isCounted = wants.length > lanes || wants.some((want) => want.max < max);
    if (!isCounted) {
      const taken = await Promise.allSettled(
        asks.map((ask) => take(ask, shares.get(ask.kind) ?? 0)),
      );
      for (const one of taken) if (one.status === 'rejected') throw one.reason;
      return;
    }
    const left = new Map(shares);
    for (const ask of asks) {
      const share = left.get(ask.kind) ?? 0;
      left.set(ask.kind, share - (await take(ask, share)));
    }
  }

  async wait(demand: Demand, signal: AbortSignal): Promise<void> {
    const jumpedMs = this.#parts.storeClock.jumpedMs();
    if (jumpedMs !== 0) this.#parts.onClockJump(jumpedMs);
    await this.#parts.storeClock.measure();
    const dueAt = await this.#nextDueAt(demand);
    const now = this.earliest();
    const hasChangedSince = this.#alarms !== this.#seenAlarms || this.#notedDueAt <= now;
    if (signal.aborted || hasChangedSince) return;
    this.#quietUntil = Math.min(dueAt ?? Number.POSITIVE_INFINITY, this.#notedDueAt);
    this.#clearSince = now;
    this.#clearUntil = this.#quietUntil;
    let waitMs = Math.min(this.#parts.pollMs, this.#quietUntil - now);
    if (waitMs > 0) this.#emptyRounds = 0;
    else {
      // Due, and yet the last round got nothing. Once, it may have become due in between.
      this.#emptyRounds += 1;
      if (this.#emptyRounds === 1) return;
      waitMs = backoffMs(EMPTY_WAIT, this.#emptyRounds - 2);
    }
    await this.#sleeper.sleep(waitMs, signal);
    this.#quietUntil = Number.NEGATIVE_INFINITY;
  }

  body(claim: Claim): AsyncIterable<Uint8Array> {
    return readBody((claim as SpoolClaim).entry, this.#parts);
  }

  bytes(claim: Claim): Uint8Array | Promise<Uint8Array> | undefined {
    const { entry, plain } = claim as SpoolClaim;
    if (plain !== undefined) return plain;
    if (entry.envelope.body.place !== 'inline') return undefined;
    return inlineBytes(entry, this.#parts.chain);
  }

  async settle(claim: Claim, settlement: Settlement): Promise<'done' | 'stale'> {
    const ours = claim as SpoolClaim;
    // A heartbeat on its way raises the revision: wait for it, or we would overtake ourselves.
    if (ours.extending !== undefined) await ours.extending.catch(() => undefined);
    ours.isSettling = true;
    try {
      const { verdict } = settlement;
      const settledAs =
        verdict.kind === 'hold'
          ? await settledBefore(this.#parts.bodies, ours.entry, verdict)
          : undefined;
      const answer = await this.#carryOut(ours, settlement, settledAs);
      if (settledAs === undefined || answer === 'stale') return answer;
      const doing = `settling message "${ours.id}"`;
      const error = cameBack(ours.id, settledAs);
      this.#parts.events.emit({ at: this.now(), kind: 'trouble', doing, error });
      // It had ended before this claim: the verdict of this attempt counts for nothing.
      return 'stale';
    } finally {
      ours.isSettling = false;
    }
  }

  async #carryOut(
    ours: SpoolClaim,
    settlement: Settlement,
    settledAs: SettledAs | undefined,
  ): Promise<'done' | 'stale'> {
    if (ours.isUnsure) {
      const found = await this.#lookUp(ours);
      if (found === 'settled') this.#afterwards(ours.entry, ours.sent ?? 'remove');
      if (found !== 'ours') return found === 'settled' ? 'done' : 'stale';
    }
    const { entry } = ours;
    let to: Status | 'remove';
    if (settledAs === undefined) {
      to = this.#statusAfter(entry, settlement);
      const replay = replayOfCanary(entry);
      if (replay !== undefined) await this.#recordCanary(replay, ours.id, settlement.verdict);
    } else {
      to = statusOfEnding(entry, settledAs, this.#context(entry));
      await this.#parts.recordSettledAgain(ours.id, settledAs);
    }
    const [answer] = await this.#send(ours, to, settledAs !== undefined);
    ours.isUnsure = false;
    if (answer !== 'done') return 'stale';
    this.#afterwards(entry, to);
    return 'done';
  }

  /** Before the write that ends it: afterwards nothing may be left that proves how it ended. */
  async #recordCanary(replay: string, id: string, verdict: Verdict): Promise<void> {
    const { records } = this.#parts.entries;
    const end = canaryEnd(id, verdict, this.now());
    // Nothing would ever trim the log of a replay that was removed.
    if (end === undefined || (await records.get(REPLAYS_RECORD_KIND, replay)) === undefined) return;
    await records.append(replayLogKind(replay), end);
  }

  deferredTo(claim: Claim): Millis | undefined {
    const { sent } = claim as SpoolClaim;
    return sent === undefined || sent === 'remove' ? undefined : (sent.dueAt ?? undefined);
  }

  async extend(claims: readonly Claim[]): Promise<readonly ('done' | 'stale')[]> {
    // One whose verdict is on its way needs no extension, and would be reported as overtaken.
    const open = (claims as readonly SpoolClaim[]).filter((claim) => !claim.isSettling);
    const work = this.#extend(open);
    for (const claim of open) claim.extending = work;
    try {
      const stale = await work;
      return claims.map((claim) => (stale.has(claim) ? 'stale' : 'done'));
    } finally {
      for (const claim of open) claim.extending = undefined;
    }
  }

  #statusAfter(entry: Entry, { verdict, notes, attempt }: Settlement): Status | 'remove' {
    return nextStatus(entry, verdict, {
      ...this.#context(entry),
      ...(notes === undefined ? undefined : { notes }),
      ...(attempt === undefined ? undefined : { attempt }),
    });
  }

  #context({ envelope }: Entry): SettleContext {
    const { retention } = this.#parts;
    const announces = this.#parts.announces(envelope.topic);
    return { now: this.now(), retention, announces };
  }

  #send(
    ours: SpoolClaim,
    to: Status | 'remove',
    hasNoBody: boolean,
  ): ReturnType<EntryStore['commit']> {
    const { retention, entries, settlesDurably } = this.#parts;
    const letsGo = to !== 'remove' && (hasNoBody || !keepsBody(to, retention));
    ours.sent = to;
    ours.isUnsure = true;
    return entries.commit([changeOf(ours.entry, to, letsGo)], { durable: settlesDurably });
  }

  /** Extends the leases; the claims that were overtaken. */
  async #extend(claims: readonly SpoolClaim[]): Promise<ReadonlySet<Claim>> {
    const found = await Promise.all(
      claims.map(async (claim) => (claim.isUnsure ? this.#lookUp(claim) : 'ours')),
    );
    const ours = claims.filter((_, at) => found[at] === 'ours');
    const stale = new Set<Claim>(claims.filter((_, at) => found[at] === 'lost'));
    const now = this.now();
    const lease = { now, leaseMs: this.leaseFrom(now) };
    const statuses = ours.map(({ entry }) => extendedStatus(entry.status, lease));
    for (const claim of ours) claim.isUnsure = true;
    const answers = await this.#parts.entries.commit(
      ours.map(({ entry }, at) => changeOf(entry, statuses[at] ?? entry.status, false)),
      { durable: false },
    );
    for (const [at, claim] of ours.entries()) {
      claim.isUnsure = false;
      const status = statuses[at];
      if (answers[at] === 'done' && status !== undefined) claim.advance(status);
      else stale.add(claim);
    }
    return stale;
  }

  /**
   * What became of a write that was not answered. The holder is unique per claim, so an entry that
   * still has it is ours, at whatever revision.
   */
  async #lookUp(claim: SpoolClaim): Promise<'ours' | 'settled' | 'lost'> {
    const { sent } = claim;
    const stored = (await this.#parts.entries.get(claim.id))?.status;
    if (stored?.state === 'active' && stored.holder === claim.entry.status.holder) {
      claim.advance(stored);
      claim.isUnsure = false;
      return 'ours';
    }
    if (sent === undefined) return 'lost';
    const isSettled =
      sent === 'remove'
        ? stored === undefined
        : stored?.revision === sent.revision &&
          stored.state === sent.state &&
          stored.updatedAt === sent.updatedAt;
    return isSettled ? 'settled' : 'lost';
  }

  /** What follows once a verdict is carried out; `afterwards` of actions.ts is the operator's. */
  #afterwards({ envelope }: Entry, to: Status | 'remove'): void {
    const { retention, bodyRemover, events } = this.#parts;
    const isGone = to === 'remove' || !keepsBody(to, retention);
    if (envelope.body.place === 'store' && isGone) {
      bodyRemover.add(envelope.body.ref, to === 'remove' ? 'removed' : 'delivered');
    }
    if (to !== 'remove' && to.dueAt !== null && to.state !== 'archived') {
      this.noteDue(to.dueAt);
      if (to.state === 'deferred') this.#turns.noteRetry(to.dueAt);
    }
    emitArchived(events, envelope, to);
    // The next of its key is due, and only the store knows which that is.
    if (envelope.orderKey !== undefined && !isInTheWay(to)) this.alarm();
  }

  /**
   * The pairs of kind and want, in order of precedence. Within a kind another want comes first in
   * every round: a backlog of one handler must not starve a handler with a limit of its own.
   */
  #asks(wants: readonly Want[], max: number): Ask[] {
    const asks: Ask[] = [];
    const rooms = wants.map((want) => ({ want, left: want.max }));
    const first = this.#round % Math.max(1, rooms.length);
    const inTurn = [...rooms.slice(first), ...rooms.slice(0, first)];
    for (const kind of KINDS) {
      for (const room of inTurn) {
        if (room.want.lane !== kind.lane) continue;
        asks.push({ kind, want: room.want, room, isExhausted: false });
      }
    }
    return this.#withTurns(asks, max);
  }

  /**
   * A handler with room for few would take nothing but retries as long as some are due: there, the
   * kinds take turns in who comes first.
   */
  #withTurns(asks: readonly Ask[], max: number): Ask[] {
    const first = new Set<Ask>();
    for (const want of new Set(asks.map((ask) => ask.want))) {
      if (want.max >= max) continue;
      const own = asks.filter((ask) => ask.want === want);
      const turns = TURN_CYCLE.filter((kind) => own.some((ask) => ask.kind === kind));
      // A handler and a bounce handler may have the same topics.
      const name = JSON.stringify([want.lane, want.topics]);
      if (this.#limitedTurns.size >= LIMITED_TURNS_MAX) this.#limitedTurns.clear();
      const turn = this.#limitedTurns.get(name) ?? 0;
      this.#limitedTurns.set(name, (turn + 1) % turns.length);
      const chosen = own.find((ask) => ask.kind === turns[turn]);
      if (chosen !== undefined) first.add(chosen);
    }
    return [...first, ...asks.filter((ask) => !first.has(ask))];
  }

  async #claim(ask: Ask, max: number, demand: Demand): Promise<SpoolClaim[]> {
    if (max <= 0) return [];
    const now = this.earliest();
    const entries = await this.#parts.entries.claim({
      ...ask.kind,
      topics: ask.want.topics,
      exceptDestinations: demand.exceptDestinations,
      max,
      now,
      leaseMs: this.leaseFrom(now),
      holder: this.holder(),
    });
    if (entries.length < max) ask.isExhausted = true;
    ask.found = (ask.found ?? 0) + entries.length;
    const sealed = entries.filter(isSealed);
    if (sealed.length === 0) return entries.map((entry) => new SpoolClaim(entry));
    await this.#hold(sealed);
    return entries.filter((entry) => !isSealed(entry)).map((entry) => new SpoolClaim(entry));
  }

  /** Holds a sealed message: its headers cannot be read here. */
  async #hold(sealed: readonly Entry[]): Promise<void> {
    const verdict = { kind: 'hold', because: SEAL_MISSING, costsAttempt: false } as const;
    const changes = sealed.map((entry) => {
      const to = this.#statusAfter(entry, { verdict });
      return changeOf(entry, to === 'remove' ? to : markReasonUnsealed(to), false);
    });
    await this.#parts.entries.commit(changes);
  }

  async #nextDueAt(demand: Demand): Promise<Millis | null> {
    const times = await Promise.all(
      wantsAtFirst(demand).map((want) =>
        this.#parts.entries.nextDueAt({
          lane: want.lane,
          states: want.lane === 'delivery' ? ['incoming', 'deferred', 'active'] : NOTICE_STATES,
          topics: want.topics,
          exceptDestinations: demand.exceptDestinations,
        }),
      ),
    );
    const known = times.filter((at) => at !== null);
    return known.length === 0 ? null : Math.min(...known);
  }
}

/** Whether those behind it in its order key wait on. As BLOCKING_KEYS of shared/sql-row.ts. */
function isInTheWay(status: Status | 'remove'): boolean {
  if (status === 'remove' || status.lane === 'notice') return false;
  return status.state !== 'bounce' && status.state !== 'archived';
}

function topicsOf({ topics }: Want): Want['topics'] {
  return topics;
}

/** Wants of one group are asked for together at first. */
function wantsAtFirst({ wants, groups = [] }: Demand): readonly Want[] {
  if (groups.length === 0) return wants;
  const grouped = new Set(groups.flatMap((group) => group.of));
  return [...groups.map(({ together }) => together), ...wants.filter((want) => !grouped.has(want))];
}

/** The wants of groups that brought all they were asked for, less what was claimed of each. */
function wantsSingly(
  { groups = [] }: Demand,
  asks: readonly Ask[],
  claims: readonly Claim[],
): { readonly group: WantGroup; readonly wants: readonly Want[] }[] {
  return groups.flatMap((group) => {
    const isUsedUp = asks.some(({ want, room }) => want === group.together && room.left === 0);
    if (!isUsedUp) return [];
    const wants = group.of.map((want) => {
      const own = claims.filter(
        ({ lane, envelope }) => lane === want.lane && takesTopic(want.topics, envelope.topic),
      );
      return { ...want, max: want.max - own.length };
    });
    return [{ group, wants: wants.filter(({ max }) => max > 0) }];
  });
}

/** Whether there may be more of a kind than a group was asked for. */
function hasMore(asks: readonly Ask[], together: Want, kind: ClaimKind): boolean {
  return asks.some((ask) => ask.want === together && ask.kind === kind && !ask.isExhausted);
}

/** What a spool source is made of; the runtime gives it. */
interface SourceOptions {
  readonly entries: EntryStore;
  readonly bodies: BodyStore;
  readonly chain: Chain;
  readonly bodyRemover: BodyRemover;
  readonly events: Events;
  readonly clock: Clock;
  readonly storeClock: StoreClock;
  readonly leaseMs: number;
  readonly retention: Retention;
  readonly settlesDurably: boolean;
  /** The longest wait, even if nothing is noted and no alarm comes. */
  readonly pollMs: number;
  /** Whether a bounce handler fits the topic. */
  announces(topic: string): boolean;
  /** Puts on record that a message which had ended came back and is ended again. */
  recordSettledAgain(id: string, settledAs: SettledAs): Promise<void>;
  onClockJump(byMs: number): void;
  readonly wentBackAt: () => Millis | undefined;
}

// A claimed entry, as the engine holds it; follows its heartbeats.

/** An active entry under our holder. */
export class SpoolClaim implements Claim {
  /** The entry as the store has it now. */
  entry: Entry;
  /** A heartbeat on its way to the store. */
  extending: Promise<unknown> | undefined;
  /** Its verdict is on its way to the store. */
  isSettling = false;
  /** The status that was last sent to the store for a verdict. */
  sent: Status | 'remove' | undefined;
  /** A write was not answered, so what the store has may be one step ahead of `entry`. */
  isUnsure = false;
  /** The whole body, kept in memory since this process hashed it, so it needs no check. */
  readonly plain: Uint8Array | undefined;
  readonly #fencedAt: number;

  constructor(entry: Entry, plain?: Uint8Array) {
    this.entry = entry;
    this.plain = plain;
    this.#fencedAt = entry.status.revision;
  }

  get fence(): string {
    return `${this.id}:${this.#fencedAt}`;
  }

  get id(): string {
    return this.entry.envelope.id;
  }
  get envelope(): Envelope {
    return this.entry.envelope;
  }
  get lane(): Lane {
    return this.entry.status.lane;
  }
  get attempt(): number {
    const { lane, attempts, notices } = this.entry.status;
    return lane === 'delivery' ? attempts : notices;
  }
  get lost(): number {
    return this.entry.status.lost;
  }
  get claimedFrom(): ClaimableState {
    return this.entry.status.claimedFrom ?? 'incoming';
  }
  get policy(): string | null {
    return this.entry.status.policy;
  }
  get lastFailure(): Failure | undefined {
    return this.entry.status.lastFailure;
  }
  get notes(): Headers {
    return this.entry.status.notes;
  }

  /** A heartbeat got through, or a lookup found what is stored. */
  advance(status: Status): void {
    this.entry = { ...this.entry, status };
  }
}

/** The guarded write that brings a claimed entry to its next status. */
function changeOf(entry: Entry, to: Status | 'remove', letsGoOfBody: boolean): Change {
  const { envelope, status } = entry;
  const change: Change = {
    id: envelope.id,
    revision: status.revision,
    to,
    ...(status.holder === undefined ? {} : { holder: status.holder }),
    ...(status.state === 'active' && status.dueAt !== null ? { leaseEndsAt: status.dueAt } : {}),
    ...(letsGoOfBody || to === 'remove' ? removedBodyRef(envelope) : undefined),
  };
  if (!letsGoOfBody) return change;
  return { ...change, envelope: { ...envelope, body: { ...envelope.body, place: 'none' } } };
}
