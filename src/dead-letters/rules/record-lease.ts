/**
 * record-lease — the state of one rule on record, and the right to run it: one process at a time.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import { RecordLease } from '../../spool/record-lease.ts';
import type { RuleState } from './types.ts';

/** The kind of record that the state of rules is. */
export const RULES_KIND = 'dlq.rules';

/** How long a runner is believed in without a sign of life. */
export const RULE_LEASE_MS: number = 60 * SECOND_MS;
const BEAT_MS: number = 10 * SECOND_MS;

/** The state of a rule; nothing is known of one that never ran. */
export async function stateOf(records: RecordStore, rule: string): Promise<RuleState> {
  const found = await records.get(RULES_KIND, rule);
  return found?.value ?? {};
}

/** Who runs it now; undefined: nobody. */
export function runnerOf({ runner }: RuleState, now: number): RuleState['runner'] {
  return runner !== undefined && runner.until > now ? runner : undefined;
}

export interface RuleLeaseParts {
  readonly records: RecordStore;
  readonly rule: string;
  readonly runner: string;
  readonly clock: Clock;
}

/** Takes the right to run a rule; undefined: another process runs it, or was quicker. */
export function takeRule(parts: RuleLeaseParts): Promise<RecordLease<RuleState> | undefined> {
  const { records, rule, runner: name, clock } = parts;
  return RecordLease.take<RuleState>({
    records,
    kind: RULES_KIND,
    key: rule,
    what: `the rule "${rule}"`,
    name,
    clock,
    leaseMs: RULE_LEASE_MS,
    beatMs: BEAT_MS,
    marginMs: BEAT_MS,
    now: () => clock.now(),
    read: (record) => record?.value ?? {},
    holderOf: ({ runner }) => runner?.name,
    isHeld: (state, now) => runnerOf(state, now) !== undefined,
    hold: (state, until) => ({ ...state, runner: { name, until } }),
    free: (state) => {
      const { runner: _, ...rest } = state;
      return rest;
    },
    lostError: () => goneError(rule),
  });
}

function goneError(rule: string): RespoolError {
  return new RespoolError(
    'move.refused',
    `cannot continue with the rule "${rule}": there was no sign of life for too long, and ` +
      `another ` +
      'process has taken it over; nothing is to be done',
  );
}
