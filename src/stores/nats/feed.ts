/**
 * feed — the messages of a stream in their order, from a sequence on, as they are and as they come.
 *
 * An ordered push consumer of our own making: nothing is acknowledged, and a gap, a silence or a
 * broken connection ends it with `onBroken`. watcher.ts then opens another where this one stopped;
 * `readAll` (for body-store.ts and records.ts) reads all of it again.
 *
 * Also what a process remembers of removals and contents, to compare it with a stream that is read
 * again because its server may have gone back (`Rewind`).
 */

import { SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { sleep } from '../../system/wait.ts';
import type { Cache, FallenRow, Row } from './catalog.ts';
import { BrokenConnection, type NatsHeaders, type NatsMessage } from './connection.ts';
import type { EntryLife, StreamJournal } from './stream-journal.ts';
import type { Content } from './row.ts';
import type { Stream } from './stream.ts';

const HEARTBEAT_MS = 2_000;
/** The silence after which a feed counts as dead: three heartbeats. */
const SILENT_MS = 3 * HEARTBEAT_MS;
const NS_PER_MS = 1_000_000;

/** A message and its place. */
export interface FedMessage {
  readonly subject: string;
  readonly headers: NatsHeaders | undefined;
  readonly data: Uint8Array;
  readonly seq: number;
  /** When the server stored it. */
  readonly storedAt: number;
}

/** What to feed, and to whom. */
interface FeedOptions {
  readonly filter: string;
  readonly from: number;
  readonly headersOnly: boolean;
  readonly onMessage: (fed: FedMessage) => void;
  /** All that was there when it was opened has been fed. */
  readonly onCaughtUp: () => void;
  /** There is nothing more to feed for now; the stream was looked at up to this sequence. */
  readonly onIdle?: (seq: number) => void;
  readonly onBroken: () => void;
}

/** A feed that runs. */
export interface Feed {
  stop(): void;
}

/** Opens a feed; rejects when the server does not answer. */
export async function openFeed(stream: Stream, options: FeedOptions): Promise<Feed> {
  const runner = new Runner(stream, options);
  try {
    await runner.start();
  } catch (error) {
    runner.stop();
    throw error;
  }
  return runner;
}

/** All that is there now, from a sequence on; with `max`, the first ones of it. */
export function readAll(
  stream: Stream,
  options: Pick<FeedOptions, 'filter' | 'headersOnly'> & {
    readonly from?: number;
    readonly max?: number;
  },
): Promise<readonly FedMessage[]> {
  const { max = Number.POSITIVE_INFINITY, from = 1 } = options;
  // A feed may come from a replica that has not all yet: the leader knows whether it was all.
  const isBehind = async (seq: number): Promise<boolean> => {
    if (!stream.readsLeader) return false;
    const next = await stream.next(options.filter || '>', seq + 1);
    return next !== undefined && next.seq <= endsAt;
  };
  let endsAt = 0;
  const attempt = async (): Promise<readonly FedMessage[]> => {
    if (stream.readsLeader) endsAt = (await stream.info())?.state.last_seq ?? 0;
    return read();
  };
  const read = (): Promise<readonly FedMessage[]> =>
    new Promise((resolve, reject) => {
      const all: FedMessage[] = [];
      let feed: Feed | undefined;
      let isDone = false;
      const done = (): void => {
        isDone = true;
        feed?.stop();
        resolve(all);
      };
      const fail = (error: Error): void => {
        isDone = true;
        feed?.stop();
        reject(error);
      };
      const judge = (isMissing: boolean): void => {
        if (isMissing) fail(new BrokenConnection('a replica is behind the others'));
        else done();
      };
      openFeed(stream, {
        ...options,
        from,
        onMessage: (fed) => {
          if (isDone) return;
          // Its bytes are a window into what the connection read; kept, they are a copy.
          all.push({ ...fed, data: new Uint8Array(fed.data) });
          if (all.length >= max) done();
        },
        onCaughtUp: () => {
          if (!isDone) isBehind(all.at(-1)?.seq ?? from - 1).then(judge, fail);
        },
        onBroken: () => fail(new BrokenConnection('the server stopped in the middle of a list')),
      }).then((opened) => {
        feed = opened;
        if (isDone) opened.stop();
      }, reject);
    });
  return stream.line.persist(`list "${stream.name}"`, attempt);
}

class Runner implements Feed {
  readonly #stream: Stream;
  readonly #options: FeedOptions;
  readonly #inbox: string;
  readonly #stopListening: () => void;
  #unsubscribe: () => void;
  #consumer = '';
  #delivered = 0;
  #pendingAtStart: number | undefined;
  #pending: number | undefined;
  #endsAt = 0;
  #fedSeq = 0;
  #isIdle = false;
  #isCaughtUp = false;
  #isOver = false;
  #heardAt: number;
  #cancelWatch: (() => void) | undefined;

  constructor(stream: Stream, options: FeedOptions) {
    this.#stream = stream;
    this.#options = options;
    const { line } = stream;
    this.#inbox = line.makeInbox();
    this.#heardAt = line.clock.monotonic();
    const subscription = line.connection.subscribe(this.#inbox, {
      callback: (error, message) => {
        if (error === null && !this.#isOver) this.#take(message);
      },
    });
    this.#unsubscribe = () => subscription.unsubscribe();
    this.#stopListening = line.onChange(() => {
      if (!line.isConnected) this.#break();
    });
  }

  async start(): Promise<void> {
    const { filter, from, headersOnly } = this.#options;
    const start =
      from > 1
        ? { deliver_policy: 'by_start_sequence', opt_start_seq: from }
        : { deliver_policy: 'all' };
    this.#endsAt = (await this.#stream.info())?.state.last_seq ?? 0;
    const answer = await this.#stream.api('CONSUMER.CREATE', {
      stream_name: this.#stream.name,
      config: {
        ...start,
        deliver_subject: this.#inbox,
        filter_subject: filter,
        ack_policy: 'none',
        max_deliver: 1,
        replay_policy: 'instant',
        headers_only: headersOnly,
        flow_control: true,
        idle_heartbeat: HEARTBEAT_MS * NS_PER_MS,
        inactive_threshold: 30_000 * NS_PER_MS,
        mem_storage: true,
        num_replicas: 1,
      },
    });
    const made = answer as {
      readonly name: string;
      readonly num_pending: number;
      readonly delivered?: { readonly consumer_seq: number };
    };
    this.#consumer = made.name;
    // The server may have begun to deliver before it wrote this answer.
    this.#pendingAtStart = made.num_pending + (made.delivered?.consumer_seq ?? 0);
    this.#watchSilence();
    this.#checkCaughtUp();
  }

  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelWatch?.();
    this.#stopListening();
    this.#unsubscribe();
    const { line, name } = this.#stream;
    if (!line.isConnected || this.#consumer === '') return;
    // Not awaited: a consumer without a listener expires by itself, a little later.
    line.ask(`$JS.API.CONSUMER.DELETE.${name}.${this.#consumer}`, '').catch(() => undefined);
  }

  #take(message: NatsMessage): void {
    this.#heardAt = this.#stream.line.clock.monotonic();
    const { headers } = message;
    if (headers !== undefined && headers.code === 100) {
      this.#takeSign(message, headers);
      return;
    }
    const place = placeOf(message.reply ?? '');
    if (place === undefined) return;
    if (place.consumerSeq !== this.#delivered + 1) {
      this.#break();
      return;
    }
    this.#delivered = place.consumerSeq;
    this.#options.onMessage({
      subject: message.subject,
      headers,
      data: message.data,
      seq: place.seq,
      storedAt: place.storedAt,
    });
    this.#pending = place.pending;
    this.#fedSeq = place.seq;
    this.#checkCaughtUp();
  }

  /** A heartbeat, or a question whether we still keep up. */
  #takeSign({ reply }: NatsMessage, headers: NatsHeaders): void {
    if (reply !== undefined && reply !== '') {
      this.#stream.line.connection.publish(reply);
      return;
    }
    const stalled = headers.get('Nats-Consumer-Stalled');
    const isWaiting = stalled !== '';
    if (isWaiting) this.#stream.line.connection.publish(stalled);
    const last = headers.get('Nats-Last-Consumer');
    if (last !== '' && Number(last) !== this.#delivered) {
      this.#break();
      return;
    }
    // One that waits for us has more to send.
    this.#isIdle ||= !isWaiting;
    this.#options.onIdle?.(Number(headers.get('Nats-Last-Stream')));
    this.#checkCaughtUp();
  }

  #checkCaughtUp(): void {
    if (this.#isCaughtUp || this.#pendingAtStart === undefined) return;
    // Counts may include what was replaced since; a feed that falls idle has fed all there is.
    const isThrough =
      this.#delivered >= this.#pendingAtStart ||
      this.#fedSeq >= this.#endsAt ||
      this.#pending === 0 ||
      this.#isIdle;
    if (!isThrough) return;
    this.#isCaughtUp = true;
    this.#options.onCaughtUp();
  }

  #watchSilence(): void {
    const { clock } = this.#stream.line;
    this.#cancelWatch = clock.after(HEARTBEAT_MS, () => {
      if (this.#isOver) return;
      if (clock.monotonic() - this.#heardAt > SILENT_MS) this.#break();
      else this.#watchSilence();
    });
  }

  #break(): void {
    if (this.#isOver) return;
    this.stop();
    this.#options.onBroken();
  }
}

