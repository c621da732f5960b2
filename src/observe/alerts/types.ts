/** types — the types of alert rules and of what evaluates them. */

import type { Millis } from '../../core/duration.ts';
import type { SpoolEvent } from '../../core/event.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Handler } from '../../ports/handler.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import type { Message } from '../../spool/message.ts';
import type { Condition } from './condition.ts';
import type { Measures } from './measures.ts';

/** A rule that is checked. */
export interface AlertRule {
  /** 1 to 64 of letters, digits, . _ - */
  readonly name: string;
  readonly when: Condition;
  /** Names of receivers. */
  readonly to: readonly string[];
  readonly actions: readonly AlertAction[];
}

/** What a rule does besides notifying. */
export type AlertAction =
  | { readonly kind: 'pause'; readonly topic: string; readonly until: 'resolved' | 'operator' }
  | { readonly kind: 'hold'; readonly topic: string }
  | { readonly kind: 'replay'; readonly rule: string };

/** One thing to do for a rule. */
export type AlertActionCall =
  | { readonly kind: 'pause' | 'hold'; readonly topic: string }
  /** Only where one of these has paused it: `alert:<rule>`. */
  | { readonly kind: 'resume'; readonly topic: string; readonly madeBy: readonly string[] }
  | { readonly kind: 'replay'; readonly rule: string };

/** What alerts work with. */
export interface AlertOptions {
  readonly rules: readonly AlertRule[];
  /** Between two rounds. */
  readonly everyMs: number;
  readonly clock: Clock;
  /** The store's clock. */
  readonly now: () => Millis;
  /** Tells this process from others on the store. */
  readonly name: string;
  readonly records: RecordStore;
  readonly enqueue: (message: Message) => Promise<unknown>;
  readonly measures: Measures;
  /** The receivers by name. */
  readonly receivers: ReadonlyMap<string, Handler>;
  /** Runs an action as `alert:<rule>`; what it throws is reported, and retried. */
  readonly act: (action: AlertActionCall, by: string) => Promise<void>;
  /** Receives the events. */
  readonly tell: (event: SpoolEvent) => void;
  readonly host?: string | undefined;
  /** Cuts secrets out of a text. */
  readonly hide?: (text: string) => string;
}
