/**
 * alerts-service — evaluates the configured alerts beside a service, from its start to its stop.
 */

import os from 'node:os';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import type { ConfiguredSpool } from '../../../config/open/open-spool.ts';
import { durationMs } from '../../../core/duration.ts';
import { RespoolError } from '../../../core/errors.ts';
import type { ReplayRule, RuleTools } from '../../../dead-letters/rules/types.ts';
import { printCondition } from '../../../observe/alerts/condition.ts';
import { createAlerts } from '../../../observe/alerts/evaluate.ts';
import { createMeasures } from '../../../observe/alerts/measures.ts';
import { type Receivers, registerReceivers } from '../../../observe/alerts/receivers.ts';
import type { AlertActionCall, AlertOptions } from '../../../observe/alerts/types.ts';
import { internalsOf } from '../../../spool/internals.ts';
import type { Spool } from '../../../spool/spool.ts';
import { systemDice } from '../../../system/clock.ts';
import { randomName } from '../../../system/ids.ts';
import { withTimeout } from '../../../system/wait.ts';
import { createClosers } from '../../lifetime.ts';
import { byOf } from '../../session.ts';
import type { CommandContext } from '../../spec.ts';
import { replayNotifier } from '../dlq/replay/rules.ts';
import type { RelayService } from '../outbox/relay.ts';
import type { ConsumersService } from '../rabbit/consume.ts';
import type { ServeLog } from '../serve/serve-log.ts';
import { externalMeasuresOf, receiversOf } from './external-measures.ts';

/** Alerts that run. */
export interface AlertsService {
  /** Begins no more rounds; waits for the present one no longer than this. */
  stop(withinMs: number): Promise<void>;
}

/** Alerts before their spool is there. */
export interface PreparedAlerts {
  /** Registers who delivers notifications; before other routes. */
  readonly register: (spool: Spool) => void;
  readonly start: (running: RunningOptions) => AlertsService;
}

/** What runs beside the alerts. */
interface RunningOptions {
  readonly configured: ConfiguredSpool;
  readonly consumers: ConsumersService | undefined;
  readonly relay: RelayService | undefined;
}

/** What alerts are made of. */
interface AlertsSetup {
  readonly loaded: LoadedConfig;
  readonly log: ServeLog;
}

/** Makes the receivers; what they miss is said here. */
export function prepareAlerts(context: CommandContext, parts: AlertsSetup): PreparedAlerts {
  const receivers = receiversOf(parts.loaded.config.alerts, (level, text, notice) =>
    parts.log.say(level, text, { alert: notice }),
  );
  context.atEnd(() => receivers.close());
  return {
    register: (spool) => void registerReceivers(spool, receivers.byName),
    start: (running) => startAlerts(context, parts, receivers.byName, running),
  };
}

function startAlerts(
  context: CommandContext,
  { loaded, log }: AlertsSetup,
  receivers: Receivers,
  { configured, consumers, relay }: RunningOptions,
): AlertsService {
  const { spool, place } = configured;
  const { rules, every } = loaded.config.alerts;
  const { io } = context;
  const { clock } = io;
  const closers = createClosers();
  const stopping = new AbortController();
  const internals = internalsOf(spool);
  const measures = createMeasures({
    ...externalMeasuresOf({ loaded, place, atEnd: closers.atEnd }),
    ...(consumers === undefined ? {} : { consumers: () => consumers.each() }),
    ...(relay === undefined ? {} : { relay: () => stateOf(relay) }),
    spool: internals,
    clock,
    wanted: rules.map(({ when }) => when.measure),
  });
  let tools: Promise<RuleTools> | undefined;
  const makeTools = async (): Promise<RuleTools> => {
    const { contextOf } = await import('../dlq/replay/rules.ts');
    const { ruleToolsOf } = await import('../dlq/replay/rule-tools.ts');
    const { signal } = stopping;
    return ruleToolsOf(contextOf(context, loaded, spool), { signal, tell: replayNotifier(log) });
  };
  const alerts = createAlerts({
    rules,
    everyMs: durationMs(every, 'alerts.every'),
    clock,
    now: () => internals.now(),
    name: `${byOf(io)}/${randomName(systemDice)}`,
    records: internals.records,
    enqueue: (message) => spool.enqueue(message),
    measures,
    receivers,
    act: alertActions({
      spool,
      signal: stopping.signal,
      rules: loaded.config.deadLetters.rules,
      tools: () => (tools ??= makeTools()),
    }),
    tell: (event) => internals.emit(event),
    host: os.hostname(),
    hide: loaded.hide,
  });
  for (const { name, when, to } of rules) {
    log.say('info', `alerts ${to.join(', ')} by rule ${name}: ${printCondition(when)}`, {
      rule: name,
    });
  }
  alerts.start();
  const stop = async (withinMs: number): Promise<void> => {
    stopping.abort();
    await withTimeout(clock, withinMs, alerts.stop(), () => undefined);
    measures.close();
    await closers.close();
  };
  let stopped: Promise<void> | undefined;
  return { stop: (withinMs) => (stopped ??= stop(withinMs)) };
}

function stateOf(relay: RelayService): 'up' | 'down' {
  const { state, downSince } = relay.health();
  return state === 'sending' && downSince === undefined ? 'up' : 'down';
}

// What rules of the alerts do besides notifying, in the name of `alert:<rule>`.
//
// Promise: everything is in the audit record; a pause made by someone else stays.

/** What actions are done with. */
interface AlertActionOptions {
  readonly spool: Spool;
  readonly signal: AbortSignal;
  /** Of `deadLetters.rules`. */
  readonly rules: readonly ReplayRule[];
  /** Made when the first replay is asked for. */
  readonly tools: () => Promise<RuleTools>;
}

/** Does what rules want done. */
function alertActions(parts: AlertActionOptions): AlertOptions['act'] {
  return (action, by) => doOne(parts, action, by);
}

async function doOne(parts: AlertActionOptions, call: AlertActionCall, by: string): Promise<void> {
  const operator = parts.spool.operator({ by });
  switch (call.kind) {
    case 'pause': {
      const isPaused = (await operator.pauses()).some(({ topic }) => topic === call.topic);
      if (!isPaused) await operator.pause(call.topic);
      return;
    }
    case 'resume': {
      const pauses = await operator.pauses();
      const isOurs = pauses.some(
        (pause) => pause.topic === call.topic && call.madeBy.includes(pause.by),
      );
      if (isOurs) await operator.resume(call.topic);
      return;
    }
    case 'hold': {
      const action = { kind: 'hold', reason: `held by ${by}` } as const;
      const bulk = await operator.prepare(action, { topic: call.topic });
      if (bulk.count === 0) return;
      for await (const _ of bulk.run({ signal: parts.signal }));
      return;
    }
    default:
      await operator.recordAction('alert.replay', { rule: call.rule });
      await replay(parts, call.rule);
  }
}

async function replay({ rules, tools }: AlertActionOptions, name: string): Promise<void> {
  const { runRulesOnce } = await import('../../../dead-letters/rules/run.ts');
  const chosen = rules.filter((rule) => rule.name === name);
  const [news] = await runRulesOnce(chosen, await tools());
  // Another process has it in hand: it is replayed anyway.
  if (news === undefined || (news.result !== 'failed' && news.result !== 'stopped')) return;
  throw new RespoolError(
    'move.refused',
    `the rule "${name}" was ${news.result}: ${news.because ?? 'it did not say why'}`,
  );
}
