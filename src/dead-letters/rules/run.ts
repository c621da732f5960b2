/**
 * run — rules at their own pace, until a signal. Each rule goes alone: one that waits or fails does
 * not hold up the others, and of several processes one runs it.
 */

import { durationMs, HOUR_MS, MINUTE_MS } from '../../core/duration.ts';
import { textOf } from '../../core/errors.ts';
import { backoffMs, sleep } from '../../system/wait.ts';
import {
  runnerOf,
  stateOf,
  takeRule,
  type ReplayRule,
  type RuleNews,
  type RuleState,
  type RuleTools,
} from './types.ts';
import { byOfRule, runRound } from './round.ts';

/** A rule that was stopped waits for twice as long each time, but not longer than this. */
const RULE_PAUSE_MAX_MS: number = HOUR_MS;
/** A rule that another process runs is looked at again after this, at the latest. */
const LOOK_AGAIN_MS: number = MINUTE_MS;

/** Runs the rules until the signal. */
export async function runRules(rules: readonly ReplayRule[], tools: RuleTools): Promise<void> {
  await Promise.all(rules.map((rule) => liveOf(rule, tools)));
}

/** One round of each rule, due or not; undefined: another process has it in hand. */
export async function runRulesOnce(
  rules: readonly ReplayRule[],
  tools: RuleTools,
): Promise<readonly (RuleNews | undefined)[]> {
  // One whose state cannot be written does not take the others with it.
  const roundOrWhy = (rule: ReplayRule) =>
    roundOf(rule, tools).catch((error: unknown) => failedRound(rule, tools, error));
  return Promise.all(rules.map(roundOrWhy));
}

async function liveOf(rule: ReplayRule, tools: RuleTools): Promise<void> {
  const { clock, signal } = tools;
  while (!signal.aborted) {
    try {
      const state = await stateOf(tools.operator(byOfRule(rule)).records, rule.name);
      const waitMs = waitOf(state, tools);
      if (waitMs > 0) await sleep(clock, waitMs, signal);
      else if ((await roundOf(rule, tools)) === undefined) {
        await sleep(clock, LOOK_AGAIN_MS, signal);
      }
    } catch (error) {
      if (signal.aborted) return;
      const { at, nextAt } = failedRound(rule, tools, error);
      await sleep(clock, nextAt - at, signal);
    }
  }
}

/** The state itself cannot be read or written: said, and tried again. */
function failedRound({ name, every }: ReplayRule, tools: RuleTools, error: unknown): RuleNews {
  const at = tools.clock.now();
  const nextAt = at + durationMs(every, 'every');
  const because = textOf(error);
  const news = { rule: name, at, result: 'failed', because, replays: [], sent: 0, nextAt } as const;
  tools.tell(news);
  return news;
}

function waitOf(state: RuleState, { clock, runner }: RuleTools): number {
  const now = clock.now();
  const other = runnerOf(state, now);
  if (other !== undefined && other.name !== runner)
    return Math.min(LOOK_AGAIN_MS, other.until - now);
  return (state.nextAt ?? 0) - now;
}

async function roundOf(rule: ReplayRule, tools: RuleTools): Promise<RuleNews | undefined> {
  const { clock, runner } = tools;
  const { records } = tools.operator(byOfRule(rule));
  const lease = await takeRule({ records, rule: rule.name, runner, clock });
  if (lease === undefined) return undefined;
  const round = await runRound(rule, tools, lease);
  const at = clock.now();
  const { result, because, replays, known, sent, again, unsure } = round;
  const { isInterrupted, wasInterrupted } = round;
  const hasFailed = result === 'stopped' || result === 'failed';
  const before = lease.before.failures ?? 0;
  // A destination that is not well says nothing about whether it would work again.
  const failures = hasFailed ? before + 1 : result === 'waiting' ? before : 0;
  const nextAt = isInterrupted ? at : at + pauseOf(rule, hasFailed ? failures : 0);
  await lease.release((state) => ({
    ...state,
    lastAt: at,
    result,
    because,
    nextAt,
    failures,
    replays: known,
    sent,
    unsure,
    isInterrupted: isInterrupted || wasInterrupted,
  }));
  const failedAgain = again === 0 ? {} : { again };
  const news = { rule: rule.name, at, result, replays, sent, ...failedAgain, nextAt };
  const whole: RuleNews = because === undefined ? news : { ...news, because };
  tools.tell(whole);
  return whole;
}

/** The time until the next round, after this many failures in a row. */
export function pauseOf({ every }: Pick<ReplayRule, 'every'>, failures: number): number {
  const everyMs = durationMs(every, 'every');
  const maxMs = Math.max(everyMs, RULE_PAUSE_MAX_MS);
  return backoffMs({ firstMs: everyMs, maxMs }, failures);
}
