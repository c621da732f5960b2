/** client-stats — the spool in numbers, as a service answers. */

import type { Flow, Spread, StateStats, Stats } from '../../operator/operator.ts';
import type { Forecast } from '../../core/forecast.ts';
import type { EngineLoad } from '../../engine/load.ts';
import { fields, flag, type Form, list, number, optional, orNull, pause, yes } from './answers.ts';

const stateStats = fields<StateStats>({
  count: number,
  oldestAt: orNull(number),
  approximate: optional(yes),
});
const spread = fields<Spread>({ p50: number, p95: number, p99: number, max: number });
const flow = fields<Flow>({
  windowMs: number,
  accepted: number,
  delivered: number,
  deferred: number,
  bounced: number,
  held: number,
  tookMs: orNull(spread),
  ageMs: orNull(spread),
});
const forecast = fields<Forecast>({
  backlog: number,
  inPerSecond: number,
  outPerSecond: number,
  drainsInMs: orNull(number),
  fullInMs: orNull(number),
});
const load = fields<EngineLoad>({
  isRunning: flag,
  concurrency: number,
  running: number,
  waiting: number,
  settling: number,
  settled: number,
});

/** The spool in numbers. */
export const stats: Form<Stats> = fields<Stats>({
  at: number,
  states: fields<Stats['states']>({
    incoming: stateStats,
    active: stateStats,
    deferred: stateStats,
    hold: stateStats,
    bounce: stateStats,
    archived: stateStats,
  }),
  nextDueAt: orNull(number),
  paused: list(pause),
  load: optional(load),
  flow: optional(flow),
  forecast: optional(forecast),
});
