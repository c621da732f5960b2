/** alerts — what a configuration says of alerts. Checked here; nothing is connected. */

import type { Duration } from '../core/duration.ts';
import type { ExecOptions, HttpOptions } from '../deliver/index.ts';

/** When somebody is told, and how. */
export interface AlertsConfig {
  /** How often the rules are looked at, 1s to 1d; default 15s. */
  readonly every?: Duration;
  /** Who is told, by name. */
  readonly to?: Readonly<Record<string, ReceiverConfig>>;
  readonly rules?: readonly AlertRuleConfig[];
}

/** Who is told. */
export type ReceiverConfig =
  | { readonly http: HttpOptions }
  | { readonly exec: readonly string[] | ({ readonly command: readonly string[] } & ExecOptions) }
  | { readonly log: 'error' | 'warn' | 'info' };

/** When to tell, whom, and what else to do. */
export interface AlertRuleConfig {
  /** 1 to 64 of letters, digits, . _ - */
  readonly name: string;
  /** Such as `bounce rate > 5 % for 5m`, `oldest deferred > 2h`, `dead queue > 0`. */
  readonly when: string;
  /** Names of receivers; default all. */
  readonly to?: string | readonly string[];
  /** What is done besides, when it fires. */
  readonly then?: AlertActionConfig | readonly AlertActionConfig[];
}

/** What a rule does besides telling. */
export type AlertActionConfig =
  /** Pauses these topics; resumed when the rule is resolved, unless `until: 'operator'`. */
  | { readonly pause: string; readonly until?: 'resolved' | 'operator' }
  /** Holds what waits of these topics. */
  | { readonly hold: string }
  /** Has a rule of `deadLetters.rules` replay when this rule is resolved. */
  | { readonly replay: string };

/** What holds for alerts. */
export interface EffectiveAlerts {
  readonly every: Duration;
  readonly to: Readonly<Record<string, ReceiverConfig>>;
  readonly rules: readonly AlertRuleConfig[];
}

/** Checks what a configuration says of alerts, and fills in the defaults. */
export function alertsOf(given: unknown): EffectiveAlerts {
  const { every = '15s', to = {}, rules = [] } = (given ?? {}) as AlertsConfig;
  return { every, to, rules };
}
