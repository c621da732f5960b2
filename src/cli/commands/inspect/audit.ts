/**
 * audit — the latest operator actions, from the audit record. Also `respool outbox audit`:
 * outbox/messages.ts.
 */

import type { Millis } from '../../../core/duration.ts';
import type { Operator } from '../../../spool/operator/operator.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { CommandSpec } from '../../spec.ts';
import { type Column, tableOf } from '../../ui/table.ts';
import { exact, relative } from '../../ui/times.ts';

/** Also in the description below. */
const LIMIT_DEFAULT = 50;
const LIMIT_MAX = 1_000_000;
/** Maximum records in one answer: AUDIT_MAX of web/routes/inspect.ts. */
const STEP_MAX = 1_000;
const IDS_SHOWN = 3;
/** Maximum length shown of a record that cannot be read. */
const UNREAD_MAX_CHARS = 200;

type Line = Awaited<ReturnType<Operator['audit']>>[number];

const columnsAt = (now: Millis): readonly Column[] => [
  { head: 'number', align: 'right' },
  { head: 'when', shorter: (at) => relativeOf(at, now) },
  { head: 'who', isFlexible: true },
  { head: 'action' },
  { head: 'messages', align: 'right' },
  { head: 'what', isFlexible: true, isReason: true, shorter: withShortIds },
];

/** A time that was printed; empty for a line that cannot be read. */
function relativeOf(at: string, now: Millis): string {
  const ms = Date.parse(at);
  return Number.isNaN(ms) ? at : relative(ms, now);
}

/** Made ids by the moment they were made at, which is enough to look them up. */
function withShortIds(what: string): string {
  return what.replaceAll(
    /\b([0-9a-f]{8}-[0-9a-f]{4})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g,
    '$1',
  );
}

/** `respool audit` */
export const auditCommand: CommandSpec = {
  name: 'audit',
  summary: 'show what operators did',
  group: 'Inspect',
  description:
    'Shows the last 50 records, oldest first. Each was written before the action, with ' +
    'every message it was requested for, including those that refused it.',
  options: [
    { flags: '--limit <count>', description: 'the last n records; default 50' },
    { flags: '--after <number>', description: 'only records after this number' },
  ],
  examples: [{ line: 'respool audit --limit 1000 --json', does: 'one object per record' }],
  role: 'read',
  run: async ({ session, io, options, out }) => {
    const limit = options.number('limit', { min: 1, max: LIMIT_MAX }) ?? LIMIT_DEFAULT;
    const after = options.number('after', { min: 0, max: Number.MAX_SAFE_INTEGER }) ?? 0;
    const { operator } = await session();
    const lines = await lastOf(operator, after, limit);
    // Records have no id of their own; their number is one.
    if (out.json)
      for (const line of lines) await out.object({ id: String(line.sequence), ...line });
    else if (lines.length === 0) out.note('no operator has done anything yet');
    else await out.line(tableOf(out, columnsAt(io.clock.now()), lines.map(rowOf)));
    return undefined;
  },
};

/** Records are read forwards only; those before the last n are dropped on the way. */
async function lastOf(operator: Operator, after: number, limit: number): Promise<Line[]> {
  let lines: Line[] = [];
  let at = after;
  for (;;) {
    const step = await operator.audit(at, STEP_MAX);
    lines = [...lines, ...step].slice(-limit);
    const last = step.at(-1);
    if (last === undefined || last.sequence <= at) return lines;
    at = last.sequence;
  }
}

/** Actions under the names of their commands. */
const WORDS: Readonly<Record<string, string>> = { setPolicy: 'policy' };

/** Also a record that is no such line: sealed by a key that is not here, or of another version. */
function rowOf(line: Line): string[] {
  if (!isWhole(line)) {
    const { sequence, ...rest } = line as unknown as Readonly<Record<string, unknown>>;
    const text = `cannot be read: ${detailsOf(rest).join(' ')}`;
    return [numberText(sequence), '?', '?', '?', '?', safe(text.slice(0, UNREAD_MAX_CHARS))];
  }
  const { sequence, at, by, action, ids, details = {} } = line;
  const isCounted = action.startsWith('bulk.') || action === 'rekey';
  const more = detailsOf(action === 'rekey' ? rekeyDetails(details) : details);
  const some = ids.slice(0, IDS_SHOWN).join(' ');
  const rest = ids.length > IDS_SHOWN ? ` and ${ids.length - IDS_SHOWN} more` : '';
  return [
    numberText(sequence),
    exact(at),
    safe(by),
    safe(Object.hasOwn(WORDS, action) ? (WORDS[action] ?? action) : action),
    numberText(isCounted ? details['count'] : ids.length),
    safe(`${more.join(' ')} ${some}${rest}`.trim()),
  ];
}

function isWhole({ by, action, ids, details = {} }: Line): boolean {
  const isText = typeof by === 'string' && typeof action === 'string';
  return isText && Array.isArray(ids) && typeof details === 'object' && details !== null;
}

/** The count has a column. Where there is only a seal, bodies are not encrypted with anything. */
function rekeyDetails(
  details: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const pairs = Object.entries(details).filter(([name]) => name !== 'count');
  return Object.fromEntries(pairs.map(([name, one]) => [name === 'to' ? 'bodies' : name, one]));
}

function detailsOf(details: Readonly<Record<string, unknown>>): string[] {
  return Object.entries(details).map(([name, value]) => `${name}=${textOfDetail(value)}`);
}

function textOfDetail(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}
