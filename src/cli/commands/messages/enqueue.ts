/** enqueue — enqueues a message. When the id is printed, the message is kept. */

import { open } from 'node:fs/promises';
import path from 'node:path';
import type { Operator } from '../../../spool/operator/operator.ts';
import { textOf } from '../../../core/errors.ts';
import { checkTopic, PRIORITY_MAX } from '../../../core/limits.ts';
import { scanJson } from '../../../core/scan-json.ts';
import type { Message } from '../../../spool/message.ts';
import { CommandError } from '../../exit-codes.ts';
import { usageOf } from '../../options.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';

const JSON_TYPE = 'application/json';

/** `respool enqueue` */
export const enqueueCommand: CommandSpec = {
  name: 'enqueue',
  summary: 'enqueue a message',
  group: 'Messages',
  description:
    'Stores a message and prints its id; the message is then durable. The body comes from ' +
    '--body, --json-body, --file or stdin (- or a pipe), which is streamed.',
  arguments: [
    { name: '<topic>', description: 'words separated by dots' },
    { name: '[input]', description: '- reads the body from stdin' },
  ],
  options: [
    { flags: '--body <text>', description: 'the body as text' },
    { flags: '--json-body <json>', description: 'the body as JSON, checked' },
    { flags: '--file <path>', description: 'the body from a file' },
    { flags: '--content-type <type>', description: 'the header content-type' },
    { flags: '--header <name=value>', description: 'a header; may be repeated', repeatable: true },
    { flags: '--policy <name>', description: 'how it is retried' },
    { flags: '--priority <number>', description: '0 first to 9 last; default 5' },
    { flags: '--delay <span>', description: 'not before this much later, such as 15m' },
    { flags: '--expires <span>', description: 'bounce it if it is not delivered within this time' },
    { flags: '--destination <name>', description: 'where it goes, for limits' },
    { flags: '--id <id>', description: 'an id you choose; the same id again is a duplicate' },
    { flags: '--dedupe-key <key>', description: 'the same key again is a duplicate' },
    {
      flags: '--order-key <key>',
      description: 'deliver messages of this key one at a time, in order',
    },
  ],
  examples: [
    { line: `respool enqueue webhook.new --json-body '{"hello":1}'`, does: 'prints the id' },
    { line: 'respool enqueue report --delay 15m < report.csv', does: 'streams a file' },
  ],
  createsStore: true,
  role: 'post',
  run: async (context) => {
    const { args, session, options, out } = context;
    const topic = usageOf(() => checkTopic(args[0]), ['message.invalid']);
    const { body, type } = await bodyOf(context);
    const headers = headersOf(options.texts('header'), { said: options.text('contentType'), type });
    const message: Message = { topic, headers, body, ...optionsOf(context) };
    checkTexts({ ...message });
    checkTexts(headers);
    const { operator } = await session();
    await warnOfUnknownPolicy(context, operator, message.policy);
    const { id, duplicate } = await operator.enqueue(message);
    if (out.json) await out.object({ id, duplicate });
    else await out.line(safe(id));
    if (duplicate && !out.json) out.note('a duplicate: this is the id of the first one');
    return undefined;
  },
};

/** Node replaces bytes of an argument that are not UTF-8, and a message must not be changed. */
function checkTexts(values: Readonly<Record<string, unknown>>): void {
  const found = Object.entries(values).find(([name, value]) =>
    `${name}${typeof value === 'string' ? value : ''}`.includes(REPLACED),
  );
  if (found === undefined) return;
  const what = safe(found[0]);
  throw new CommandError(
    'usage.invalid',
    `cannot use ${what}: the argument is not UTF-8, or has the character U+FFFD; ` +
      'a body of any bytes comes from --file or stdin',
  );
}

const REPLACED = '\uFFFD';

function optionsOf({ options }: CommandContext): Partial<Message> {
  const priority = options.number('priority', { min: 0, max: PRIORITY_MAX });
  const names = ['policy', 'destination', 'id', 'dedupeKey', 'orderKey'] as const;
  const spans = ['delay', 'expires'] as const;
  const given = [
    ...names.map((name) => [name, options.text(name)] as const),
    ...spans.map((name) => [name, options.span(name)] as const),
  ];
  return {
    ...(Object.fromEntries(given.filter(([, value]) => value !== undefined)) as Partial<Message>),
    ...(priority === undefined ? {} : { priority }),
  };
}