interface Place {
  readonly seq: number;
  readonly consumerSeq: number;
  readonly storedAt: number;
  readonly pending: number;
}

/** `$JS.ACK.[domain.account.]stream.consumer.delivered.seq.consumerSeq.time.pending[.random]` */
function placeOf(reply: string): Place | undefined {
  const words = reply.split('.');
  const at = words.length >= 11 ? 7 : 5;
  if (words[0] !== '$JS' || words[1] !== 'ACK' || words.length < 9) return undefined;
  return {
    seq: Number(words[at]),
    consumerSeq: Number(words[at + 1]),
    storedAt: Number(words[at + 2]) / NS_PER_MS,
    pending: Number(words[at + 3]),
  };
}

// A server that went back: what it acknowledged, and has forgotten after its restart.
//
// A stream of one replica may lose its last writes with its server. The processes that live on know
// better: which entries they saw removed, and what they wrote or read last. When the stream is read
// again (watcher.ts), an entry whose removal this process has seen is removed again, and one that
// shows an older revision than this process has at hand is written again. Nothing is made up: an
// entry counts as settled only when the server had acknowledged or shown the removal of this very
// life of its id (PendingInserts). Everything found is reported.
//
// In memory, and in a journal where there is one (stream-journal.ts). Without it, when all
// processes end together with the server, only the markers of removed bodies still tell that a
// message has ended (body-store.ts).

