/**
 * policy — what a retry policy means, attempt by attempt; listing policies, and assigning another
 * one to messages.
 *
 * A policy is typed as `exponential:5s,factor=2,max=6h,attempts=20`: the name of a constructor,
 * its first wait (or the waits of a ladder), then options. Values are checked as in a
 * configuration.
 *
 * `setPolicy` is also a command of `respool outbox`: outbox/messages.ts.
 */

import { runAction, ACTION_ARGUMENTS, ACTION_OPTIONS } from './act.ts';
import { CommandError } from '../../exit-codes.ts';
import { namedUrl } from '../../session.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';
import { tableOf } from '../../ui/table.ts';
import { formatDuration } from '../../../core/duration.ts';
import { RespoolError } from '../../../core/errors.ts';
import { failure } from '../../../core/failure.ts';
import type { Option, OptionTable } from '../../../core/option-table.ts';
import {
  type BackoffFunction,
  delayMs,
  POLICY_TABLES,
  type RetryPolicy,
} from '../../../core/policy.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { NamedPolicy } from '../../../spool/operator/operator.ts';

const explain: CommandSpec = {
  name: 'explain',
  summary: 'show a policy attempt by attempt',
  group: 'Inspect',
  description:
    'Shows when a message that always fails would be tried: the wait before each attempt ' +
    'and the time since the enqueue. Waits that a destination asks for (Retry-After) are ' +
    'not included.',
  arguments: [
    {
      name: '<policy>',
      description:
        'a name from the configuration, or a policy such as fixed:10s,attempts=5,maxAge=1d',
    },
  ],
  examples: [
    { line: 'respool policy explain default', does: 'the policy of messages that name none' },
    {
      line: 'respool policy explain exponential:5s,factor=2,max=6h,attempts=20',
      does: 'one that is not configured yet',
    },
    { line: 'respool policy explain ladder:2s,5s,15s', does: 'these waits, then no more' },
    {
      line: 'respool policy explain exponential:1m,max=6h,attempts=100,maxAge=3d',
      does: 'as many attempts as fit into three days',
    },
  ],
  role: 'read',
  run: async (context) => {
    const { out } = context;
    const { name, policy, backoffs } = await find(context);
    const { describePolicy } = await import('../../../core/policy.ts');
    const explained = explainPolicy(policy, backoffs);
    if (out.json) {
      for (const one of explained.attempts) await out.object({ id: one.attempt, ...one });
      return undefined;
    }
    await out.line(
      safe(name === undefined ? describePolicy(policy) : `${name}: ${describePolicy(policy)}`),
    );
    await out.line('');
    await out.line(await attemptTable(context, policy, explained));
    await out.line('');
    await out.line(endOf(policy, explained));
    if (policy.backoff.kind === 'custom') out.note(customNote(policy.backoff.name, backoffs));
    return undefined;
  },
};

const list: CommandSpec = {
  name: 'list',
  summary: 'the policies that messages can name',
  group: 'Inspect',
  role: 'read',
  run: async (context) => {
    const { out } = context;
    const { describePolicy } = await import('../../../core/policy.ts');
    const { policies } = await known(context);
    if (out.json) {
      for (const { name, policy } of policies) {
        await out.object({ id: name, description: describePolicy(policy), policy });
      }
      return undefined;
    }
    const rows = policies.map(({ name, policy }) => [safe(name), safe(describePolicy(policy))]);
    await out.line(
      tableOf(out, [{ head: 'name' }, { head: 'policy', isFlexible: true, isReason: true }], rows),
    );
    return undefined;
  },
};

/** `respool policy set` */
export const setPolicy: CommandSpec = {
  name: 'set',
  summary: 'give messages another policy',
  group: 'Control',
  description:
    'Gives messages a policy by its name in the configuration. Attempts already made still ' +
    'count; the new policy applies from the next failure on. Without --state, filters ' +
    'select incoming, deferred and held messages.',
  arguments: [
    { name: '<policy>', description: 'a policy name from the configuration' },
    ...ACTION_ARGUMENTS,
  ],
  options: ACTION_OPTIONS,
  examples: [
    {
      line: "respool policy set patient --state deferred --topic 'order.*'",
      does: 'counts the orders that wait, asks, and gives them the policy "patient"',
    },
  ],
  role: 'operate',
  run: (context) => {
    const [name = '', ...ids] = context.args;
    return runAction(
      { ...context, args: ids },
      {
        bulk: { kind: 'policy', policy: name },
        verb: 'set the policy of',
        done: 'set the policy of',
        byIds: (operator, some) => operator.setPolicy(some, name),
      },
    );
  },
};

