/**
 * memory-letters — a place of dead letters in memory with planned faults, for tests of replays.
 *
 * The place outlives its doors, as a queue outlives the processes that read it; a door that is
 * dropped gives back what it held.
 */
import { letterMatches, groupOf } from '../../../src/core/letter-query.ts';
import type { LetterArrival, LetterSample } from 'respool/testkit';
import type {
  DeadLetters,
  LetterVerdict,
  Letter,
  LetterTakeOptions,
  SettleResult,
  TakenLetter,
} from 'respool/dead-letters';
import { RespoolError } from 'respool';
import { openLetter } from '../fake-letters.ts';

/** Something that lies here. */
interface Held {
  letter: Letter;
  readonly body: Uint8Array;
  by: object | undefined;
}

export interface Sent extends LetterArrival {
  readonly to: string;
}

/** What a test knows of it, and can do to it. */
export interface MemoryPlace {
  readonly items: Held[];
  readonly sent: Sent[];
  readonly parked: Held[];
  readonly removed: Held[];
  /** What a lost connection holds. */
  readonly unnoticed: Held[];
  readonly again: Set<string>;
  readonly delivered: Set<string>;
  looks: number;
  sinces: number;
  /** Whether nobody else holds letters that are not seen. */
  isAlone: boolean;
  /** Messages that no consumer has taken where they are sent; undefined: that is not known. */
  waiting: number | undefined;
  /** Consumers of the queue that letters are sent to, and what they hold. */
  consumers: number;
  unacked: number | undefined;
  /** Letters that one question whether they failed again goes through. */
  lookMax: number;
  /** Answers instead of what would be done. */
  refuse: ((letter: Letter, fate: LetterVerdict) => SettleResult | undefined) | undefined;
  /** Waited for before anything is sent. */
  hold: ((letter: Letter) => Promise<void>) | undefined;
  /** A pass gives no more than so many. */
  passMax: number;
  /** The connection is lost at the end of the next pass, and with it the last acks. */
  lostAcks: number;
  /** The broker notices that loss: what the connection held lies where it lay. */
  noticeLoss(): void;
  put(samples: readonly (LetterSample & { readonly replays?: number })[]): void;
  /** What was sent is given up again. */
  failAgain(ids: readonly string[]): void;
  /** `between`: called when a letter is sent, and not yet gone from here. */
  door(between?: () => void): DeadLetters & { drop(): void };
}

export function createPlace(name = 'dead'): MemoryPlace {
  const place: MemoryPlace = {
    items: [],
    sent: [],
    parked: [],
    removed: [],
    again: new Set(),
    delivered: new Set(),
    looks: 0,
    sinces: 0,
    isAlone: true,
    waiting: 0,
    consumers: 1,
    unacked: undefined,
    lookMax: Number.POSITIVE_INFINITY,
    refuse: undefined,
    hold: undefined,
    passMax: Number.POSITIVE_INFINITY,
    lostAcks: 0,
    noticeLoss() {
      for (const held of place.unnoticed) held.letter = { ...held.letter, isRedelivered: true };
      place.items.unshift(...place.unnoticed.splice(0));
      place.isAlone = true;
    },
    unnoticed: [],
    put(samples) {
      for (const sample of samples) place.items.push(heldOf(name, sample));
    },
    failAgain(ids) {
      for (const id of ids) {
        const at = place.sent.findLast((one) => one.id === id);
        if (at === undefined) throw new Error(`"${id}" was never sent`);
        const { replays, replay, headers, body } = at;
        const held = heldOf(name, { id, headers, body, replays });
        held.letter = { ...held.letter, replayedBy: replay, key: `${id}#${replays}` };
        place.items.push(held);
      }
    },
    door: (between) => createDoor(place, name, between),
  };
  return place;
}

function heldOf(place: string, sample: LetterSample & { readonly replays?: number }): Held {
  const { id, topic = 'suite.letter', headers = {}, body = Uint8Array.of(1, 2, 3) } = sample;
  const { code = 'suite.failed', reason = 'it did not work', replays = 0 } = sample;
  const letter: Letter = {
    id,
    key: `${id}#0`,
    kind: 'dead',
    place,
    topic,
    origin: `x/${topic}`,
    home: sample.isUnroutable === true ? undefined : { kind: 'queue', exchange: '', key: topic },
    code,
    reason,
    group: groupOf({ code, reason, at: topic, origin: '' }),
    deaths: 1,
    attempts: 1,
    replays,
    replayedBy: undefined,
    isRedelivered: false,
    enqueuedAt: 1_000,
    diedAt: 2_000,
    size: body.length,
    contentType: undefined,
    headers,
  };
  return { letter, body, by: undefined };
}

