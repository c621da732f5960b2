/**
 * list — lists messages by filters, in a chosen order. Also `respool outbox list`:
 * outbox/messages.ts.
 */

import { LIMIT_RANGE } from '../../options.ts';
import type { ListOrder } from '../../../ports/entry-store.ts';
import type { PageOptions } from '../../../spool/list.ts';
import { FILTER_OPTIONS, messageFilterOf } from '../../select-messages.ts';
import { LIST_COLUMNS, listRow, messageObject } from '../../ui/message-view.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';
import { pagedTable } from '../../ui/table.ts';

const PAGE_MAX = 500;
const SHOWN_DEFAULT = 100;

/** `respool list` */
export const listCommand: CommandSpec = {
  name: 'list',
  summary: 'show messages, by state, topic, age and more',
  group: 'Messages',
  options: [
    ...FILTER_OPTIONS,
    {
      flags: '--order <order>',
      description: 'default id: in the order they came',
      choices: ['id', 'dueAt', 'updatedAt', 'priority', 'attempts'],
    },
    { flags: '--desc', description: 'in descending order' },
    { flags: '--limit <count>', description: 'at most this many; default 100, with --json all' },
  ],
  examples: [
    {
      line: 'respool list --state deferred --order dueAt',
      does: 'what is waiting, next due first',
    },
    { line: 'respool list --state bounce --older-than 2d --json', does: 'one object per line' },
  ],
  role: 'read',
  run: async (context) => {
    const { options, out } = context;
    const limit =
      options.number('limit', LIMIT_RANGE) ?? (out.json ? LIMIT_RANGE.max : SHOWN_DEFAULT);
    const order = options.text('order') as ListOrder | undefined;
    const query: PageOptions = {
      ...messageFilterOf(options),
      ...(order === undefined ? {} : { order }),
      ...(options.flag('desc') ? { descending: true } : {}),
    };
    await printList(context, query, limit);
    return undefined;
  },
};

async function printList(
  { session, io, isOutbox, out }: CommandContext,
  query: PageOptions,
  limit: number,
): Promise<void> {
  const { operator } = await session();
  const table = pagedTable(out, LIST_COLUMNS);
  let shown = 0;
  let after: string | undefined;
  do {
    const page = await operator.page({
      ...query,
      limit: Math.min(PAGE_MAX, limit - shown),
      ...(after === undefined ? {} : { after }),
    });
    for (const { where, reason } of page.corrupt) {
      out.warn(`cannot read the entry at ${safe(where)}: ${safe(reason)}; see: respool check`);
    }
    const now = io.clock.now();
    if (out.json) for (const entry of page.entries) await out.object(messageObject(entry));
    else if (page.entries.length > 0) {
      const rows = page.entries.map((entry) => listRow(entry, { now, isOutbox }));
      await out.line(table(rows));
    }
    shown += page.entries.length;
    after = page.next;
  } while (after !== undefined && shown < limit);
  if (out.json) return;
  if (shown === 0) out.note('no messages match');
  else if (after !== undefined) out.note(`the first ${shown}; more with --limit, all with --json`);
}