/**
 * Removals that are remembered; the oldest are forgotten first. Also in docs/guarantees.md,
 * docs/reference/stores/nats.md and test/stores/nats/stream-journal.test.ts.
 */
const REMOVALS_MAX = 200_000;
/** Time for other processes to write again what they have at hand. Also in docs/guarantees.md. */
export const OTHERS_MS: number = 3 * SECOND_MS;
/** Writes on their way at once; each that is refused found a newer state there. */
const WRITES_AT_ONCE = 64;

/** Where a stream ends, and where it ended before. */
export interface StreamEnds {
  /** Where the stream ends now, and the last sequence of it that was seen before. */
  readonly lastSeq: number;
  readonly seenSeq: number;
  /** When that was seen, where an earlier process did. */
  readonly seenAt?: number | undefined;
  /** The stream that was seen is not there any more: this one was made since. */
  readonly isAnother?: boolean;
}

/** What was found when the stream was read again. */
interface RewindFindings extends StreamEnds {
  /** Entries whose last write was lost, and that are not there. */
  readonly gone: number;
  readonly fallen: readonly FallenRow[];
  /** Entries that were removed before, and are removed again. */
  readonly returned: readonly Row[];
}

/** What a rewind works with. */
interface RewindOptions {
  readonly cache: Cache;
  readonly streamName: string;
  /** Writes an entry over the sequence it has; undefined: it has moved on. */
  readonly write: (content: Content, expected: number) => Promise<number | undefined>;
  /** Removes an entry of the sequence it has; false: it has moved on. */
  readonly remove: (row: Row) => Promise<boolean>;
  readonly tell: (error: RespoolError) => void;
  readonly clock: Clock;
  /** Keeps removals for processes that are started later. */
  readonly journal: Pick<StreamJournal, 'noteRemoval'> | undefined;
}

/** Remembers removals and contents, and compares them with a stream that is read again. */
export class Rewind {
  readonly #parts: RewindOptions;
  /** Lives of ids whose removal was seen: a server may show an earlier one again. */
  readonly #removals = new Set<string>();
  readonly #closing = new AbortController();
  #contents: ReadonlyMap<string, { readonly seq: number; readonly content: Content }> = new Map();

