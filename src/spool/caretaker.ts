/**
 * caretaker — what has to be done now and then: forget what is past its retention, collect bodies
 * without entry, hold what no process handles, free what dead processes held, report what cannot be
 * read, keep the audit record short. Also the names of bodies (`refOf`), and which body belongs to
 * no entry.
 *
 * Every duty is guarded by compare-and-swap, so several caretakers on one store do no harm.
 *
 * Why: docs/decisions/: 0008 and 0009.
 */

import { type Millis, MINUTE_MS } from '../core/duration.ts';
import type { Entry } from '../core/entry.ts';
import { isRespoolError, RespoolError } from '../core/errors.ts';
import { PAGE_MAX } from '../core/limits.ts';
import type { TopicRule } from '../core/topic.ts';
import type { Events } from '../engine/events.ts';
import type { Routes } from '../engine/handler-slots.ts';
import type { BodyStore } from '../ports/body-store.ts';
import type { EntryStore, UnreadEntry } from '../ports/entry-store.ts';
import { AUDIT_KIND } from './actions.ts';
import { removedBodyRef, isDamaged, type BodyRemover } from './body.ts';
import type { HandlerRecords } from './handler-records.ts';
import type { MissingHandlers } from './missing-handlers.ts';
import type { Pauses } from './pauses.ts';
import type { SpoolSource } from './source.ts';

// The names of bodies: the message's id and a random part, so that a ref shows whose it is.

/** A ref for a new body of this message; `random` has no dash in it. */
export function refOf(id: string, random: string): string {
  return `${id}-${random}`;
}

/** The id of the message a ref was made for. */
function idOfRef(ref: string): string {
  const at = ref.lastIndexOf('-');
  return at < 0 ? ref : ref.slice(0, at);
}

/** What the caretaker needs. */
interface CaretakerOptions {
  readonly entries: EntryStore;
  readonly bodies: BodyStore;
  readonly source: SpoolSource;
  readonly bodyRemover: BodyRemover;
  readonly routes: Routes;
  readonly events: Events;
  readonly orphanGraceMs: number;
  readonly unhandled: 'hold' | 'leave';
  readonly unserved: Pick<MissingHandlers, 'look'>;
  readonly handlerRecords: Pick<HandlerRecords, 'renew' | 'without'>;
  readonly pauses: Pick<Pauses, 'wasPaused'>;
  /** Reads the pauses again. */
  readonly refreshPauses: () => Promise<void>;
}

/** What one round did. */
export interface CleanupResult {
  /** Entries past their retention. */
  readonly forgotten: number;
  /** Bodies without entry. */
  readonly orphans: number;
  /** Messages without a handler. */
  readonly unhandled: number;
}

/**
 * A body must be without entry in two looks at least this far apart. Also in
 * docs/reference/stores/s3.md and test/spool/caretaker.test.ts.
 */
const ORPHAN_LOOKS_APART_MS: number = 10 * MINUTE_MS;
/**
 * With several processes: how long a topic is unclaimed before it is reported, in ms.
 * docs/reference/events.md promises two minutes, with `caretaker.every` of one.
 */
const REPORTED_AFTER_MS: number = MINUTE_MS;
/**
 * And held only after this long, also after the end of a pause. Also in the text of `unhandled` in
 * options.ts, docs/how-to/several-processes.md, docs/operations/a-message-is-stuck.md and
 * docs/operations/upgrade.md.
 */
const UNHANDLED_AFTER_MS: number = 5 * MINUTE_MS;
/** Messages of one topic that a round holds, about: a spool that stops waits for its round. */
const UNHANDLED_MAX = 10_000;
/** Active: left by a lost holder, of a topic that is no longer claimed. */
const CLAIMED_STATES = ['incoming', 'deferred', 'active'] as const;
/**
 * The newest audit records that are kept. Also in docs/reference/limits.md and
 * docs/reference/threats.md.
 */
const AUDIT_KEEP = 100_000;
/** Maximum number of candidates remembered between looks; the rest waits for a later round. */
const ORPHANS_MAX = 50_000;

/** Looks after a store. */
export class Caretaker {
  readonly #parts: CaretakerOptions;
  /** Bodies that had no entry when they were first looked at, and when that was. */
  readonly #candidates = new Map<string, Millis>();
  /** Entries that could not be read at the last look: each is reported once. */
  #damaged: ReadonlySet<string> = new Set();

  constructor(parts: CaretakerOptions) {
    this.#parts = parts;
  }

