/** stats — an outbox in numbers, and the keys whose first message holds up others. */

import type { Operator, Stats } from '../../../spool/operator/operator.ts';
import type { OutboxInfo } from '../../../config/open/open-outbox.ts';
import { type Millis, MINUTE_MS } from '../../../core/duration.ts';
import { EVERYTHING } from '../../../spool/pauses.ts';
import type { KeyHead } from '../../../ports/entry-store.ts';
import { lookUp } from '../../select-messages.ts';
import { listRow, type SeenEntry } from '../../ui/message-view.ts';
import { byOf } from '../../session.ts';
import type { Out } from '../../ui/output.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../spec.ts';
import { type Column, tableOf } from '../../ui/table.ts';
import { relative } from '../../ui/times.ts';
import { openOutbox, placeText } from './choose.ts';

/** As many heads of keys are looked at. */
const HEADS_MAX = 500;
/** An incoming message that is due for so long goes nowhere: no relay sends its routing key. */
const OVERDUE_MS: number = 5 * MINUTE_MS;
/** As many stuck keys are shown; with `--json` all that were found. */
const SHOWN_MAX = 20;

const NUMBER_COLUMNS: readonly Column[] = [
  { head: 'messages' },
  { head: 'count', align: 'right' },
  { head: 'oldest' },
];
const STUCK_COLUMNS: readonly Column[] = [
  { head: 'stuck key', isFlexible: true },
  { head: 'behind', align: 'right' },
  { head: 'first', isId: true },
  { head: 'state' },
  { head: 'tries', align: 'right', isOptional: true },
  { head: 'next' },
  { head: 'why', isFlexible: true, isReason: true },
];

/**
 * The target did not answer, and that is not the message's fault: no action at it helps. As the
 * codes of outbox/relay-breaker.ts.
 */
const AWAY: ReadonlySet<string> = new Set([
  'broker.unavailable',
  'broker.unconfirmed',
  'store.unavailable',
  'sink.unanswered',
]);

/** A key whose first message does not go. */
interface StuckKey extends KeyHead {
  readonly entry: SeenEntry | undefined;
}

/** What is printed. */
interface OutboxNumbers {
  readonly info: OutboxInfo;
  readonly stats: Stats;
  readonly due: number;
  readonly stuck: readonly StuckKey[];
}

/** Prints the numbers. */
export async function printStats(context: CommandContext): Promise<undefined> {
  const { io, out } = context;
  const { outbox, info } = await openOutbox(context);
  const operator = outbox.spool.operator({ by: byOf(io) });
  const stats = await operator.stats();
  const due = await dueOf(operator, stats.at);
  const numbers = { info, stats, due, stuck: await stuckOf(operator, stats.at, out) };
  if (out.json) await out.object(objectOf(numbers));
  else await out.line(await textOf(out, numbers));
  return undefined;
}

/** What is due; one that waits behind another of its key counts until a relay has seen that. */
async function dueOf(operator: Operator, now: Millis): Promise<number> {
  const rows = await operator.tally('state', { state: ['incoming', 'deferred'], dueBefore: now });
  return rows.reduce((sum, { count }) => sum + count, 0);
}

/** Keys whose first message does not go; of more than 500 heads, held and deferred ones first. */
async function stuckOf(operator: Operator, now: Millis, out: Out): Promise<readonly StuckKey[]> {
  const heads = await operator.keyHeads(HEADS_MAX);
  const stuck = heads.filter((head) => isStuck(head, now));
  const found = await lookUp(
    operator,
    stuck.map(({ id }) => id),
    out,
  );
  return stuck.map((head) => ({ ...head, entry: found.get(head.id) }));
}

/** A head that is incoming or in flight blocks its key only briefly, unless no relay runs. */
function isStuck({ state, dueAt }: KeyHead, now: Millis): boolean {
  if (state === 'incoming') return dueAt !== null && dueAt <= now - OVERDUE_MS;
  return state === 'deferred' || state === 'hold';
}

