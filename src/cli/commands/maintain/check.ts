/**
 * check — checks the consistency of a store: reads every message and body; repairs on request. Also
 * `respool outbox check`: outbox/messages.ts.
 */

import type { CheckProgress, CheckReport } from '../../../spool/check.ts';
import { ask } from '../../ui/confirm.ts';
import { EXIT, type ExitCode } from '../../exit-codes.ts';
import type { Out } from '../../ui/output.ts';
import { createProgress } from '../../ui/progress.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { CommandSpec } from '../../spec.ts';
import { tableOf } from '../../ui/table.ts';

/** `respool check [--repair]` */
export const checkCommand: CommandSpec = {
  name: 'check',
  summary: 'check the store for damage, and repair it',
  group: 'Maintain',
  description:
    'Reads every message and every body once, and looks for bodies that are missing or ' +
    'changed, bodies without a message, entries that cannot be decoded, and impossible ' +
    'leases. With --repair damaged messages are held, bodies without a message are removed ' +
    'when they are old enough, and leases are ended. Exits with 1 when something was not ' +
    'repaired.',
  options: [
    { flags: '--repair', description: 'repair what can be repaired' },
    { flags: '--yes', description: 'do not ask' },
  ],
  examples: [
    { line: 'respool check', does: 'checks, and changes nothing' },
    { line: 'respool check --repair', does: 'asks, and repairs' },
  ],
  role: 'admin',
  run: async (context) => {
    const { io, options, out } = context;
    const repair = options.flag('repair');
    if (repair) {
      const question = 'repair: hold damaged messages and remove orphaned bodies?';
      await ask(context, question, 'add --yes to do it, or leave --repair out to look');
    }
    const { operator } = await context.session();
    const bar = createProgress(io, out);
    const onProgress = ({ seen, total }: CheckProgress): void => bar.show(seen, total);
    const report = await operator.check({ repair, onProgress }).finally(() => bar.clear());
    await (out.json ? tellLines(out, report) : tellTable(out, report));
    return endOf(report);
  },
};

function endOf({ findings }: CheckReport): ExitCode {
  return findings.some(({ repaired }) => repaired === undefined) ? EXIT.refused : EXIT.done;
}

async function tellLines(out: Out, report: CheckReport): Promise<void> {
  const { entries, bodies, findings } = report;
  // A body without a message has no id: its location identifies it.
  for (const finding of findings) await out.object({ id: finding.where, ...finding });
  const open = findings.filter(({ repaired }) => repaired === undefined).length;
  await out.object({ id: 'summary', entries, bodies, findings: findings.length, open });
}

async function tellTable(out: Out, { entries, bodies, findings }: CheckReport): Promise<void> {
  if (findings.length > 0) {
    const rows = findings.map(({ kind, id, where, text, repaired }) => [
      safe(kind),
      safe(id ?? where),
      safe(text),
      safe(repaired ?? 'not repaired'),
    ]);
    const columns = [
      { head: 'found' },
      { head: 'where', isId: true as const },
      { head: 'what', isFlexible: true as const, isReason: true as const },
      { head: 'done' },
    ];
    await out.line(tableOf(out, columns, rows));
    await out.line('');
  }
  const places = bodies === 1 ? '1 body' : `${numberText(bodies)} bodies`;
  const looked = `${countText(entries, 'message')} and ${places}`;
  await out.line(`checked ${looked}: ${summaryOf(findings)}`);
}

function summaryOf(findings: CheckReport['findings']): string {
  if (findings.length === 0) return 'nothing is wrong';
  const open = findings.filter(({ repaired }) => repaired === undefined).length;
  const rest = open === 0 ? 'all repaired' : `${open} not repaired`;
  return `${countText(findings.length, 'finding')}, ${rest}`;
}

function countText(number: number, word: string): string {
  return `${numberText(number)} ${word}${number === 1 ? '' : 's'}`;
}