/** `respool policy explain|list|set` */
export const policyCommand: CommandSpec = {
  name: 'policy',
  summary: 'explain retry policies, or give messages another one',
  group: 'Control',
  subcommands: [explain, list, setPolicy],
};

interface Known {
  readonly policies: readonly NamedPolicy[];
  readonly backoffs: Readonly<Record<string, BackoffFunction>>;
}

/** The policies of the service that was named, otherwise of the configuration; no store needed. */
async function known(context: CommandContext): Promise<Known> {
  if (namedUrl(context) !== undefined) {
    const { operator } = await context.session();
    return { policies: await operator.policies(), backoffs: {} };
  }
  const { config } = await context.config({ routes: false });
  const { postfix } = await import('../../../core/policy.ts');
  const named = new Map([['default', postfix()], ...Object.entries(config.policies)]);
  return {
    policies: [...named].map(([name, one]) => ({ name, policy: one })),
    backoffs: config.backoffs ?? {},
  };
}

async function find(
  context: CommandContext,
): Promise<{ name?: string; policy: RetryPolicy; backoffs: Known['backoffs'] }> {
  const [text = ''] = context.args;
  if (text.includes(':')) return { policy: await readPolicySpec(text), backoffs: {} };
  const { policies, backoffs } = await known(context);
  const found = policies.find(({ name }) => name === text);
  // A configured name wins: a user may have named a policy "postfix".
  if (found !== undefined) return { ...found, backoffs };
  if (isPolicySpec(text)) return { policy: await readPolicySpec(text), backoffs: {} };
  throw new RespoolError(
    'policy.unknown',
    `cannot explain policy "${text}": known are ${policies.map(({ name }) => name).join(', ')}, ` +
      'or write one, such as exponential:5s,max=6h,attempts=20',
  );
}

async function attemptTable(
  { out }: CommandContext,
  { jitter }: RetryPolicy,
  { attempts }: Explained,
): Promise<string> {
  const range = (from: number, to: number): string =>
    jitter === 0 || from === to
      ? formatDuration(from)
      : `${formatDuration(from)} to ${formatDuration(to)}`;
  const rows = attempts.map((one) => [
    String(one.attempt),
    one.attempt === 1 ? '-' : range(one.waitMs, one.waitMaxMs),
    range(one.sinceMs, one.sinceMaxMs),
  ]);
  const right = { align: 'right' as const };
  return tableOf(
    out,
    [
      { head: 'attempt', ...right },
      { head: 'wait before it', ...right },
      { head: 'since the enqueue', ...right },
    ],
    rows,
  );
}

function endOf({ maxAgeMs }: RetryPolicy, { attempts, end }: Explained): string {
  const total = formatDuration(attempts.at(-1)?.sinceMs ?? 0);
  const count = attempts.length === 1 ? '1 attempt' : `${attempts.length} attempts`;
  const text = `Gives up after ${count}, ${total} after the enqueue at the earliest`;
  if (end === 'attempts') return `${text}.`;
  const age = formatDuration(maxAgeMs ?? 0);
  return `${text}: the next one would come later than its maximum age of ${age}.`;
}

function customNote(name: string, backoffs: Known['backoffs']): string {
  return Object.hasOwn(backoffs, name)
    ? `The function "${safe(name)}" decides by the failure; shown is its answer to a plain one.`
    : `The function "${safe(name)}" is not known here; shown is its longest wait each time.`;
}

const { custom: _, ...SPELLABLE } = POLICY_TABLES;
const TABLES: Readonly<Record<string, OptionTable>> = SPELLABLE;
const WORDS = Object.keys(TABLES);