function createDoor(
  place: MemoryPlace,
  name: string,
  between: (() => void) | undefined,
): DeadLetters & { drop(): void } {
  const self = {};
  let isDropped = false;
  let woken = Promise.withResolvers<void>();
  const wake = () => {
    woken.resolve();
    woken = Promise.withResolvers<void>();
  };
  const drop = () => {
    isDropped = true;
    giveBack();
  };
  const giveBack = () => {
    for (const held of place.items) if (held.by === self) held.by = undefined;
    wake();
  };
  const inHand = () => place.items.filter(({ by }) => by === self).length;
  const acked: Held[] = [];

  async function* take(options: LetterTakeOptions): AsyncGenerator<TakenLetter> {
    const { isWanted, inHand: max = 100, signal } = options;
    if (place.items.some(({ by }) => by !== undefined)) {
      throw new RespoolError('move.refused', `cannot take from "${name}": somebody else does`);
    }
    let given = 0;
    const isOver = () => isDropped || signal?.aborted === true || given >= place.passMax;
    const all = place.items.slice();
    signal?.addEventListener('abort', () => wake());
    acked.length = 0;
    try {
      for (const held of all) {
        if (isOver()) return;
        const isMine = place.items.includes(held) && isWanted(held.letter);
        markDelivered([held]);
        if (!isMine) continue;
        while (inHand() >= max && !isOver()) await woken.promise;
        if (isOver()) return;
        held.by = self;
        given += 1;
        yield { ...openLetter(held.letter, held.body), token: held };
      }
    } finally {
      giveBack();
      if (place.lostAcks > 0) loseAcks();
    }
  }

  const loseAcks = (): never => {
    place.unnoticed.push(...acked.slice(-place.lostAcks));
    place.lostAcks = 0;
    place.isAlone = false;
    throw new RespoolError('broker.unavailable', 'the channel was lost at the end');
  };

  return {
    name: `queue "${name}"`,
    drop,
    caution: async () => ({ kind: 'free' }),
    count: async () => place.items.length,
    async *look({ query, max = 100_000 } = {}) {
      place.looks += 1;
      let seen = 0;
      const all = place.items.slice();
      for (const { letter, body } of all) {
        seen += 1;
        if (seen > max) return;
        if (letterMatches(letter, query ?? {})) yield openLetter(letter, body);
      }
      markDelivered(all);
    },
    take,
    async settle(taken, fate) {
      const held = taken.token as Held;
      // As a queue: what came back when its loop ended is not in hand any more.
      if (held.by !== self) return { kind: 'gone' };
      const answer = await settle(place, held, fate, between);
      if (answer.kind === 'done' && fate.kind !== 'leave') acked.push(held);
      if (held.by === self && !isDropped) held.by = undefined;
      wake();
      return answer;
    },
    isAlone: async () => place.isAlone,
    async since(replay, ids) {
      place.sinces += 1;
      const asked = new Set(ids);
      // An id as often as it is asked for.
      const rest = [...ids];
      const isAsked = (id: string) => rest.splice(rest.indexOf(id) >>> 0, 1).length > 0;
      const seen = place.items.slice(0, place.lookMax);
      markDelivered(seen);
      const back = seen.filter(({ letter }) => letter.replayedBy === replay);
      const failed = back.map(({ letter }) => letter.id).filter(isAsked);
      for (const id of place.again) if (asked.has(id) && !failed.includes(id)) failed.push(id);
      const delivered = place.sent.filter((one) => one.replay === replay).map(({ id }) => id);
      return {
        failed: failed.map((id) => ({ id, code: 'suite.failed', reason: 'it failed again' })),
        delivered: delivered.filter((id) => asked.has(id) && place.delivered.has(id)),
        ...(seen.length < place.items.length ? { unseen: place.items.length - seen.length } : {}),
      };
    },
    waitingAt: async (_, { isFull = false } = {}) => {
      const { waiting: ready, consumers, unacked } = place;
      if (ready === undefined) return undefined;
      const held = isFull && unacked !== undefined ? { unacked } : {};
      return [{ name: 'queue "home"', ready, consumers, ...held }];
    },
    async close() {
      giveBack();
    },
  };
}

/** As a broker does with all that a look or a pass goes through. */
function markDelivered(items: readonly Held[]): void {
  for (const held of items) held.letter = { ...held.letter, isRedelivered: true };
}

/** The reason of an unsure answer to what was sent. */
export const SENT_ALL_THE_SAME = 'sent all the same';

async function settle(
  place: MemoryPlace,
  held: Held,
  fate: LetterVerdict,
  between: (() => void) | undefined,
): Promise<SettleResult> {
  const { letter, body } = held;
  if (fate.kind === 'leave') return { kind: 'done' };
  await place.hold?.(letter);
  const refused = place.refuse?.(letter, fate);
  const isSent = refused?.kind === 'unsure' && refused.reason === SENT_ALL_THE_SAME;
  if (refused !== undefined && !isSent) return refused;
  const at = place.items.indexOf(held);
  if (at < 0) return { kind: 'gone' };
  if (fate.kind === 'send') {
    const to = fate.to ?? letter.home;
    if (to === undefined) return { kind: 'failed', code: 'replay.unroutable', reason: 'no home' };
    const headers = Object.entries({ ...letter.headers, ...fate.change?.headers });
    place.sent.push({
      id: letter.id,
      to: to.kind === 'queue' ? `${to.exchange}/${to.key}` : to.topic,
      headers: Object.fromEntries(
        headers.filter(([, value]) => value !== null),
      ) as LetterArrival['headers'],
      body: fate.change?.body ?? body,
      contentType: fate.change?.contentType,
      replays: letter.replays + 1,
      replay: fate.replay,
    });
  } else (fate.kind === 'park' ? place.parked : place.removed).push(held);
  if (refused !== undefined) return refused;
  between?.();
  place.items.splice(place.items.indexOf(held), 1);
  return { kind: 'done' };
}
