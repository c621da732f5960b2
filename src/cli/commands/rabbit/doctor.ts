/** doctor — what the doctor says about brokers and queues, line by line. */

import { userOf } from '../../../rabbit/connection/connection.ts';
import { doctor } from '../../../rabbit/admin/doctor.ts';
import type { BrokerFinding } from '../../../rabbit/admin/reports.ts';
import { EXIT, type ExitCode } from '../../exit-codes.ts';
import type { Style } from '../../ui/output.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../spec.ts';
import { chooseQueues } from './queues.ts';
import { reach } from './reach.ts';

type Level = BrokerFinding['level'];

/** The twin of commands/doctor/doctor.ts, which has other levels. */
const STYLES: Readonly<Record<Level, Style>> = { ok: 'green', warn: 'yellow', bad: 'red' };
const LEVEL_COLUMNS = 6;

/** Prints the findings; 1 when something is bad. */
export async function examineBrokers(context: CommandContext): Promise<ExitCode> {
  const { io, out } = context;
  const { loaded, brokers } = await chooseQueues(context);
  const counts: Record<Level, number> = { ok: 0, warn: 0, bad: 0 };
  for (const broker of brokers) {
    const { connection, management } = await reach(context, loaded, broker);
    const shared = broker.consumers.flatMap(({ compat }) => compat ?? []);
    // Each system once, however many of its queues are consumed.
    const compat = [...new Map(shared.map((one) => [one.name, one])).values()];
    const { plans, address, url } = broker;
    const user = userOf(url);
    const findings = await doctor({ connection, management, plans, compat, user, clock: io.clock });
    for (const { level, name, text, todo } of findings) {
      counts[level] += 1;
      if (out.json) {
        await out.object({ broker: address, id: name, level, text, todo });
        continue;
      }
      await out.line(`${out.style(STYLES[level], level.padEnd(LEVEL_COLUMNS))}${safe(text)}`);
      if (todo !== '') await out.line(`${' '.repeat(LEVEL_COLUMNS)}→ ${safe(todo)}`);
    }
  }
  if (!out.json) {
    await out.line('');
    await out.line(`${counts.ok} ok, ${counts.warn} warn, ${counts.bad} bad`);
  }
  return counts.bad > 0 ? EXIT.refused : EXIT.done;
}
