/** drain — empties a wait, dead, parked or unrouted queue; counts its messages first, and asks. */

import { LIMIT_RANGE } from '../../options.ts';
import { type Broker, brokerAt, brokersOf } from '../../../config/load/brokers.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import { RespoolError, show } from '../../../core/errors.ts';
import { checkDrain, drainQueue } from '../../../rabbit/queues/drain.ts';
import type { DrainOptions, DrainReport } from '../../../rabbit/admin/reports.ts';
import type { QueuePlan } from '../../../rabbit/topology/model.ts';
import { ask } from '../../ui/confirm.ts';
import { CommandError, EXIT, type ExitCode } from '../../exit-codes.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../spec.ts';
import { moveWith } from '../../ui/progress.ts';
import { readRabbitConfig } from './queues.ts';
import { reach } from './reach.ts';

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
  const broker = brokerOf(queue, context, loaded);
  const to = targetOf(context);
  const max = options.number('limit', LIMIT_RANGE);
  const { connection, amqp } = await reach(context, loaded, broker);
  const channel = await amqp.createChannel();
  // Asking for a missing queue closes the channel: a channel of its own affects no others.
  channel.on('error', () => undefined);
  const there = await channel.checkQueue(queue).catch((error: unknown) => {
    throw noQueue(queue, broker, error);
  });
  await channel.close();
  const wire = broker.consumers.find(({ plan }) => isOf(plan, queue))?.compat?.wire;
  const order: DrainOptions = {
    connection,
    queue,
    plans: broker.plans,
    ...(to === undefined ? {} : { to }),
    ...(to === 'discard' ? { confirm: queue } : {}),
    ...(max === undefined ? {} : { max }),
    ...(options.flag('keepAttempts') ? { attempts: 'keep' as const } : {}),
    ...(wire === undefined ? {} : { wire }),
    clock: io.clock,
  };
  // Do not report or prompt for what would then be refused.
  checkDrain(order);
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
  if (to === 'discard') await ask(context, 'they are permanently removed: discard them?');
  const report = await moveWith(context, count, (signal, onProgress) =>
    drainQueue({ ...order, onProgress, signal }),
  );
  return tell(context, verb, report);
}

function targetOf({ options }: CommandContext): DrainOptions['to'] {
  const to = options.filled('to');
  if (!options.flag('discard')) return to === undefined ? undefined : { exchange: '', key: to };
  if (to === undefined) return 'discard';
  throw usage('use --to or --discard, not both');
}

function whereOf(to: DrainOptions['to']): string {
  if (to === 'discard') return '';
  return typeof to === 'object' ? ` to ${safe(to.key)}` : ' back to where they came from';
}

/** The broker whose consumers have this queue; otherwise the one that is named. */
function brokerOf(queue: string, { globals }: CommandContext, { config }: LoadedConfig): Broker {
  const { rabbit, consumers } = config;
  const { url } = globals;
  // --url takes precedence over the brokers of the configuration.
  const there = consumers.filter((one) => url === undefined || one.url === url);
  const brokers = brokersOf(there, rabbit);
  const having = brokers.filter(({ plans }) => plans.some((plan) => isOf(plan, queue)));
  const at = rabbit.url;
  const fitting =
    having.length > 0 || at === undefined ? having : [brokerWith(at, brokers, rabbit)];
  const [found, second] = fitting.length > 0 ? fitting : brokers;
  if (found !== undefined && second === undefined) return found;
  if (found === undefined) throw usage('name the broker: --url amqp://host, or "rabbit.url"');
  const addresses = (having.length > 0 ? having : brokers).map(({ address }) => address);
  throw usage(`it could be at several brokers (${addresses.join(', ')}): name one with --url`);
}

function brokerWith(
  url: string,
  brokers: readonly Broker[],
  rabbit: LoadedConfig['config']['rabbit'],
): Broker {
  return brokers.find((one) => one.url === url) ?? brokerAt(url, [], rabbit);
}

/** n.b. The dead queue of another system is only named by the route to it. */
function isOf({ topology, dead }: QueuePlan, name: string): boolean {
  const isDeadRoute = dead.exchange === '' && dead.key === name;
  return isDeadRoute || topology.queues.some((one) => one.name === name);
}

function usage(text: string): CommandError {
  return new CommandError('usage.invalid', text);
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
  return { queue, total: 0, moved: 0, skipped: 0, unroutable: 0, end: 'done' };
}

async function tell(
  { out }: CommandContext,
  verb: 'move' | 'discard',
  report: DrainReport,
): Promise<ExitCode> {
  const { moved, skipped, unroutable, end } = report;
  const isWhole = unroutable === 0 && ENDS[end] === '';
  if (out.json) await out.object({ action: verb, ...report });
  else {
    const parts = [`${verb === 'move' ? 'moved' : 'discarded'} ${numberText(moved)}`];
    if (skipped > 0) parts.push(`left ${numberText(skipped)}`);
    if (unroutable > 0) {
      parts.push(`left ${numberText(unroutable)} whose queue is unknown: name one with --to`);
    }
    if (ENDS[end] !== '') parts.push(ENDS[end]);
    await out.line(parts.join(', '));
  }
  return isWhole ? EXIT.done : EXIT.refused;
}

function messages(count: number): string {
  return count === 1 ? '1 message' : `${numberText(count)} messages`;
}
