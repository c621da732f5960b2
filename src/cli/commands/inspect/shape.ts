/**
 * shape — waiting messages counted by topic or destination, and by age: where a backlog grows, and
 * since when. Also `respool outbox shape`, with a description of its own: outbox/messages.ts.
 */

import type { ShapeRow } from '../../../spool/operator/operator.ts';
import { MINUTE_MS } from '../../../core/duration.ts';
import { FILTER_OPTIONS, messageFilterOf } from '../../select-messages.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { CommandSpec } from '../../spec.ts';
import { type Column, tableOf } from '../../ui/table.ts';

/** Maximum rows in one answer: ROWS_MAX of spool/operator/spool-operator.ts. */
const ROWS_MAX = 500;

/** `respool shape` */
export const shapeCommand: CommandSpec = {
  name: 'shape',
  summary: 'show what waits, by topic and age',
  group: 'Inspect',
  description:
    'Counts what waits (incoming, active and deferred) by topic and age. T is the total; ' +
    'each column counts ages up to that many minutes, and the last one those beyond.',
  options: [
    { flags: '--by <what>', description: 'default topic', choices: ['topic', 'destination'] },
    ...FILTER_OPTIONS,
  ],
  examples: [
    { line: 'respool shape', does: 'what waits' },
    {
      line: 'respool shape --by destination --state deferred',
      does: 'which destinations cannot be reached',
    },
  ],
  role: 'read',
  run: async ({ session, options, out }) => {
    const filter = messageFilterOf(options);
    const by = options.text('by') as 'topic' | 'destination' | undefined;
    const { operator } = await session();
    const found = await operator.shape({
      ...(by === undefined ? {} : { by }),
      ...(filter === undefined ? {} : { filter }),
    });
    if (out.json) {
      for (const row of [found.total, ...found.rows]) await out.object(rowObject(row, found));
      return undefined;
    }
    const minutes = found.boundsMs.map((ms) => numberText(Math.round(ms / MINUTE_MS)));
    const columns: Column[] = [
      { head: safe(found.by), isFlexible: true },
      ...['T', ...minutes, `${minutes.at(-1) ?? '0'}+`].map(
        (head): Column => ({ head, align: 'right' }),
      ),
    ];
    const rows = [{ ...found.total, key: 'TOTAL' }, ...found.rows].map(cellsOf);
    await out.line(tableOf(out, columns, rows));
    if (found.rows.length >= ROWS_MAX) {
      out.note(`only the largest ${ROWS_MAX} are shown; TOTAL counts all; see --topic`);
    }
    return undefined;
  },
};

function rowObject(row: ShapeRow, { by, boundsMs, total }: Found): object {
  return { id: row === total ? 'TOTAL' : row.key, by, isTotal: row === total, boundsMs, ...row };
}

interface Found {
  readonly by: string;
  readonly boundsMs: readonly number[];
  readonly total: ShapeRow;
}

function cellsOf({ key, total, counts }: ShapeRow): string[] {
  return [safe(key), numberText(total), ...counts.map(numberText)];
}
