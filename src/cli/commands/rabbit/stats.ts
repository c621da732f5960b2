/** stats — the queues of RabbitMQ in numbers, once or again and again. */

import type { Broker } from '../../../config/load/brokers.ts';
import { SECOND_MS } from '../../../core/duration.ts';
import type { QueueStats, StatsReport } from '../../../rabbit/admin/reports.ts';
import { queueStats } from '../../../rabbit/admin/stats.ts';
import { sleep } from '../../../system/wait.ts';
import type { Out } from '../../ui/output.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../spec.ts';
import { type Column, tableOf } from '../../ui/table.ts';
import { span } from '../../ui/times.ts';
import { chooseQueues } from './queues.ts';
import { type BrokerAccess, reach } from './reach.ts';

/** The broker updates its counts every 5 seconds. Also in the text of `--watch`. */
const REDRAWN_EVERY_MS: number = 5 * SECOND_MS;
/** To the upper left corner, and everything below it away. */
const CLEAR = '\u001b[H\u001b[J';

const RIGHT = { align: 'right' as const };
const COLUMNS: readonly Column[] = [
  { head: 'queue', isFlexible: true, isReason: true },
  { head: 'role' },
  { head: 'ready', ...RIGHT },
  { head: 'unacked', ...RIGHT },
  { head: 'leaving', ...RIGHT, isOptional: true },
  { head: 'in/s', ...RIGHT },
  { head: 'out/s', ...RIGHT },
  { head: 'consumers', ...RIGHT },
  { head: 'oldest', ...RIGHT, isOptional: true },
];

interface Watched {
  readonly broker: Broker;
  readonly reached: BrokerAccess;
  previous?: StatsReport;
}

/** Prints the numbers; with `--watch` until a signal. */
export async function printStats(context: CommandContext): Promise<undefined> {
  const { io, options, out } = context;
  const { loaded, brokers } = await chooseQueues(context);
  const watched: Watched[] = [];
  for (const broker of brokers) {
    watched.push({ broker, reached: await reach(context, loaded, broker) });
  }
  if (!options.flag('watch')) {
    await printAll(context, watched, '');
    return undefined;
  }
  const redraws = !out.json && io.isTTY('stdout');
  const over = new AbortController();
  const off = io.onSignal(() => over.abort());
  try {
    while (!over.signal.aborted) {
      await printAll(context, watched, redraws ? CLEAR : '');
      await sleep(io.clock, REDRAWN_EVERY_MS, over.signal);
    }
  } finally {
    off();
  }
  return undefined;
}

async function printAll(
  { io, out }: CommandContext,
  watched: readonly Watched[],
  before: string,
): Promise<void> {
  const texts: string[] = [];
  for (const one of watched) {
    const { connection, management } = one.reached;
    const { plans, address } = one.broker;
    const { clock } = io;
    const { previous } = one;
    // The last answer is what this one is compared with: it must not come from the cache again.
    if (previous !== undefined) management?.forget();
    const report = await queueStats({ connection, management, plans, clock, previous });
    one.previous = report;
    if (out.json) await out.object({ broker: address, ...report });
    else texts.push(`${watched.length > 1 ? `${address}\n` : ''}${await textOf(out, report)}`);
  }
  if (!out.json) await out.write(`${before}${texts.join('\n\n')}\n`);
}

async function textOf(out: Out, { queues, hints, note }: StatsReport): Promise<string> {
  const lines = [tableOf(out, COLUMNS, queues.map(rowOf))];
  if (note !== undefined) lines.push('', safe(note));
  for (const { level, text, todo } of hints) {
    const word = out.style(level === 'bad' ? 'red' : 'yellow', level.padEnd(5));
    lines.push('', `${word} ${safe(text)}`, `      → ${safe(todo)}`);
  }
  return lines.join('\n');
}

function rowOf(queue: QueueStats): string[] {
  const { name, role, waitMs, isThere, oldestAgeMs } = queue;
  const words = waitMs === undefined ? role : `${role} ${span(waitMs)}`;
  if (!isThere) return [safe(name), words, 'missing', '', '', '', '', '', ''];
  return [
    safe(name),
    words,
    countText(queue.ready),
    countText(queue.unacked),
    countText(queue.deadLettering),
    rate(queue.publishRate),
    rate(queue.ackRate ?? queue.deliverRate),
    countText(queue.consumers),
    oldestAgeMs === undefined ? '' : span(oldestAgeMs),
  ];
}

function countText(value: number | undefined): string {
  return value === undefined ? '' : numberText(value);
}

function rate(value: number | undefined): string {
  return value === undefined ? '' : String(Math.round(value * 10) / 10);
}