function objectOf({ info, stats, due, stuck }: OutboxNumbers): object {
  const { at, states, nextDueAt, paused } = stats;
  const { oldestAt } = pendingOf(stats);
  return {
    at,
    ...info,
    pending: pendingOf(stats).count,
    due,
    active: states.active.count,
    later: laterOf(stats, due),
    oldestAt,
    oldestAgeMs: oldestAt === null ? null : Math.max(0, at - oldestAt),
    deferred: states.deferred.count,
    held: states.hold.count,
    dead: states.bounce.count,
    // Sent or removed, and kept; what is removed at once, or kept in parts, is not counted.
    kept: states.archived.count,
    nextDueAt,
    paused,
    stuck: stuck.map(({ entry, ...head }) => ({
      ...head,
      attempts: entry?.status.attempts,
      lastFailure: entry?.status.lastFailure,
    })),
  };
}

function pendingOf({ states }: Stats): { count: number; oldestAt: Millis | null } {
  const waiting = [states.incoming, states.active, states.deferred];
  const times = waiting.flatMap(({ oldestAt }) => (oldestAt === null ? [] : [oldestAt]));
  return {
    count: waiting.reduce((sum, { count }) => sum + count, 0),
    oldestAt: times.length === 0 ? null : Math.min(...times),
  };
}

/** Pending, and neither due nor on its way; each is counted by itself, so never below none. */
function laterOf(stats: Stats, due: number): number {
  return Math.max(0, pendingOf(stats).count - due - stats.states.active.count);
}

async function textOf(out: Out, { info, stats, due, stuck }: OutboxNumbers): Promise<string> {
  const { at, states, nextDueAt, paused } = stats;
  const row = (name: string, count: number, oldestAt: Millis | null = null): string[] => [
    name,
    numberText(count),
    oldestAt === null ? '' : relative(oldestAt, at),
  ];
  const pending = pendingOf(stats);
  const rows = [
    row('pending', pending.count, pending.oldestAt),
    row('  due', due),
    row('  on their way', states.active.count, states.active.oldestAt),
    row('  later', laterOf(stats, due)),
    row('held', states.hold.count, states.hold.oldestAt),
    row('dead', states.bounce.count, states.bounce.oldestAt),
    row('sent or removed, kept', states.archived.count, states.archived.oldestAt),
  ];
  const lines = [placeText(info), '', tableOf(out, NUMBER_COLUMNS, rows), ''];
  lines.push(`next due  ${nextDueAt === null ? 'nothing is waiting' : relative(nextDueAt, at)}`);
  const { deferred } = states;
  if (deferred.count > 0) {
    const oldest =
      deferred.oldestAt === null ? '' : `, the oldest ${relative(deferred.oldestAt, at)}`;
    lines.push(`deferred  ${numberText(deferred.count)} of the pending${oldest}`);
  }
  for (const { topic, by, at: since } of paused) {
    const what = topic === EVERYTHING ? 'everything' : safe(topic);
    lines.push(
      `${out.style('yellow', 'paused')}    ${what} by ${safe(by)}, ${relative(since, at)}`,
    );
  }
  if (stuck.length > 0) lines.push('', ...(await stuckLines(out, stuck, at)));
  return lines.join('\n');
}

async function stuckLines(out: Out, stuck: readonly StuckKey[], now: Millis): Promise<string[]> {
  const shown = stuck.slice(0, SHOWN_MAX);
  const rows = shown.map(({ orderKey, behind, id, state, entry }) => {
    const [, , , , tries = '', next = '', why = ''] =
      entry === undefined ? [] : listRow(entry, { now, isOutbox: true });
    return [safe(orderKey), numberText(behind), safe(id), state, tries, next, why];
  });
  const more = stuck.length - shown.length;
  return [
    tableOf(out, STUCK_COLUMNS, rows),
    ...(more > 0 ? [`and ${numberText(more)} more; all with --json`] : []),
    '',
    ...hintsOf(shown),
  ];
}

function hintsOf(shown: readonly StuckKey[]): string[] {
  const first = shown.find((one) => !isAway(one));
  const id = safe(first?.id ?? '');
  const hints: string[] = [];
  if (shown.some(isAway)) {
    hints.push('→ the target does not answer: when it does, what waits for it goes by itself');
  }
  if (first !== undefined) {
    hints.push(
      `→ respool outbox retry ${id}    tries it now`,
      `→ respool outbox remove ${id}   skips it: the next message of its key is sent; retry ` +
        `brings it back`,
    );
  }
  return hints;
}

function isAway({ state, entry }: StuckKey): boolean {
  return state === 'deferred' && AWAY.has(entry?.status.because?.code ?? '');
}
