/**
 * rekey — brings every body to the current encryption: another key, another cipher, or none; and
 * every entry of a sealed store to the current key of the seal.
 *
 *   read by its record ─▶ stored under another ref ─▶ guarded commit ─▶ old ref to the remover
 *
 * The engine may deliver meanwhile: what is active is left alone and looked at again. A crash loses
 * nothing: the new body is durable before the entry names it, and the old one goes only after that
 * entry is durable. What is left over has no entry, and is the caretaker's.
 */

import type { Entry } from '../core/entry.ts';
import { isRespoolError, RespoolError, textOf } from '../core/errors.ts';
import { checkNames, PAGE_MAX } from '../core/limits.ts';
import { operatorMove } from '../core/operator.ts';
import type { Clock } from '../ports/clock.ts';
import type { UnreadEntry } from '../ports/entry-store.ts';
import { sleep } from '../system/wait.ts';
import { type ActionParts, audit } from './actions.ts';
import {
  type BodySettings,
  removedBodyRef,
  isDamaged,
  keepBody,
  readBody,
  type StoredOrInlineBody,
} from './body.ts';
import { isOrphan } from './caretaker.ts';
import { type ListFilter, queryOf } from './list.ts';

/** How to rekey. */
export interface RekeyOptions {
  /** Which messages; default all. */
  readonly filter?: ListFilter;
  /** Only counts, and changes nothing; default false. */
  readonly dryRun?: boolean;
  /** Stops it between two messages; what is done stays done. */
  readonly signal?: AbortSignal;
  /** Called after every message. */
  readonly onProgress?: (progress: RekeyProgress) => void;
}

/** How far a rekeying is, in messages. */
export interface RekeyProgress {
  /** How many had to be brought to the current encryption, when it began. */
  readonly count: number;
  readonly done: number;
  /** Not done and not given up: active, or not looked at yet. */
  readonly left: number;
  /** Body or entry cannot be read; nothing was done to them. */
  readonly unreadable: number;
  /** The first that cannot be read, at most 100. */
  readonly troubles: readonly RekeyTrouble[];
}

/** A message whose body or entry cannot be read, and why. */
export interface RekeyTrouble {
  /** Where it is, if not even its id can be read. */
  readonly id: string;
  /**
   * `key.unavailable`, `transform.missing`, `peer.missing`, `body.corrupt`, `body.missing`,
   * `store.corrupt`, or of whatever else it met; `error` for an error without a code.
   */
  readonly code: string;
  readonly text: string;
}

/** What a rekeying needs. */
export interface RekeyContext extends ActionParts {
  readonly clock: Clock;
  readonly isStopping: boolean;
  readonly bodySettings: BodySettings;
  /** Whether an entry is kept in another way than it would be now. */
  readonly isOldEntry: (entry: Entry) => boolean;
  /** A stop of the spool waits for this. */
  during<T>(work: () => Promise<T>): Promise<T>;
}

/** Messages that are worked on at once: their writes to the disk go together. */
const AT_ONCE = 8;
/** Also in docs/reference/http-api.md. */
const TROUBLES_MAX = 100;
/** What was active is looked at again this often without any progress, with this wait between. */
const LOOKS_MAX = 5;
const LOOK_WAIT_MS = 1_000;
/** Maximum number of messages to come back to; a later run finds the others. */
const LATER_MAX = 50_000;

/** What stops a run: it is about all messages, not about the one that met it. */
const STOPPING = ['engine.stopping', 'store.full'] as const;

/** Brings what fits to the current encryption; resolves when nothing more can be done. */
export async function rekey(
  parts: RekeyContext,
  by: string,
  options: RekeyOptions = {},
): Promise<RekeyProgress> {
  checkNames('rekey', options, ['filter', 'dryRun', 'signal', 'onProgress']);
  const { filter = {}, dryRun = false } = options;
  const to = await parts.bodySettings.chain.encryption();
  const work = new Rekeying(parts, by, options, to);
  const count = await work.count();
  if (dryRun) return work.progress;
  const details = { count, to: to ?? 'none', filter };
  await audit(parts, { by, action: 'rekey', ids: [], details });
  await work.run();
  return work.progress;
}

interface Page {
  readonly ids: readonly string[];
  readonly corrupt: readonly UnreadEntry[];
}

class Rekeying {
  readonly #parts: RekeyContext;
  readonly #by: string;
  readonly #options: RekeyOptions;
  readonly #to: string | undefined;
  readonly #troubles: RekeyTrouble[] = [];
  /** Active or overtaken when they were looked at. */
  #later: string[] = [];
  /** The error of the first message that could not be read or written for now; it is left. */
  #outage: RespoolError | undefined;
  #count = 0;
  #done = 0;
  #unreadable = 0;
  /** Gone, or rekeyed by another process. */
  #settled = 0;

  constructor(parts: RekeyContext, by: string, options: RekeyOptions, to: string | undefined) {
    this.#parts = parts;
    this.#by = by;
    this.#options = options;
    this.#to = to;
  }