function headersOf(
  texts: readonly string[],
  { said, type }: { readonly said: string | undefined; readonly type: string | undefined },
): Record<string, string> {
  // No prototype: a header named like a member of Object.prototype must reach the spool, which
  // refuses it.
  const headers = Object.create(null) as Record<string, string>;
  const contentType = said ?? type;
  if (contentType !== undefined) headers['content-type'] = contentType;
  const names = new Set(said === undefined ? [] : ['content-type']);
  for (const text of texts) {
    const at = text.indexOf('=');
    if (at < 1) {
      throw new CommandError(
        'usage.invalid',
        `cannot use "${safe(text)}" as --header: allowed is name=value`,
      );
    }
    const name = text.slice(0, at);
    if (names.has(name.toLowerCase())) {
      throw new CommandError(
        'usage.invalid',
        `--header ${safe(name)} was given twice: give it once`,
      );
    }
    names.add(name.toLowerCase());
    headers[name] = text.slice(at + 1);
  }
  return headers;
}

async function bodyOf(context: CommandContext): Promise<{ body: unknown; type?: string }> {
  const { args, io, options } = context;
  const [, input] = args;
  if (input !== undefined && input !== '-') {
    throw new CommandError(
      'usage.invalid',
      `cannot use "${safe(input)}" as the body: allowed is - for stdin; see --body and --file`,
    );
  }
  const text = options.text('body');
  const json = options.text('jsonBody');
  const file = options.text('file');
  const sources = [text, json, file, input].filter((source) => source !== undefined);
  if (sources.length > 1) {
    const allowed = '--body, --json-body, --file and -';
    throw new CommandError('usage.invalid', `only one body can be sent: give one of ${allowed}`);
  }
  if (text !== undefined) return { body: text };
  if (json !== undefined) return { body: checkedJson(json), type: JSON_TYPE };
  if (file !== undefined) return { body: await fileBody(path.resolve(io.cwd, file)) };
  // At a terminal, a user does not expect to type the body.
  return { body: input === '-' || !io.isTTY('stdin') ? io.stdin : '' };
}

function checkedJson(text: string): string {
  const refuse = (why: string): never => {
    throw new CommandError('usage.invalid', `cannot use --json-body: ${why}`);
  };
  try {
    JSON.parse(text);
  } catch (error) {
    refuse(`it is no JSON: ${safe(textOf(error))}`);
  }
  const { duplicateKeyAt, loneSurrogateAt } = scanJson(text);
  if (duplicateKeyAt !== undefined) {
    refuse(`duplicate key at character ${duplicateKeyAt + 1}; take one of the two out`);
  }
  if (loneSurrogateAt !== undefined) {
    const half = 'half of a surrogate pair, which cannot be written as UTF-8';
    refuse(`the text at character ${loneSurrogateAt + 1} has ${half}; write both halves, or none`);
  }
  return text;
}

async function fileBody(file: string): Promise<AsyncIterable<Uint8Array>> {
  try {
    const opened = await open(file);
    if (!(await opened.stat()).isDirectory()) return opened.createReadStream();
    await opened.close();
  } catch (error) {
    throw unreadable(file, textOf(error));
  }
  throw unreadable(file, 'it is a folder');
}

function unreadable(file: string, why: string): CommandError {
  const text = `cannot read the body from "${safe(file)}": ${safe(why)}`;
  return new CommandError('usage.invalid', text);
}

/** The message is stored anyway: the process that delivers may know the policy, or learn it. */
async function warnOfUnknownPolicy(
  { out }: CommandContext,
  operator: Operator,
  policy: string | undefined,
): Promise<void> {
  if (policy === undefined) return;
  const names = await policyNames(operator);
  if (names === undefined || names.includes(policy)) return;
  out.warn(`policy "${policy}" is not known here: known are ${names.join(', ')}`);
}

/** Undefined where they cannot be read, as by a token that may only post. */
async function policyNames(operator: Operator): Promise<readonly string[] | undefined> {
  try {
    return (await operator.policies()).map(({ name }) => name);
  } catch {
    return undefined;
  }
}
