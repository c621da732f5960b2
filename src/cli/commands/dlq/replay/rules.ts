/**
 * rules — the rules of the configuration: what came of them; running them until a signal, or each
 * once; and running them beside a service (`startRules`), with a line for each round.
 */

import { logLevelOf, createServeLog, type ServeLog } from '../../serve/serve-log.ts';
import { listenForTheEnd } from '../../../lifetime.ts';
import type { LoadedConfig } from '../../../../config/load/load-config.ts';
import {
  runnerOf,
  stateOf,
  type ReplayRule,
  type RuleState,
  type RuleNews,
} from '../../../../dead-letters/rules/types.ts';
import { runRules, runRulesOnce } from '../../../../dead-letters/rules/run.ts';
import { textOf } from '../../../../core/errors.ts';
import { atLetters, type LettersContext } from '../letter-places.ts';
import { CommandError, EXIT, type ExitCode } from '../../../exit-codes.ts';
import { numberText, safe } from '../../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../../spec.ts';
import { type Column, tableOf } from '../../../ui/table.ts';
import { relative } from '../../../ui/times.ts';
import { ruleToolsOf } from './rule-tools.ts';
import type { Spool } from '../../../../spool/spool.ts';
import { withTimeout } from '../../../../system/wait.ts';
import { byOf, type Session } from '../../../session.ts';

const COLUMNS: readonly Column[] = [
  { head: 'rule' },
  { head: 'when', isFlexible: true },
  { head: 'last', isOptional: true },
  { head: 'result' },
  { head: 'sent', align: 'right', isOptional: true },
  { head: 'next', isOptional: true },
  { head: 'why', isFlexible: true, isReason: true },
];

/** The state of rules is kept in the store, which is made where there is none. */
const STATE_IS_KEPT = { mayCreate: true };

/** Every rule, with what came of its last round. */
export async function listRules(commandContext: CommandContext): Promise<ExitCode> {
  const context = atLetters(commandContext, STATE_IS_KEPT);
  const { io, out } = context;
  const rules = rulesOf(await context.config());
  const { records } = (await context.session()).operator;
  const now = io.clock.now();
  const rows: string[][] = [];
  for (const rule of rules) {
    const state = await stateOf(records, rule.name);
    if (out.json) await out.object({ ...rule, state });
    else rows.push(rowOf(rule, state, now));
  }
  if (!out.json) await out.line(tableOf(out, COLUMNS, rows));
  return EXIT.done;
}

/** Runs them until a signal, or each once. */
export async function runRulesHere(commandContext: CommandContext): Promise<ExitCode> {
  const context = atLetters(commandContext, STATE_IS_KEPT);
  const rules = rulesOf(await context.config());
  return context.options.flag('once') ? runOnce(context, rules) : runOn(context, rules);
}

function rulesOf({ config }: LoadedConfig): readonly ReplayRule[] {
  const { rules } = config.deadLetters;
  if (rules.length > 0) return rules;
  throw new CommandError(
    'usage.invalid',
    'there are no rules in the configuration: write some as "deadLetters.rules", such as ' +
      "{ name: network, when: { category: network, queue: '*.dlq' } }",
  );
}

async function runOnce(context: LettersContext, rules: readonly ReplayRule[]): Promise<ExitCode> {
  const { io, out } = context;
  const stop = new AbortController();
  context.atEnd(io.onSignal(() => stop.abort()));
  const tools = await ruleToolsOf(context, { signal: stop.signal, tell: () => undefined });
  const all = await runRulesOnce(rules, tools);
  let code: ExitCode = EXIT.done;
  for (const [at, news] of all.entries()) {
    const rule = rules[at]?.name ?? '';
    if (news === undefined) {
      if (out.json) await out.object({ rule, result: 'taken' });
      else await out.line(`${safe(rule)}: another process has it in hand`);
      continue;
    }
    const { result, again = 0 } = news;
    if (result === 'stopped' || result === 'failed' || again > 0) code = EXIT.refused;
    if (out.json) await out.object(news);
    else await out.line(replayNewsText(news));
  }
  return code;
}

async function runOn(context: LettersContext, rules: readonly ReplayRule[]): Promise<ExitCode> {
  const { io, out } = context;
  const ending = listenForTheEnd(context);
  const { config, hide } = await context.config();
  const { format, level, redact } = config.log;
  const log = createServeLog(io, out, { format, level: logLevelOf(context, level), hide, redact });
  const stop = new AbortController();
  const tools = await ruleToolsOf(context, { signal: stop.signal, tell: replayNotifier(log) });
  for (const { name, every } of rules) {
    log.say('info', `rule ${name} looks every ${String(every)}`, { rule: name });
  }
  const running = runRules(rules, tools);
  const end = await ending;
  if (end.kind === 'signal') log.say('info', `stopping after ${end.signal}`);
  else log.say('error', `stopping after an uncaught error: ${textOf(end.error)}`);
  stop.abort();
  await running;
  log.say('info', 'stopped');
  return end.kind === 'signal' ? EXIT.done : EXIT.refused;
}

function rowOf({ name, when }: ReplayRule, state: RuleState, now: number): string[] {
  const { lastAt, result = '', sent, nextAt, because = '' } = state;
  const runner = runnerOf(state, now);
  const next = nextAt === undefined ? 'at once' : relative(nextAt, now);
  return [
    safe(name),
    safe(JSON.stringify(when)),
    lastAt === undefined ? 'never' : relative(lastAt, now),
    result,
    sent === undefined ? '' : numberText(sent),
    runner === undefined ? next : 'now',
    safe(runner === undefined ? because : `run by ${runner.name}`),
  ];
}

// Beside a service, from its start to its stop.

/** Rules that run. */
export interface RulesService {
  /** Pauses what is on its way, and ends; waits for it no longer than this. */
  stop(withinMs: number): Promise<void>;
}

interface RulesOptions {
  readonly loaded: LoadedConfig;
  readonly spool: Spool;
  readonly log: ServeLog;
}

/** Starts the rules of the configuration over the spool of a service. */
export async function startRules(
  context: CommandContext,
  parts: RulesOptions,
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
    config: () => Promise.resolve(loaded),
    session: () => Promise.resolve(session),
  };
}

// What rules report about their rounds, in one line each.

/** A line for each round; on level `debug` if nothing came of it. */
export function replayNotifier(log: ServeLog): (news: RuleNews) => void {
  return (news) => {
    const isBad = news.result === 'stopped' || news.result === 'failed';
    const isQuiet = news.result === 'quiet';
    log.say(isBad ? 'warn' : isQuiet ? 'debug' : 'info', `rule ${replayNewsText(news)}`, news);
  };
}

/** One round in a few words. */
function replayNewsText({ rule, result, because, sent, replays, at, nextAt }: RuleNews): string {
  const parts = [`${safe(rule)}: ${result}`];
  if (replays.length > 0) parts.push(`sent ${numberText(sent)} by ${replays.join(', ')}`);
  if (because !== undefined) parts.push(safe(because));
  parts.push(`next ${relative(nextAt, at)}`);
  return parts.join(', ');
}
