/**
 * observer — carries out inserts, claims, commits, questions for the next due time and removals of
 * bodies at the data, and checks each. Reads, flushes and puts of bodies go past it (stores.ts);
 * what expireLost ends is not checked. Audit records and pauses are noted in the ledger before they
 * are written.
 */

import type { Millis } from '../../core/duration.ts';
import type { Entry } from '../../core/entry.ts';
import type { Change, ClaimFilter, ClaimRequest, Duplicate } from '../../ports/entry-store.ts';
import { checkBodyRemoval } from './checks/world.ts';
import type { CheckScene } from './checks/check-scene.ts';
import { type Asker, checkClaim, checkCommit, checkInsert, checkNextDue } from './checks/writes.ts';
import type { Write } from './disk.ts';
import type { SimProcess } from './process.ts';

/** Watches what processes do to the data. */
export class Observer {
  readonly scene: CheckScene;
  /** Whether the process of a holder is gone, as a lifetime lock would show. */
  readonly #isGone: (holder: string) => boolean;
  /** Called for every process that wrote something. */
  readonly #onWriteBy: (process: SimProcess) => void;
  #writes: Write[] = [];

  constructor(
    scene: CheckScene,
    hooks: {
      readonly isGone: (holder: string) => boolean;
      readonly onWriteBy: (process: SimProcess) => void;
    },
  ) {
    this.scene = scene;
    this.#isGone = hooks.isGone;
    this.#onWriteBy = hooks.onWriteBy;
    scene.disk.onWrite = (write) => this.#writes.push(write);
  }

  insert(asker: Asker, entries: readonly Entry[]): readonly ('stored' | Duplicate)[] {
    const { disk } = this.scene;
    const { answer, writes } = this.#captured(asker, () => disk.insert(entries));
    checkInsert(this.scene, asker, entries, answer, writes);
    return answer;
  }

  claim(asker: Asker, request: ClaimRequest): readonly Entry[] {
    const { disk } = this.scene;
    const { answer, writes } = this.#captured(asker, () => disk.claim(request));
    checkClaim(this.scene, asker, request, answer, writes);
    return answer;
  }

  commit(asker: Asker, changes: readonly Change[]): readonly ('done' | 'stale')[] {
    const { disk } = this.scene;
    const { answer, writes } = this.#captured(asker, () => disk.commit(changes));
    checkCommit(this.scene, asker, changes, answer, writes);
    return answer;
  }

  expireLost(asker: Asker, now: Millis): number {
    const { disk } = this.scene;
    return this.#captured(asker, () => disk.expireLost(now, this.#isGone)).answer;
  }

  nextDueAt(filter: ClaimFilter): Millis | null {
    const answer = this.scene.disk.nextDueAt(filter);
    checkNextDue(this.scene, filter, answer);
    return answer;
  }

  /** An audit record is about to be durable. */
  audited({ process }: Asker, record: unknown): void {
    const {
      action,
      ids = [],
      details = {},
    } = (record ?? {}) as {
      readonly action: string;
      readonly ids?: readonly string[];
      readonly details?: Readonly<Record<string, unknown>>;
    };
    const { ledger } = this.scene;
    for (const id of ids) {
      ledger.audited(id, { action, process, details });
      // A handler of the moment is judged by the default policy, not by that of its topic.
      const history = action === 'process' ? ledger.histories.get(id) : undefined;
      if (history !== undefined) history.grants += 1;
    }
  }

  paused({ process }: Asker, pattern: string): void {
    const { ledger, timeline } = this.scene;
    ledger.pausedSinceMs.set(pattern, timeline.nowMs);
    ledger.everPaused.add(pattern);
    this.#onWriteBy(process);
  }

  resumed({ process }: Asker, pattern: string): void {
    this.scene.ledger.pausedSinceMs.delete(pattern);
    this.#onWriteBy(process);
  }

  removeBodies(refs: readonly string[]): void {
    for (const ref of refs) checkBodyRemoval(this.scene, ref);
    this.scene.bodyDisk.remove(refs);
  }

  #captured<T>({ process }: Asker, run: () => T): { answer: T; writes: readonly Write[] } {
    this.#writes = [];
    const answer = run();
    const writes = this.#writes;
    this.#writes = [];
    if (writes.length > 0) this.#onWriteBy(process);
    return { answer, writes };
  }
}
