/** source-parts — what a spool source is made of; given by the runtime. */

import type { Retention } from '../core/next-status.ts';
import type { Events } from '../engine/events.ts';
import type { BodyStore, SettledAs } from '../ports/body-store.ts';
import type { Clock } from '../ports/clock.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { Chain } from './chain.ts';
import type { Reaper } from './reaper.ts';
import type { StoreClock } from './store-clock.ts';

/** What a spool source is made of. */
export interface SourceParts {
  readonly entries: EntryStore;
  readonly bodies: BodyStore;
  readonly chain: Chain;
  readonly reaper: Reaper;
  readonly events: Events;
  readonly clock: Clock;
  readonly storeClock: StoreClock;
  readonly leaseMs: number;
  readonly retention: Retention;
  readonly settlesDurably: boolean;
  /** Even when nothing calls, the store is looked at this often. */
  readonly pollMs: number;
  /** Whether a bounce handler fits the topic. */
  announces(topic: string): boolean;
  /** Puts on record that a message which had ended came back and is ended again. */
  recordSettledAgain(id: string, settledAs: SettledAs): Promise<void>;
  onClockJump(byMs: number): void;
}