  constructor(parts: RewindOptions) {
    this.#parts = parts;
  }

  /** The server acknowledged or showed that this life of an id is over. */
  noteRemoval(id: string, birth: number): void {
    if (birth === 0) return;
    if (!this.wasRemoved(id, birth)) this.#parts.journal?.noteRemoval(id, birth);
    this.#remember(id, birth);
  }

  /** Remembers what earlier processes have seen removed. */
  recall(removals: readonly EntryLife[]): void {
    for (const [id, birth] of removals) this.#remember(id, birth);
  }

  #remember(id: string, birth: number): void {
    const life = lifeOf(id, birth);
    this.#removals.delete(life);
    this.#removals.add(life);
    if (this.#removals.size <= REMOVALS_MAX) return;
    for (const oldest of this.#removals) {
      this.#removals.delete(oldest);
      break;
    }
  }

  wasRemoved(id: string, birth: number): boolean {
    return birth !== 0 && this.#removals.has(lifeOf(id, birth));
  }

  /** Before the stream is read again: cached sequence numbers are invalid after it. */
  begin(): void {
    // What a reading that broke off had before it is kept: it is the newer state.
    this.#contents = new Map([...this.#parts.cache.takeAll(), ...this.#contents]);
  }

  /** Removes again what returned, writes again from the cache what fell back; reports both. */
  async finish(findings: RewindFindings): Promise<void> {
    const { gone, fallen, returned, lastSeq, seenSeq, isAnother = false } = findings;
    const contents = this.#contents;
    this.#contents = new Map();
    const isShorter = lastSeq < seenSeq || isAnother;
    const removed: Row[] = [];
    await inParts(returned, async (row) => {
      // Refused: a replica that lags has shown it, or another process was first.
      if (!(await this.#parts.remove(row))) return;
      removed.push(row);
      // The server may lose the second removal, too, when the file with the first one is gone.
      this.#parts.journal?.noteRemoval(row.id, row.birth);
    });
    if (!isShorter && gone + fallen.length + removed.length === 0) return;
    let restored = 0;
    await inParts(fallen, async ({ row, seen }) => {
      const known = contents.get(row.id);
      if (known?.seq !== seen.seq) return;
      if ((await this.#parts.write(known.content, row.seq)) !== undefined) restored += 1;
    });
    this.#parts.tell(
      wentBack(this.#parts.streamName, { ...findings, returned: removed }, restored),
    );
    // Nothing is claimed before this ends: what another process has at hand may be settled.
    if (restored < fallen.length) {
      await sleep(this.#parts.clock, OTHERS_MS, this.#closing.signal);
    }
  }

  /** The store is closed: waits for nobody any more. */
  close(): void {
    this.#closing.abort();
  }
}

function lifeOf(id: string, birth: number): string {
  return `${id} ${birth}`;
}

/** A few at a time. A failed one is left: the server is away again, and will be reread. */
async function inParts<Item>(
  items: readonly Item[],
  act: (item: Item) => Promise<unknown>,
): Promise<void> {
  for (let at = 0; at < items.length; at += WRITES_AT_ONCE) {
    await Promise.allSettled(items.slice(at, at + WRITES_AT_ONCE).map(act));
  }
}

function wentBack(name: string, findings: RewindFindings, restored: number): RespoolError {
  const { lastSeq, seenSeq, seenAt, isAnother, gone, fallen, returned } = findings;
  const at = seenAt === undefined ? '' : ` at ${new Date(seenAt).toISOString()}`;
  const ends =
    isAnother === true
      ? `stream "${name}" is not the one that was seen${at} and ended at ${seenSeq}`
      : `stream "${name}" ends at ${lastSeq}, and ${seenSeq} was seen${at}`;
  const parts = [
    ...(gone > 0 ? [`${gone} of its messages are gone`] : []),
    ...(fallen.length > 0
      ? [`${fallen.length} fell back to an older state, ${restored} of them were written again`]
      : []),
    ...(returned.length > 0
      ? [`${returned.length} that were settled came back and were removed again`]
      : []),
  ];
  return new RespoolError(
    'store.corrupt',
    `the NATS server lost writes that it had acknowledged: ${[ends, ...parts].join('; ')}. Use ` +
      'NATS 2.10 or newer with sync_interval: always, and look for messages that are missing or ' +
      'came twice',
  );
}