/** Whether a text is a spec: it has a colon, which no name has, or is that of a constructor. */
function isPolicySpec(text: string): boolean {
  return text.includes(':') || WORDS.includes(text);
}

/** The policy that a spec means. */
async function readPolicySpec(text: string): Promise<RetryPolicy> {
  const at = text.indexOf(':');
  const word = at === -1 ? text : text.slice(0, at);
  if (!WORDS.includes(word)) {
    throw new CommandError(
      'usage.invalid',
      `cannot use "${text}" as a policy: before the colon stands ${WORDS.join(', ')}, ` +
        'as in exponential:5s,factor=2,max=6h,attempts=20',
    );
  }
  const rest = at === -1 ? '' : text.slice(at + 1);
  const options = optionsOf(word, rest === '' ? [] : rest.split(','));
  const { configPolicyOf: policyOf } = await import('../../../config/load/policies.ts');
  return policyOf({ [word]: options }, text);
}

function optionsOf(word: string, parts: readonly string[]): Record<string, unknown> {
  const table = TABLES[word] ?? {};
  const options: Record<string, unknown> = {};
  const unnamed: string[] = [];
  for (const part of parts.map((one) => one.trim())) {
    const [, name, value] = /^(\w+)=(.*)$/.exec(part) ?? [];
    if (name === undefined || value === undefined) unnamed.push(part);
    else options[name] = isNumber(table[name]) && value !== '' ? Number(value) : value;
  }
  // A value without a name sets the required option; a ladder takes several.
  const name = Object.keys(table).find((one) => table[one]?.required === true);
  if (word === 'ladder') options['delays'] = unnamed;
  else if (unnamed.length > (name === undefined ? 0 : 1)) {
    throw new CommandError(
      'usage.invalid',
      `cannot use "${unnamed.at(-1)}" in a policy "${word}": after what stands first come ` +
        'options, such as attempts=5',
    );
  } else if (name !== undefined && unnamed.length === 1) options[name] = unnamed[0];
  return options;
}

function isNumber(option: Option | undefined): boolean {
  return option?.kind === 'number' || option?.kind === 'decimal';
}

/** One attempt of a message that always fails at once. */
interface ExplainedAttempt {
  readonly attempt: number;
  /** At least; chance may add up to `waitMaxMs`. */
  readonly waitMs: number;
  readonly waitMaxMs: number;
  /** From the enqueue to this attempt, at least. */
  readonly sinceMs: number;
  readonly sinceMaxMs: number;
}

/** A policy, attempt by attempt. */
interface Explained {
  readonly attempts: readonly ExplainedAttempt[];
  /** Why there is no further attempt. */
  readonly end: 'attempts' | 'age';
}

/** Just below one: the most that chance can add. */
const CHANCE_MAX = 1 - 2 ** -53;

/** The attempts of a message whose every attempt fails at once, with nothing asked for. */
function explainPolicy(
  policy: RetryPolicy,
  backoffs: Readonly<Record<string, BackoffFunction>> = {},
): Explained {
  const failed = failure('transient', 'explain', 'what if it failed');
  const attempts: ExplainedAttempt[] = [
    { attempt: 1, waitMs: 0, waitMaxMs: 0, sinceMs: 0, sinceMaxMs: 0 },
  ];
  for (let attempt = 1; attempt < policy.maxAttempts; attempt += 1) {
    const before = attempts[attempt - 1];
    const wait = (random: number): number =>
      delayMs({ policy, attempt, failure: failed, random, backoffs });
    const waitMs = wait(0);
    const waitMaxMs = wait(CHANCE_MAX);
    const sinceMs = (before?.sinceMs ?? 0) + waitMs;
    // An attempt that would come too late is not planned: the message bounces instead.
    if (policy.maxAgeMs !== null && sinceMs > policy.maxAgeMs) return { attempts, end: 'age' };
    const sinceMaxMs = (before?.sinceMaxMs ?? 0) + waitMaxMs;
    attempts.push({ attempt: attempt + 1, waitMs, waitMaxMs, sinceMs, sinceMaxMs });
  }
  return { attempts, end: 'attempts' };
}
