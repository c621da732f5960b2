/**
 * select-messages — which messages a command is about: filters (topic, state, destination, code,
 * age), ids among the arguments or, with `-`, from stdin (one per line, or JSON lines with an
 * `id`, as `respool list --json` prints them), and looking them up.
 *
 * A wrong id among the arguments is wrong usage, found before anything is done. By the time a
 * wrong line of stdin is read, others may be done: it is named and left out, and the rest goes
 * on.
 */

import { StringDecoder } from 'node:string_decoder';
import { CommandError } from './exit-codes.ts';
import { checkTyped } from './id-prefix.ts';
import { type Options, usageOf } from './options.ts';
import type { OptionSpec } from './spec.ts';
import type { SeenEntry } from './ui/message-view.ts';
import type { Io, Out } from './ui/output.ts';
import { textOf } from '../core/errors.ts';
import { checkId, checkTopicPattern } from '../core/limits.ts';
import { type State, STATES } from '../core/state.ts';
import { safe } from '../observe/logs/safe-text.ts';
import type { Operator } from '../spool/operator/operator.ts';
import type { ListFilter } from '../spool/list.ts';

/** States by the words in which people, and other outputs, speak of them. */
const STATES_MEANT: Readonly<Record<string, string>> = {
  held: 'hold',
  bounced: 'bounce',
  dead: 'bounce',
  failed: 'bounce',
  pending: 'incoming,deferred',
  due: 'incoming',
  retrying: 'deferred',
  sent: 'archived',
  delivered: 'archived',
  removed: 'archived',
  kept: 'archived',
};

/**
 * The options that choose messages; all given conditions hold together. By their names
 * dlq/options.ts takes some and declares others again, which dlq/letter-places.ts reads through
 * `messageFilterOf`; outbox/messages.ts leaves out `--lane`.
 */
export const FILTER_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '--state <state>',
    description: 'with this state; separate several with commas',
    choices: STATES,
    meant: STATES_MEANT,
    repeatable: true,
  },
  { flags: '--topic <pattern>', description: 'a topic; * for one word, # for any number' },
  { flags: '--destination <name>', description: 'with this destination' },
  { flags: '--header <name=value>', description: 'with this header, or any value of name' },
  { flags: '--code <code>', description: 'the code of its last failure or hold' },
  { flags: '--fingerprint <print>', description: 'the fingerprint of its last failure' },
  { flags: '--text <text>', description: 'contained in its id, topic or reason' },
  {
    flags: '--older-than <span>',
    description: 'enqueued more than this long ago, such as 15m or 2d',
  },
  {
    flags: '--since <when>',
    description: 'enqueued since this time: 2h (ago), or an ISO 8601 time',
  },
  {
    flags: '--lane <lane>',
    description: 'the next claim is for a delivery or for a bounce notice',
    choices: ['delivery', 'notice'],
  },
];

/** The filter that was given; undefined when there was none at all. */
export function messageFilterOf(options: Options): ListFilter | undefined {
  const states = options.texts('state') as readonly State[];
  const lane = options.text('lane') as ListFilter['lane'];
  const given: Record<string, unknown> = {
    state: states.length === 0 ? undefined : states,
    topic: topicOf(options),
    destination: options.filled('destination'),
    header: headerOf(options.filled('header')),
    code: options.filled('code'),
    fingerprint: options.filled('fingerprint'),
    text: options.filled('text'),
    olderThan: options.span('olderThan'),
    ...sinceOf(options),
    lane,
  };
  const conditions = Object.entries(given).filter(([, value]) => value !== undefined);
  return conditions.length === 0 ? undefined : Object.fromEntries(conditions);
}

/** So long ago, or a moment. */
function sinceOf(options: Options): Pick<ListFilter, 'since' | 'enqueuedAfter'> {
  const text = options.filled('since');
  if (text === undefined) return {};
  if (!/^\d{4}-\d\d-\d\d/.test(text)) return { since: options.span('since') ?? text };
  const at = Date.parse(text);
  if (!Number.isNaN(at)) return { enqueuedAfter: at };
  throw new CommandError(
    'usage.invalid',
    `cannot use "${text}" as --since: allowed is a span such as 2h, or a time such as ` +
      '2026-05-30T08:00Z',
  );
}

function topicOf(options: Options): string | undefined {
  const topic = options.text('topic');
  if (topic !== undefined) usageOf(() => checkTopicPattern(topic), ['message.invalid']);
  return topic;
}

