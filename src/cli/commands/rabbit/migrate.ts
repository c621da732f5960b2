/** migrate — from the topology that a queue had to the one that it has now, messages included. */

import type { EffectiveConsumer } from '../../../config/load/consumers.ts';
import { respoolWire, type HistoryWire } from '../../../rabbit/message-history.ts';
import { mergeTopologies } from '../../../rabbit/topology/model.ts';
import { migrateTopology } from '../../../rabbit/migrate/migrate.ts';
import type { MigrateReport } from '../../../rabbit/admin/reports.ts';
import { ask } from '../../ui/confirm.ts';
import { EXIT, type ExitCode } from '../../exit-codes.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../spec.ts';
import { moveWith } from '../../ui/progress.ts';
import { chooseQueues, formerOf } from './queues.ts';
import { reach } from './reach.ts';

/** Tells what it would do, asks, and does it; 1 while something of the old is left. */
export async function migrateQueues(context: CommandContext): Promise<ExitCode> {
  const { io, options, out } = context;
  const { loaded, brokers } = await chooseQueues(context);
  let isDone = true;
  for (const broker of brokers) {
    const former = await formerOf(context, loaded, broker.consumers);
    const { connection, management } = await reach(context, loaded, broker);
    const order = {
      connection,
      management,
      from: mergeTopologies(former.map(({ plan }) => plan)),
      to: broker.plans,
      renamed: Object.fromEntries(
        former.map(({ queue }, at) => [queue, broker.plans[at]?.queue ?? queue]),
      ),
      waits: options.flag('leaveWaits') ? ('leave' as const) : ('move' as const),
      oldConsumersGone: options.flag('oldConsumersGone'),
      unrelated: options.texts('unrelated'),
      wire: wireOf(former, broker.consumers),
      clock: io.clock,
    };
    const foretold = await migrateTopology({ ...order, dryRun: true });
    if (options.flag('dryRun')) {
      await tell(context, broker.address, foretold);
      continue;
    }
    if (!out.json) for (const line of linesOf(foretold)) out.note(line);
    await ask(context, `migrate ${named(broker.plans)} at ${broker.address}?`);
    const total = foretold.steps
      .filter(({ kind }) => kind === 'move')
      .reduce((sum, { messages }) => sum + messages, 0);
    const report = await moveWith(context, total, (signal, onProgress) =>
      migrateTopology({ ...order, signal, onProgress }),
    );
    await tell(context, broker.address, report);
    isDone &&= report.isDone;
  }
  return isDone ? EXIT.done : EXIT.refused;
}

/** The past is read as the old queues have it, and written as the new ones do. */
function wireOf(
  former: readonly EffectiveConsumer[],
  next: readonly EffectiveConsumer[],
): HistoryWire {
  const among = (consumers: readonly EffectiveConsumer[], name: string): HistoryWire =>
    consumers.find(({ queue }) => queue === name)?.compat?.wire ?? respoolWire;
  return {
    name: 'respool',
    read: (message, queue) => among(former, queue).read(message, queue),
    write: (message, successor) => among(next, successor.queue).write(message, successor),
  };
}

async function tell({ out }: CommandContext, broker: string, report: MigrateReport): Promise<void> {
  if (out.json) await out.object({ broker, ...report });
  else for (const line of linesOf(report)) await out.line(line);
}

function linesOf({ isDryRun, isDone, steps, todo }: MigrateReport): string[] {
  const lines = steps.map(({ kind, name, messages, text }) => {
    const count = messages === 0 ? '' : ` (${numberText(messages)} messages)`;
    return `${kind.padEnd(8)}${safe(name)}${count}: ${safe(text)}`;
  });
  const rest = todo.map((text) => `→ ${safe(text)}`);
  if (isDryRun) return [...lines, ...rest];
  return [
    ...lines,
    ...rest,
    isDone ? 'done: nothing of the old is left' : 'not done: run it again',
  ];
}

function named(plans: readonly { readonly queue: string }[]): string {
  return plans.map(({ queue }) => safe(queue)).join(', ');
}
