/** stats — the spool in numbers, once or repeatedly. */

import type { Operator, Throughput, Spread, Stats } from '../../../spool/operator/operator.ts';
import { SECOND_MS } from '../../../core/duration.ts';
import { RATE_WINDOW_MIN_MS, type Forecast } from '../../../core/forecast.ts';
import { STATES } from '../../../core/state.ts';
import { sleep } from '../../../system/wait.ts';
import type { Io, Out } from '../../ui/output.ts';
import { STATE_COLUMN } from '../../ui/message-view.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { CommandSpec } from '../../spec.ts';
import { type Column, tableOf } from '../../ui/table.ts';
import { relative, span } from '../../ui/times.ts';

/**
 * A service counts every 5 seconds; polling more often would only repeat its numbers. Also in the
 * text of `--watch`.
 */
const REDRAWN_EVERY_MS: number = 5 * SECOND_MS;
/** To the upper left corner, and everything below it away. */
const CLEAR = '\u001b[H\u001b[J';

const COLUMNS: readonly Column[] = [
  STATE_COLUMN,
  { head: 'messages', align: 'right' },
  { head: 'oldest' },
];

/** `respool stats` */
export const statsCommand: CommandSpec = {
  name: 'stats',
  summary: 'show counts, rates and the forecast',
  group: 'Inspect',
  options: [{ flags: '--watch', description: 'repeat every 5 seconds, until Ctrl-C' }],
  examples: [
    { line: 'respool stats', does: 'how many, since when, what is paused' },
    { line: 'respool stats --watch --json', does: 'one object every 5 seconds' },
  ],
  prefersService: true,
  role: 'read',
  run: async ({ session, io, options, out }) => {
    const { operator } = await session();
    if (options.flag('watch')) await watch(operator, io, out);
    else await print(out, await operator.stats());
    return undefined;
  },
};

async function watch(operator: Operator, io: Io, out: Out): Promise<void> {
  const redraws = !out.json && io.isTTY('stdout');
  const over = new AbortController();
  const off = io.onSignal(() => over.abort());
  try {
    while (!over.signal.aborted) {
      await print(out, await operator.stats(), redraws ? CLEAR : '');
      await sleep(io.clock, REDRAWN_EVERY_MS, over.signal);
    }
  } finally {
    off();
  }
}

async function print(out: Out, stats: Stats, before = ''): Promise<void> {
  if (out.json) await out.object(stats);
  else await out.write(`${before}${await textOfStats(out, stats)}\n`);
}

async function textOfStats(out: Out, stats: Stats): Promise<string> {
  const { at, states, nextDueAt, paused, load, flow, forecast } = stats;
  const rows = STATES.map((state) => {
    const { count, oldestAt, approximate } = states[state];
    return [
      state,
      `${approximate === true ? 'about ' : ''}${numberText(count)}`,
      oldestAt === null ? '' : relative(oldestAt, at),
    ];
  });
  const lines = [tableOf(out, COLUMNS, rows), ''];
  lines.push(`next due  ${nextDueAt === null ? 'nothing is waiting' : relative(nextDueAt, at)}`);
  if (paused.length > 0) {
    const patterns = paused.map(
      ({ topic, by, at: since }) =>
        `${topic === '#' ? 'everything' : safe(topic)} (by ${safe(by)}, ${relative(since, at)})`,
    );
    lines.push(`${out.style('yellow', 'paused')}    ${patterns.join(', ')}`);
  }
  if (load !== undefined) {
    lines.push(
      `running   ${numberText(load.running)} of ${numberText(load.concurrency)}, ` +
        `waiting ${numberText(load.waiting)}, settled ${numberText(load.settled)} since the start`,
    );
  }
  if (flow !== undefined) lines.push(...flowLines(flow));
  if (forecast !== undefined) lines.push(forecastLine(forecast, flow?.windowMs));
  return lines.join('\n');
}

function forecastLine(forecast: Forecast, windowMs = 0): string {
  const { backlog, drainsInMs, fullInMs, ...rates } = forecast;
  const [into, out] = [rates.inPerSecond, rates.outPerSecond].map(rateText);
  const never =
    windowMs < RATE_WINDOW_MIN_MS ? 'waiting; too early for a forecast' : 'not draining';
  const ends = drainsInMs === null ? never : `drained in ${span(drainsInMs)}`;
  const drains = backlog === 0 ? 'nothing is waiting' : `${numberText(backlog)} ${ends}`;
  const full = fullInMs === null ? '' : `, the disk is full in ${span(fullInMs)}`;
  return `forecast  ${drains} (${into}/s in, ${out}/s out)${full}`;
}

function rateText(perSecond: number): string {
  return String(Math.round(perSecond * 100) / 100);
}

function flowLines(flow: Throughput): string[] {
  const { accepted, delivered, deferred, bounced, held } = flow;
  const lines = [
    `in the last ${span(flow.windowMs)}: accepted ${numberText(accepted)}, ` +
      `delivered ${numberText(delivered)}, deferred ${numberText(deferred)}, ` +
      `bounced ${numberText(bounced)}, held ${numberText(held)}`,
  ];
  if (flow.tookMs !== null) lines.push(`took      ${spreadText(flow.tookMs)}`);
  if (flow.ageMs !== null) lines.push(`age       ${spreadText(flow.ageMs)}`);
  return lines;
}

function spreadText({ p50, p95, p99, max }: Spread): string {
  return `p50 ${span(p50)}, p95 ${span(p95)}, p99 ${span(p99)}, max ${span(max)}`;
}
