/** rules-service — the rules of the configuration beside a service, from its start to its stop. */

import type { LoadedConfig } from '../../../../config/load/load-config.ts';
import { runRules } from '../../../../dead-letters/rules/run.ts';
import type { RuleNews } from '../../../../dead-letters/rules/types.ts';
import { numberText, safe } from '../../../../observe/logs/safe-text.ts';
import type { Spool } from '../../../../spool/spool.ts';
import { withTimeout } from '../../../../system/wait.ts';
import { byOf, type Session } from '../../../session.ts';
import type { CommandContext } from '../../../spec.ts';
import { relative } from '../../../ui/times.ts';
import type { ServeLog } from '../../serve/serve-log.ts';
import type { LettersContext } from '../letter-places.ts';
import { ruleToolsOf } from './rule-tools.ts';

/** Rules that run. */
export interface RulesService {
  /** Pauses what is on its way, and ends; waits for it no longer than this. */
  stop(withinMs: number): Promise<void>;
}

interface RulesParts {
  readonly loaded: LoadedConfig;
  readonly spool: Spool;
  readonly log: ServeLog;
}

/** Starts the rules of the configuration over the spool of a service. */
export async function startRules(
  context: CommandContext,
  parts: RulesParts,
): Promise<RulesService> {
  const { loaded, spool, log } = parts;
  const { rules } = loaded.config.deadLetters;
  const stop = new AbortController();
  const tools = await ruleToolsOf(contextOf(context, loaded, spool), {
    signal: stop.signal,
    tell: replayNotifier(log),
  });
  for (const { name, every } of rules) {
    log.say('info', `replays by rule ${name}, every ${String(every)}`, { rule: name });
  }
  const running = runRules(rules, tools);
  return {
    stop: async (withinMs) => {
      stop.abort();
      await withTimeout(context.io.clock, withinMs, running, () => undefined);
    },
  };
}

/** The context of a service for what works on dead letters. */
export function contextOf(
  context: CommandContext,
  loaded: LoadedConfig,
  spool: Spool,
): LettersContext {
  const as: Session['as'] = (by) => spool.operator({ by });
  const isSealed = loaded.config.seal !== undefined;
  const session: Session = { operator: as(byOf(context.io)), as, url: undefined, isSealed };
  return {
    ...context,
    broker: undefined,
    loaded: () => Promise.resolve(loaded),
    session: () => Promise.resolve(session),
  };
}

// What rules tell of their rounds, in a line.

/** A line for each round that came to something. */
export function replayNotifier(log: ServeLog): (news: RuleNews) => void {
  return (news) => {
    const isBad = news.result === 'stopped' || news.result === 'failed';
    const isQuiet = news.result === 'quiet';
    log.say(isBad ? 'warn' : isQuiet ? 'debug' : 'info', `rule ${replayNewsText(news)}`, news);
  };
}

/** One round in a few words. */
export function replayNewsText({
  rule,
  result,
  because,
  sent,
  replays,
  at,
  nextAt,
}: RuleNews): string {
  const parts = [`${safe(rule)}: ${result}`];
  if (replays.length > 0) parts.push(`sent ${numberText(sent)} by ${replays.join(', ')}`);
  if (because !== undefined) parts.push(safe(because));
  parts.push(`next ${relative(nextAt, at)}`);
  return parts.join(', ');
}
