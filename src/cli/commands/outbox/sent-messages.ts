/** sent-messages — messages that were sent and are kept in partitions of a table, oldest first. */

import { LIMIT_RANGE } from '../../options.ts';
import type { SentMessage } from '../../../stores/postgres/sent-partitions.ts';
import { CommandError } from '../../exit-codes.ts';
import { messageFilterOf } from '../../select-messages.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../spec.ts';
import { type Column, pagedTable } from '../../ui/table.ts';
import { relative } from '../../ui/times.ts';
import { openOutbox } from './choose.ts';

const PAGE_MAX = 500;
const SHOWN_DEFAULT = 100;

const COLUMNS: readonly Column[] = [
  { head: 'id', isId: true },
  { head: 'topic', isFlexible: true, isReason: true },
  { head: 'sent' },
  { head: 'bytes', align: 'right' },
];

/** Prints them, page by page. */
export async function printSent(context: CommandContext): Promise<undefined> {
  const { io, options, out } = context;
  const { topic, ...others } = messageFilterOf(options) ?? {};
  const isOrdered = options.text('order') !== undefined || options.flag('desc');
  if (Object.keys(others).length > 0 || isOrdered) {
    throw usage('--sent goes with --topic and --limit only: sent messages have no state');
  }
  const limit =
    options.number('limit', LIMIT_RANGE) ?? (out.json ? LIMIT_RANGE.max : SHOWN_DEFAULT);
  const { openSent } = await openOutbox(context);
  if (openSent === undefined) {
    throw usage('--sent needs PostgreSQL; in SQLite use --state archived');
  }
  const reader = await openSent();
  context.atEnd(() => reader.close());
  const table = pagedTable(out, COLUMNS);
  let shown = 0;
  let after: string | undefined;
  do {
    const { messages, next } = await reader.page({
      limit: Math.min(PAGE_MAX, limit - shown),
      ...(topic === undefined ? {} : { topic }),
      ...(after === undefined ? {} : { after }),
    });
    const now = io.clock.now();
    if (out.json) for (const message of messages) await out.object(objectOf(message));
    else if (messages.length > 0) await out.line(table(messages.map((one) => rowOf(one, now))));
    shown += messages.length;
    after = next;
  } while (after !== undefined && shown < limit);
  if (out.json) return undefined;
  if (shown === 0) out.note('no sent messages in partitions; others: --state archived');
  else if (after !== undefined) out.note(`the first ${shown}; more with --limit, all with --json`);
  return undefined;
}

function objectOf({ envelope, sentAt }: SentMessage): object {
  return { id: envelope.id, envelope, sentAt };
}

function rowOf({ envelope, sentAt }: SentMessage, now: number): string[] {
  const { id, topic, body } = envelope;
  return [safe(id), safe(topic), relative(sentAt, now), numberText(body.size)];
}

function usage(text: string): CommandError {
  return new CommandError('usage.invalid', text);
}