function headerOf(text: string | undefined): ListFilter['header'] {
  if (text === undefined) return undefined;
  const at = text.indexOf('=');
  if (at === 0) {
    throw new CommandError(
      'usage.invalid',
      `cannot use "${text}" as --header: allowed is a name, or name=value`,
    );
  }
  return at === -1 ? { name: text } : { name: text.slice(0, at), value: text.slice(at + 1) };
}

/** Ids that are handed on together. */
interface IdBatch {
  /** At most 500. */
  readonly ids: readonly string[];
  /** The lines among them that hold no id. */
  readonly bad: readonly BadLine[];
}

/** A line of stdin that holds no id. */
export interface BadLine {
  /** From 1. */
  readonly line: number;
  readonly why: string;
}

/** Maximum number of ids, and of lines without one, that are handed on at once. */
const BATCH_MAX = 500;
/** The longest line of stdin that is read. */
const LINE_MAX_CHARS = 1_048_576;

/** Makes whole ids of those that were typed. */
export type MakeWhole = (typed: readonly string[]) => Promise<readonly string[]>;

/**
 * The ids in batches, as they come; ids of the command line are all checked, and made whole, before
 * the first.
 */
export async function* idBatches(
  args: readonly string[],
  io: Io,
  makeWhole: MakeWhole,
): AsyncGenerator<IdBatch> {
  const typed = args
    .filter((arg) => arg !== '-')
    .map((arg) => usageOf(() => checkTyped(arg), ['message.invalid']));
  const fromArgs: string[] = [];
  for (let from = 0; from < typed.length; from += BATCH_MAX) {
    fromArgs.push(...(await makeWhole(typed.slice(from, from + BATCH_MAX))));
  }
  for (let from = 0; from < fromArgs.length; from += BATCH_MAX) {
    yield { ids: fromArgs.slice(from, from + BATCH_MAX), bad: [] };
  }
  if (args.includes('-')) yield* stdinBatches(io);
}

async function* stdinBatches({ stdin }: Io): AsyncGenerator<IdBatch> {
  let ids: string[] = [];
  let bad: BadLine[] = [];
  let line = 0;
  for await (const text of linesOf(stdin)) {
    line += 1;
    try {
      const id = idOfLine(text);
      if (id !== undefined) ids.push(id);
    } catch (error) {
      bad.push({ line, why: `cannot use line ${line} of stdin: ${textOf(error)}` });
    }
    if (ids.length + bad.length < BATCH_MAX) continue;
    yield { ids, bad };
    ids = [];
    bad = [];
  }
  if (ids.length + bad.length > 0) yield { ids, bad };
}

function idOfLine(line: string | undefined): string | undefined {
  if (line === undefined) throw new Error(`it is longer than ${LINE_MAX_CHARS} characters`);
  const text = line.trim();
  if (text === '') return undefined;
  return checkId(text.startsWith('{') ? idOfJson(text) : text);
}

function idOfJson(text: string): unknown {
  let value: { id?: unknown };
  try {
    value = JSON.parse(text) as { id?: unknown };
  } catch {
    throw new Error('it is broken JSON');
  }
  if (value.id === undefined) throw new Error('its JSON has no "id"');
  return value.id;
}

/** The lines; undefined for one that is too long to be kept. */
async function* linesOf(stdin: AsyncIterable<unknown>): AsyncGenerator<string | undefined> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  let isTooLong = false;
  for await (const piece of stdin) {
    rest += typeof piece === 'string' ? piece : decoder.write(piece as Buffer);
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      yield isTooLong || line.length > LINE_MAX_CHARS ? undefined : line;
      isTooLong = false;
    }
    if (rest.length <= LINE_MAX_CHARS) continue;
    isTooLong = true;
    rest = '';
  }
  yield isTooLong ? undefined : rest + decoder.end();
}

/** The messages there are, by their ids: callers ask for at most 500, the largest page. */
export async function lookUp(
  operator: Operator,
  ids: readonly string[],
  out: Out,
): Promise<ReadonlyMap<string, SeenEntry>> {
  if (ids.length === 0) return new Map();
  const [id = ''] = ids;
  if (ids.length === 1) {
    const entry = await operator.get(id);
    return new Map(entry === undefined ? [] : [[id, entry]]);
  }
  const page = await operator.page({ ids: [...new Set(ids)], limit: ids.length });
  for (const { where, reason } of page.corrupt) {
    out.warn(`cannot read the entry at ${safe(where)}: ${safe(reason)}; see: respool check`);
  }
  return new Map(page.entries.map((entry) => [entry.envelope.id, entry]));
}
