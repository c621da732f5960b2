/** drain — a wait, dead, parked or unrouted queue is emptied, with the number of it asked first. */

import { type Broker, brokerAt, brokersOf } from '../../connect/brokers.ts';
import type { LoadedConfig } from '../../connect/load-config.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { drainQueue } from '../../rabbit/operate/drain.ts';
import type { DrainOptions, DrainReport } from '../../rabbit/operate/reports.ts';
import { ask } from '../ask.ts';
import { CommandError, EXIT, type ExitCode } from '../exit-codes.ts';
import { numberText, safe } from '../safe.ts';
import type { CommandContext } from '../spec.ts';
import { moveWith } from './moving.ts';
import { readRabbitConfig } from './queues.ts';
import { reach } from './reach.ts';

const MAX_ALLOWED = 1_000_000_000;

/** Why a drain ended before the queue was empty. */
const ENDS: Readonly<Record<DrainReport['end'], string>> = {
  done: '',
  max: '',
  aborted: '',
  quiet: 'nothing comes any more: another consumer has the queue',
  held: 'too many that stay stand before the others',
};

/** Empties the queue that was named. */
export async function drain(context: CommandContext): Promise<ExitCode> {
  const { args, io, options, out } = context;
  const [queue = ''] = args;
  const loaded = await readRabbitConfig(context);
  const broker = brokerOf(queue, loaded);
  const to = targetOf(context);
  const max = options.number('max', { min: 1, max: MAX_ALLOWED });
  const { connection, amqp } = await reach(context, loaded, broker);
  const channel = await amqp.createChannel();
  // Whoever asks for a queue that is not there has the channel closed: nobody else may hear it.
  channel.on('error', () => undefined);
  const there = await channel.checkQueue(queue).catch((error: unknown) => {
    throw noQueue(queue, broker, error);
  });
  await channel.close();
  const count = Math.min(there.messageCount, max ?? there.messageCount);
  const what = `${messages(count)} of ${safe(queue)}`;
  const verb = to === 'discard' ? 'discard' : 'move';
  const where = whereOf(to);
  if (options.flag('dryRun')) {
    if (out.json) await out.object({ action: verb, queue, count, dryRun: true });
    else await out.line(`would ${verb} ${what}${where}`);
    return EXIT.done;
  }
  if (count === 0) {
    if (out.json) await out.object({ action: verb, ...nothing(queue) });
    else await out.line('the queue is empty; nothing to do');
    return EXIT.done;
  }
  await ask(context, `${verb} ${what}${where}?`);
  if (to === 'discard') await ask(context, 'they are gone for good: discard them?');
  const compat = broker.consumers.find(({ plan }) => isIn(plan.topology.queues, queue))?.compat;
  const report = await moveWith(context, count, (signal, onProgress) =>
    drainQueue({
      connection,
      queue,
      plans: broker.plans,
      ...(to === undefined ? {} : { to }),
      ...(to === 'discard' ? { confirm: queue } : {}),
      ...(max === undefined ? {} : { max }),
      ...(options.flag('keepAttempts') ? { attempts: 'keep' as const } : {}),
      ...(compat === undefined ? {} : { wire: compat.wire }),
      onProgress,
      signal,
      clock: io.clock,
    }),
  );
  return tell(context, verb, report);
}

function targetOf({ options }: CommandContext): DrainOptions['to'] {
  const to = options.filled('to');
  if (!options.flag('discard')) return to === undefined ? undefined : { exchange: '', key: to };
  if (to === undefined) return 'discard';
  throw new CommandError('usage.invalid', 'use --to or --discard, not both');
}

function whereOf(to: DrainOptions['to']): string {
  if (to === 'discard') return '';
  return typeof to === 'object' ? ` to ${safe(to.key)}` : ' back to where they came from';
}

/** The broker whose consumers have this queue; otherwise the one that is named. */
function brokerOf(queue: string, { config }: LoadedConfig): Broker {
  const { rabbit, consumers } = config;
  const brokers = brokersOf(consumers, rabbit);
  const found = brokers.find(({ topology }) => isIn(topology.queues, queue));
  if (found !== undefined) return found;
  const at = brokers.find(({ url }) => url === rabbit.url) ?? brokers[0];
  if (at !== undefined) return at;
  if (rabbit.url !== undefined) return brokerAt(rabbit.url, [], rabbit);
  throw new CommandError('usage.invalid', 'name the broker: --url amqp://host, or "rabbit.url"');
}

function isIn(queues: readonly { readonly name: string }[], name: string): boolean {
  return queues.some((one) => one.name === name);
}

function noQueue(queue: string, { address }: Broker, cause: unknown): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot drain ${show(queue)} at ${address}: there is no such queue, or it may not be read; ` +
      'see: respool rabbit stats',
    { cause },
  );
}

function nothing(queue: string): DrainReport {
  return { queue, total: 0, moved: 0, skipped: 0, homeless: 0, end: 'done' };
}

async function tell(
  { out }: CommandContext,
  verb: 'move' | 'discard',
  report: DrainReport,
): Promise<ExitCode> {
  const { moved, skipped, homeless, end } = report;
  const isWhole = homeless === 0 && ENDS[end] === '';
  if (out.json) await out.object({ action: verb, ...report });
  else {
    const parts = [`${verb === 'move' ? 'moved' : 'discarded'} ${numberText(moved)}`];
    if (skipped > 0) parts.push(`left ${numberText(skipped)}`);
    if (homeless > 0) {
      parts.push(`left ${numberText(homeless)} whose queue nobody knows: name one with --to`);
    }
    if (ENDS[end] !== '') parts.push(ENDS[end]);
    await out.line(parts.join(', '));
  }
  return isWhole ? EXIT.done : EXIT.refused;
}

function messages(count: number): string {
  return count === 1 ? '1 message' : `${numberText(count)} messages`;
}
