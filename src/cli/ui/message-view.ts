/** message-view — one message as an object, as a row of a list, and in full. */

import type { MessageView } from '../../spool/operator/operator.ts';
import type { Entry } from '../../core/entry.ts';
import type { Millis } from '../../core/duration.ts';
import type { Out, Style } from './output.ts';
import { numberText, safe } from '../../observe/logs/safe-text.ts';
import type { Column } from './table.ts';
import { tableOf } from './table.ts';
import { both, brief, span, withoutMoment } from './times.ts';

/** What is known of a message, without its body. */
export type SeenEntry = MessageView;

/** Of a message that waits where no handler is for its topic. */
const UNHANDLED = 'no handler for this topic in this process';

/** The message as an object with its `id` on top, as `viewOf` of web/routes/messages.ts. */
export function messageObject(entry: SeenEntry): Record<string, unknown> {
  return { id: entry.envelope.id, ...entry };
}

const STATE_STYLES: Readonly<Record<string, Style>> = {
  active: 'cyan',
  deferred: 'yellow',
  hold: 'magenta',
  bounce: 'red',
  archived: 'dim',
};

/** States, each in its colour. */
export const STATE_COLUMN: Column = {
  head: 'state',
  paint: (out, state) => {
    const style = Object.hasOwn(STATE_STYLES, state) ? STATE_STYLES[state] : undefined;
    return style === undefined ? state : out.style(style, state);
  },
};

/** The columns of a list. */
export const LIST_COLUMNS: readonly Column[] = [
  { head: 'id', isId: true },
  STATE_COLUMN,
  { head: 'topic', isFlexible: true },
  { head: 'age', align: 'right', isOptional: true },
  { head: 'tries', align: 'right' },
  { head: 'next' },
  { head: 'why', isFlexible: true, isReason: true },
];

/** How a message is looked at. */
interface View {
  readonly now: Millis;
  /** The words of an outbox: there is no notice of a bounce, and no handler. */
  readonly isOutbox?: true | undefined;
}

/** The message as a row of a list. */
export function listRow(entry: SeenEntry, view: View): string[] {
  const { envelope, status } = entry;
  const { now } = view;
  return [
    safe(envelope.id),
    safe(status.state),
    safe(envelope.topic),
    span(now - envelope.enqueuedAt),
    numberText(status.attempts),
    nextOf(status, view),
    whyOf(entry),
  ];
}

function nextOf({ state, dueAt }: Entry['status'], { now, isOutbox }: View): string {
  if (dueAt === null || (state === 'bounce' && isOutbox === true)) return '';
  // Not the message is due, but the word that it bounced.
  if (state === 'bounce') return dueAt <= now ? 'notice due' : `notice ${brief(dueAt - now)}`;
  if (state === 'active') return dueAt < now ? 'lease over' : `lease ${brief(dueAt - now)}`;
  // What is archived is not sent again, but forgotten.
  if (state === 'archived') return `kept ${brief(Math.max(0, dueAt - now))}`;
  return dueAt <= now ? 'due' : `in ${brief(dueAt - now)}`;
}

function whyOf({ status, unhandled }: SeenEntry): string {
  const { because, ending, lastFailure } = status;
  // A failure that was overcome is no reason of anything; the full view has it.
  if (ending === 'delivered') return 'delivered';
  const { code, text } = because ?? {
    code: lastFailure?.code ?? '',
    text: lastFailure?.reason ?? '',
  };
  const why = safe([code, text].filter((part) => part !== '').join(': '));
  if (unhandled === undefined) return why;
  return why === '' ? UNHANDLED : `${UNHANDLED}; ${why}`;
}

/** The message in full, for people. */
export async function fullView(out: Out, entry: SeenEntry, view: View): Promise<string> {
  const { now } = view;
  const parts = [await pairsOf(out, factsOf(entry, view))];
  const { headers } = entry.envelope;
  const { notes, history } = entry.status;
  if (Object.keys(headers).length > 0) {
    parts.push(`${out.style('bold', 'headers')}\n${await pairsOf(out, Object.entries(headers))}`);
  }
  if (Object.keys(notes).length > 0) {
    parts.push(`${out.style('bold', 'notes')}\n${await pairsOf(out, Object.entries(notes))}`);
  }
  if (history.length > 0) {
    const rows = history.map(({ at, tookMs, by, lane, attempt, code, reason }) => [
      both(at, now),
      `${lane === 'notice' ? 'notice ' : ''}${numberText(attempt)}`,
      span(tookMs),
      safe(by),
      safe(code),
      safe(reason ?? ''),
    ]);
    parts.push(`${out.style('bold', 'attempts')}\n${tableOf(out, HISTORY_COLUMNS, rows)}`);
  }
  return parts.join('\n\n');
}

