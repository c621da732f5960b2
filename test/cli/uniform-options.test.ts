/** A filter has one name and one form in every command, and an id can be shortened everywhere. */
import { describe, expect, test } from 'vitest';
import { commands } from '../../src/cli/commands.ts';
import { FILTER_OPTIONS } from '../../src/cli/filters.ts';
import type { CommandSpec, OptionSpec } from '../../src/cli/spec.ts';
import { setup } from './setup.ts';

interface Placed {
  readonly path: string;
  readonly spec: CommandSpec;
}

/** Every command that does something, with the words that lead to it. */
function allOf(list: readonly CommandSpec[], above = ''): Placed[] {
  return list.flatMap((spec) => {
    const path = `${above} ${spec.name}`.trim();
    const below = allOf(spec.subcommands ?? [], path);
    return spec.run === undefined ? below : [{ path, spec }, ...below];
  });
}

const ALL = allOf(commands);

function nameOf({ flags }: OptionSpec): string {
  return flags.split(' ')[0] ?? '';
}

function namesOf({ options = [] }: CommandSpec): readonly string[] {
  return options.map(nameOf);
}

/** What filters are called, each with its value. */
const FILTERS = new Map([
  ['--state', '<state>'],
  ['--topic', '<pattern>'],
  ['--destination', '<name>'],
  ['--header', '<name=value>'],
  ['--code', '<code>'],
  ['--fingerprint', '<print>'],
  ['--text', '<text>'],
  ['--older-than', '<span>'],
  ['--since', '<when>'],
  ['--lane', '<lane>'],
  ['--limit', '<count>'],
]);

/** Other words for a filter, and the commands in which the word means something else. */
const OTHER_WORDS = new Map<string, readonly string[]>([
  ['--newer-than', []],
  ['--younger-than', []],
  ['--before', []],
  ['--until', []],
  // A number in the audit record, not a time.
  ['--after', ['audit', 'outbox audit']],
  ['--origin', []],
  ['--dest', []],
  ['--error', []],
  ['--error-code', []],
  ['--status', []],
  ['--grep', []],
  ['--search', []],
]);

test('the tree has all commands', () => {
  expect(ALL.length).toBeGreaterThan(60);
});

test('the filters of messages are those that the tree is looked through for', () => {
  const known = FILTER_OPTIONS.map(nameOf);
  expect([...FILTERS.keys()].filter((name) => name !== '--limit')).toEqual(known);
});

describe.each(ALL)('respool $path', ({ path, spec }) => {
  test('calls a filter by its name, and gives it the same value', () => {
    for (const option of spec.options ?? []) {
      const value = FILTERS.get(nameOf(option));
      if (value === undefined) continue;
      // The old settings of a sweep keep their form; a state there is one of its own.
      const isOwn = path === 'dlq sweep' && nameOf(option) === '--limit';
      if (!isOwn) expect(option.flags).toBe(`${nameOf(option)} ${value}`);
    }
    for (const name of namesOf(spec)) {
      const exceptions = OTHER_WORDS.get(name);
      if (exceptions !== undefined) expect(exceptions, name).toContain(path);
    }
  });

  test('takes all filters that go together, or none', () => {
    const names = namesOf(spec);
    if (!names.includes('--code')) return;
    const together = ['--topic', '--destination', '--header', '--text', '--older-than', '--since'];
    expect(names).toEqual(expect.arrayContaining(together));
  });

  test('takes an id by its beginning, and says so', () => {
    for (const { name, description } of spec.arguments ?? []) {
      if (/\bid\b/.test(name)) expect(description).toContain('beginning');
    }
  });
});

test.each([
  [['list', '--newer-than', '2h'], '--since'],
  [['list', '--before', '2h'], '--older-than'],
  [['retry', '--origin', 'x'], '--destination'],
  [['dlq', 'list', '--origin', 'x'], '--destination'],
  [['dlq', 'groups', '--newer-than', '1d'], '--since'],
  [['outbox', 'list', '--status', 'hold'], '--state'],
])('%j is answered with the name it has here', async (words, name) => {
  const { cli } = await setup({ hasStore: true });
  const ran = await cli(words);
  expect(ran.code).toBe(2);
  expect(ran.stderr).toContain(`did you mean "${name}"?`);
});

test('another word is not taken for a filter that the command does not have', async () => {
  const { cli } = await setup();
  const ran = await cli(['enqueue', 'a', '--newer-than', '2h']);
  expect(ran.code).toBe(2);
  expect(ran.stderr).not.toContain('--since');
});