  get progress(): RekeyProgress {
    const over = this.#done + this.#unreadable + this.#settled;
    return {
      count: this.#count,
      done: this.#done,
      left: Math.max(this.#later.length, this.#count - over),
      unreadable: this.#unreadable,
      troubles: [...this.#troubles],
    };
  }

  async count(): Promise<number> {
    for await (const { ids, corrupt } of this.#pages()) this.#count += ids.length + corrupt.length;
    this.#tell();
    return this.#count;
  }

  async run(): Promise<void> {
    for await (const { ids, corrupt } of this.#pages()) {
      for (const { id, where, reason, code = 'store.corrupt' } of corrupt) {
        this.#giveUp({ id: id ?? where, code, text: reason });
      }
      await this.#all(ids);
    }
    let looks = 0;
    while (this.#later.length > 0 && looks < LOOKS_MAX) {
      await this.#wait();
      const before = this.#later;
      this.#later = [];
      await this.#all(before);
      looks = this.#later.length < before.length ? 0 : looks + 1;
    }
    if (this.#outage !== undefined) throw this.#outage;
  }

  /** The ids of what has to be done, and what cannot be read, page by page. */
  async *#pages(): AsyncGenerator<Page> {
    const { entries, now } = this.#parts;
    const { filter } = this.#options;
    const query = queryOf(filter ?? {}, now());
    let after: string | undefined;
    do {
      this.#check();
      const page = await entries.list({
        ...query,
        limit: PAGE_MAX,
        ...(after === undefined ? {} : { after }),
      });
      const old = page.entries.filter((entry) => this.#isOld(entry));
      const ids = old.map(({ envelope }) => envelope.id);
      // Whether it would match a filter is unknown.
      yield { ids, corrupt: filter === undefined ? page.corrupt : [] };
      after = page.next;
    } while (after !== undefined);
  }

  async #all(ids: readonly string[]): Promise<void> {
    const waiting = [...ids];
    const lane = async (): Promise<void> => {
      for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
        this.#check();
        const one = id;
        await this.#parts.during(() => this.#one(one));
        this.#tell();
      }
    };
    const lanes = Array.from({ length: AT_ONCE }, lane);
    // All end before the first failure is reported: nothing goes on behind it.
    const ended = await Promise.allSettled(lanes);
    for (const end of ended) if (end.status === 'rejected') throw end.reason;
  }

  async #one(id: string): Promise<void> {
    let entry: Entry | undefined;
    try {
      entry = await this.#parts.entries.get(id);
      if (entry === undefined || !this.#isOld(entry)) this.#settled += 1;
      else if (await this.#bring(entry)) this.#done += 1;
      else this.#comeBackTo(id);
    } catch (error) {
      if (STOPPING.some((code) => isRespoolError(error, code))) throw error;
      // Thrown when all others are done: one key that cannot be fetched must not stop them.
      if (isRespoolError(error, 'store.unavailable')) this.#outage ??= error;
      else if (entry !== undefined && (await this.#hasMoved(entry))) this.#comeBackTo(id);
      else this.#giveUp({ id, code: codeOf(error), text: textOf(error) });
    }
  }

  /** False if another process has it, or was faster. */
  async #bring(entry: Entry): Promise<boolean> {
    const { entries, now, retention, bodyRemover, bodySettings } = this.#parts;
    const { id, body } = entry.envelope;
    const context = { now: now(), by: this.#by, retention };
    const answer = operatorMove(entry, { kind: 'touch' }, context);
    if (answer.kind === 'refused') return false;
    const kept = this.#isOldBody(entry) ? await this.#keep(entry) : undefined;
    const { holder, revision } = entry.status;
    const [done] = await entries.commit([
      {
        id,
        revision,
        to: answer.to,
        // Passed even if unchanged: a sealed store seals it again.
        envelope: kept === undefined ? entry.envelope : { ...entry.envelope, body: kept.info },
        ...(kept?.inline === undefined ? {} : { inlineBody: kept.inline }),
        ...(kept === undefined ? {} : removedBodyRef(entry.envelope)),
        ...(holder === undefined ? {} : { holder }),
      },
    ]);
    if (kept === undefined) return done === 'done';
    if (done === 'done') {
      if (body.place === 'store') bodyRemover.add(body.ref, 'replaced');
      return true;
    }
    const { ref, place } = kept.info;
    // Asked, not believed: a store that repeats our own write may call it stale.
    const isUnused = place === 'store' && (await isOrphan(entries, ref));
    if (isUnused) await bodySettings.bodies.remove([ref]);
    return false;
  }

  /** The same body once more; it was accepted under the limits of its day. */
  #keep(entry: Entry): StoredOrInlineBody | Promise<StoredOrInlineBody> {
    const { bodySettings } = this.#parts;
    const stream = readBody(entry, bodySettings);
    const settings = { ...bodySettings, bodyMaxBytes: Number.POSITIVE_INFINITY };
    return keepBody({ stream }, entry.envelope.id, settings);
  }

  #isOld(entry: Entry): boolean {
    return this.#isOldBody(entry) || this.#parts.isOldEntry(entry);
  }

  #isOldBody({ envelope }: Entry): boolean {
    const { chain } = this.#parts.bodySettings;
    // An attempt to encrypt it will say what is wrong with it.
    if (isDamaged(envelope)) return true;
    return envelope.body.place !== 'none' && !chain.isEncryptedAs(this.#to, envelope.body);
  }

  /** Whether the entry is another by now: then what we found says nothing about it. */
  async #hasMoved({ envelope, status }: Entry): Promise<boolean> {
    const now = await this.#parts.entries.get(envelope.id);
    return now?.status.revision !== status.revision;
  }

  #comeBackTo(id: string): void {
    if (this.#later.length < LATER_MAX) this.#later.push(id);
  }

  #giveUp(trouble: RekeyTrouble): void {
    this.#unreadable += 1;
    if (this.#troubles.length < TROUBLES_MAX) this.#troubles.push(trouble);
  }

  #check(): void {
    this.#options.signal?.throwIfAborted();
    if (!this.#parts.isStopping) return;
    throw new RespoolError('engine.stopping', 'the spool is stopping; run rekey again later');
  }

  #tell(): void {
    this.#options.onProgress?.(this.progress);
  }

  async #wait(): Promise<void> {
    await sleep(this.#parts.clock, LOOK_WAIT_MS, this.#options.signal);
    this.#check();
  }
}

function codeOf(error: unknown): string {
  return isRespoolError(error) ? error.code : 'error';
}