const HISTORY_COLUMNS: readonly Column[] = [
  { head: 'when', shorter: withoutMoment },
  { head: 'try', align: 'right' },
  { head: 'took', align: 'right' },
  { head: 'by', isFlexible: true },
  { head: 'code' },
  { head: 'reason', isFlexible: true, isReason: true },
];

/** Names and values in two columns. */
export async function pairsOf(
  out: Out,
  pairs: readonly (readonly [string, string])[],
): Promise<string> {
  const widest = Math.max(...pairs.map(([name]) => name.length));
  return pairs
    .map(([name, value]) => `${out.style('dim', safe(name).padEnd(widest))}  ${safe(value)}`)
    .join('\n');
}

function factsOf({ envelope, status, unhandled }: SeenEntry, view: View): [string, string][] {
  const { now, isOutbox = false } = view;
  const { body } = envelope;
  const { lastFailure } = status;
  const isNotice = status.lane === 'notice' && !isOutbox;
  const isDead = status.state === 'bounce' && isOutbox;
  const facts: [string, string | undefined][] = [
    ['id', envelope.id],
    ['topic', envelope.topic],
    ['state', isNotice ? `${status.state} (lane notice)` : status.state],
    ['enqueued', both(envelope.enqueuedAt, now)],
    ['updated', both(status.updatedAt, now)],
    [dueWord(status), isDead ? undefined : when(status.dueAt, now)],
    ['not before', when(envelope.eta ?? null, now)],
    ['expires', when(envelope.expiresAt ?? null, now)],
    ['ending', status.ending],
    ['handler', unhandled && UNHANDLED],
    ['why', becauseText(status, isOutbox)],
    ['last failure', lastFailure && `${lastFailure.code}: ${lastFailure.reason}`],
    ['fingerprint', lastFailure?.fingerprint],
    ['attempts', countsText(status)],
    ['holder', status.holder],
    ['policy', status.policy ?? (isOutbox ? 'the default' : "the handler's, or the default")],
    ['priority', numberText(envelope.priority)],
    ['destination', envelope.destination],
    ['order key', envelope.orderKey],
    ['dedupe key', envelope.dedupeKey],
    ['body', body.place === 'none' ? 'let go after the delivery' : bytesText(body.size)],
    ['stored', body.place === 'none' ? undefined : storedText(body)],
    ['digest', body.digest],
    ['revision', numberText(status.revision)],
  ];
  return facts.filter((fact): fact is [string, string] => fact[1] !== undefined);
}

function becauseText({ because }: Entry['status'], isOutbox: boolean): string | undefined {
  if (because === undefined) return undefined;
  const { code, text, by } = because;
  return `${code}: ${text} (by ${isOutbox && by === 'handler' ? 'relay' : by})`;
}

function dueWord({ state }: Entry['status']): string {
  if (state === 'active') return 'lease until';
  if (state === 'archived') return 'forgotten';
  return state === 'bounce' ? 'notice due' : 'due';
}

/** The transforms of the body and its stored size; empty without transforms. */
function storedText({ encodings, storedSize }: Entry['envelope']['body']): string | undefined {
  if (encodings.length === 0) return undefined;
  return `${bytesText(storedSize)}, ${encodings.join(', ')}`;
}

function bytesText(size: number): string {
  return size === 1 ? '1 byte' : `${numberText(size)} bytes`;
}

function when(at: Millis | null, now: Millis): string | undefined {
  return at === null ? undefined : both(at, now);
}

function countsText({ attempts, postponed, lost, replays, notices }: Entry['status']): string {
  const counts: [string, number][] = [
    ['postponed', postponed],
    ['lost', lost],
    ['replays', replays],
    ['notices', notices],
  ];
  const more = counts
    .filter(([, count]) => count > 0)
    .map(([name, count]) => `${name} ${numberText(count)}`);
  return [numberText(attempts), ...more].join(', ');
}