  /** One round of all duties. */
  async cleanUp(): Promise<CleanupResult> {
    const { source, events, entries } = this.#parts;
    await entries.expireLost?.(source.now());
    const forgotten = await this.#forget();
    await this.#parts.handlerRecords.renew();
    const unhandled = await this.#holdUnhandled();
    const orphans = await this.#collectOrphans();
    await this.#trimAudit();
    const at = source.now();
    if (forgotten + orphans > 0) events.emit({ at, kind: 'cleaned-up', forgotten, orphans });
    return { forgotten, orphans, unhandled };
  }

  async #forget(): Promise<number> {
    const { entries, source, bodyRemover } = this.#parts;
    let forgotten = 0;
    for (;;) {
      const { entries: page, corrupt } = await entries.list({
        states: ['archived'],
        dueBefore: source.now() + 1,
        order: 'dueAt',
        limit: PAGE_MAX,
      });
      // Whatever is asked for, a first page names all that cannot be read.
      this.#tellDamaged(corrupt);
      // Nothing to forget, nothing to write: an idle spool leaves its store alone.
      if (page.length === 0) return forgotten;
      const answers = await entries.commit(
        page.map(({ envelope, status }) => ({
          id: envelope.id,
          revision: status.revision,
          to: 'remove' as const,
          ...removedBodyRef(envelope),
        })),
      );
      let done = 0;
      for (const [at, { envelope }] of page.entries()) {
        if (answers[at] !== 'done') continue;
        done += 1;
        if (envelope.body.place === 'store') bodyRemover.add(envelope.body.ref, 'removed');
      }
      forgotten += done;
      // If nothing of a page could be removed, another process is at work: leave it.
      if (page.length < PAGE_MAX || done === 0) return forgotten;
    }
  }

  #tellDamaged(corrupt: readonly UnreadEntry[]): void {
    const { source, events } = this.#parts;
    const before = this.#damaged;
    const now = new Map(corrupt.map((damage) => [damage.id ?? damage.where, damage]));
    this.#damaged = new Set(now.keys());
    for (const [name, { where, reason, code = 'store.corrupt' }] of now) {
      if (before.has(name)) continue;
      const doing = `reading entry "${name}"`;
      const text = `cannot read entry "${name}" in ${where}: ${reason}`;
      const error = new RespoolError(code, `${text}; it is kept, check() names it`);
      events.emit({ at: source.now(), kind: 'trouble', doing, error });
    }
  }

  async #collectOrphans(): Promise<number> {
    const { bodies, source, orphanGraceMs } = this.#parts;
    const now = source.now();
    const seen = new Set<string>();
    const sure: string[] = [];
    for await (const { ref } of bodies.refs(now - orphanGraceMs)) {
      if (!(await isOrphan(this.#parts.entries, ref))) continue;
      seen.add(ref);
      const since = this.#candidates.get(ref);
      if (since === undefined) {
        if (this.#candidates.size < ORPHANS_MAX) this.#candidates.set(ref, now);
      } else if (now - since >= ORPHAN_LOOKS_APART_MS) sure.push(ref);
    }
    for (const ref of this.#candidates.keys()) if (!seen.has(ref)) this.#candidates.delete(ref);
    return this.#removeOrphans(sure);
  }

  async #removeOrphans(refs: readonly string[]): Promise<number> {
    let removed = 0;
    for (const ref of refs) {
      // Asked once more right before: what is referenced must never go.
      if (!(await isOrphan(this.#parts.entries, ref))) continue;
      await this.#parts.bodies.remove([ref]);
      this.#candidates.delete(ref);
      removed += 1;
    }
    return removed;
  }

  /**
   * With several processes an old one must not hold every new topic, nor what another one handles:
   * only what long had no taker, and has none in any process.
   */
  async #holdUnhandled(): Promise<number> {
    const { entries, routes, source, unhandled } = this.#parts;
    const isOurs = unhandled === 'hold' && entries.traits.processes === 'many';
    if (!isOurs || routes.of('delivery').length === 0) return 0;
    const topics = await entries.tally('topic', { states: CLAIMED_STATES });
    const unserved = topics.filter(({ key }) => !routes.serves('delivery', key));
    if (unserved.length === 0) return 0;
    const names = unserved.map(({ key }) => key);
    await this.#parts.unserved.look(names, source.now() - REPORTED_AFTER_MS);
    const dueBefore = source.now() - UNHANDLED_AFTER_MS;
    const served = routes.of('delivery').map(({ pattern }) => ({ pattern, take: false }));
    if (!(await this.#hasOverdue([...served, { pattern: '#', take: true }], dueBefore))) return 0;
    const lost = new Set(await this.#withoutTaker(names));
    let held = 0;
    for (const { key: topic, count } of unserved) {
      if (!lost.has(topic)) continue;
      // A list may have to pass over all that waits: worth a question first where that is much.
      const rules = [{ pattern: topic, take: true }];
      if (count > PAGE_MAX && !(await this.#hasOverdue(rules, dueBefore))) continue;
      held += await this.#holdTopic(topic, dueBefore);
    }
    return held;
  }

  /** Those of the topics that no process handles, and that are not and were not just paused. */
  async #withoutTaker(topics: readonly string[]): Promise<readonly string[]> {
    const { handlerRecords, pauses, refreshPauses, source } = this.#parts;
    await refreshPauses();
    const longAgo = source.now() - UNHANDLED_AFTER_MS;
    return handlerRecords.without(topics.filter((topic) => !pauses.wasPaused(topic, longAgo)));
  }

  /** Whether anything of these topics was due before; reads nothing of what is not. */
  async #hasOverdue(topics: readonly TopicRule[], dueBefore: Millis): Promise<boolean> {
    const { entries } = this.#parts;
    for (const lane of ['delivery', 'notice'] as const) {
      const dueAt = await entries.nextDueAt({ lane, states: CLAIMED_STATES, topics });
      if (dueAt !== null && dueAt < dueBefore) return true;
    }
    return false;
  }

  /** Holds what was due before of a topic; what is past the maximum is left to the next round. */
  async #holdTopic(topic: string, dueBefore: Millis): Promise<number> {
    const { entries, source } = this.#parts;
    const query = { states: CLAIMED_STATES, topic, dueBefore, limit: PAGE_MAX };
    let held = 0;
    let after: string | undefined;
    do {
      // A page may be short, or empty, and still have a next.
      const page = await entries.list({ ...query, ...(after === undefined ? {} : { after }) });
      // Asked again after the look: a clock set back in between would end leases that still run.
      const longAgo = source.now() - UNHANDLED_AFTER_MS;
      const overdue = page.entries.filter(({ status }) => (status.dueAt ?? 0) < longAgo);
      if (overdue.length > 0) held += await this.#hold(overdue);
      after = page.next;
    } while (after !== undefined && held < UNHANDLED_MAX);
    return held;
  }

  async #hold(page: readonly Entry[]): Promise<number> {
    const { entries, source, events } = this.#parts;
    const now = source.now();
    const answers = await entries.commit(
      page.map(({ envelope, status: { holder, claimedFrom: _from, ...status } }) => ({
        id: envelope.id,
        revision: status.revision,
        ...(holder === undefined ? {} : { holder }),
        to: {
          ...status,
          state: 'hold' as const,
          revision: status.revision + 1,
          dueAt: null,
          updatedAt: now,
          because: {
            code: 'handler.missing',
            text: `there is no handler for topic "${envelope.topic}"; register one, then release`,
            by: 'caretaker',
          },
        },
      })),
    );
    const held = page.filter((_, at) => answers[at] === 'done');
    for (const { envelope } of held) {
      const { id, topic } = envelope;
      events.emit({ at: now, kind: 'handler-missing', id, topic });
    }
    return held.length;
  }

  async #trimAudit(): Promise<void> {
    const { records } = this.#parts.entries;
    const first = (await records.read(AUDIT_KIND, 0, 1))[0]?.sequence;
    if (first === undefined) return;
    // Sequences grow by one: when one this far ahead exists, the oldest can go.
    const ahead = await records.read(AUDIT_KIND, first + AUDIT_KEEP - 1, 1_000);
    const last = ahead.at(-1)?.sequence;
    if (last !== undefined) await records.trim(AUDIT_KIND, last - AUDIT_KEEP);
  }
}

/** Whether no entry needs this body. */
export async function isOrphan(entries: EntryStore, ref: string): Promise<boolean> {
  try {
    const entry = await entries.get(idOfRef(ref));
    return entry === undefined || !isBodyOf(entry, ref);
  } catch (error) {
    // An entry in quarantine keeps its body: a person may still make a message of the two.
    if (isRespoolError(error, 'store.corrupt')) return false;
    throw error;
  }
}

/** Whether this body belongs to the entry, or may. */
function isBodyOf(entry: Entry, ref: string): boolean {
  const { body } = entry.envelope;
  // As with one in quarantine: what it does not name any more may be all that is left of it.
  if (isDamaged(entry.envelope)) return true;
  return body.place === 'store' && body.ref === ref;
}
