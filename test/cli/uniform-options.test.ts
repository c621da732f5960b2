/** A filter has one name and one form in every command, and an id can be shortened everywhere. */
import path from 'node:path';
import Database from 'better-sqlite3';
import { createOutbox } from 'respool/outbox';
import { describe, expect, test } from 'vitest';
import { FILTER_OPTIONS } from '../../src/cli/select-messages.ts';
import { ALL_COMMANDS, isId, lineOf, nameOf, namesOf, type Placed } from './command-tree.ts';
import { setup, type Shell } from './setup.ts';

/** The commands by the form in which each takes an option: `--topic <pattern>`. */
function formsOf(wanted: string): Map<string, string[]> {
  const forms = new Map<string, string[]>();
  for (const { path: words, spec } of ALL_COMMANDS) {
    for (const option of spec.options ?? []) {
      if (nameOf(option) !== wanted) continue;
      forms.set(option.flags, [...(forms.get(option.flags) ?? []), words]);
    }
  }
  return forms;
}

const NAMES = [...new Set(ALL_COMMANDS.flatMap(({ spec }) => namesOf(spec)))];

/** Options that are something else in these commands, and why. */
const OWN_FORMS: ReadonlyMap<string, readonly string[]> = new Map([
  // Keys of the configuration: each form of the file is taken.
  ['--concurrency', ['serve']],
  // Settings of rmq_retry_checker under their old names.
  ['--host', ['dlq sweep']],
  ['--port', ['dlq sweep']],
  // A place to send to: a receiver of alerts, a queue, a route.
  ['--to', ['alerts test', 'rabbit drain']],
  // Dead queues of a broker by pattern; consumers of the configuration by name.
  ['--queue', ALL_COMMANDS.map((one) => one.path).filter((words) => words.startsWith('dlq '))],
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
  // Deaths that a message may have, not messages.
  ['--max', ['dlq sweep']],
  ['--count', ['dlq purge']],
]);

test('the tree has all commands', () => {
  expect(ALL_COMMANDS.length).toBeGreaterThan(60);
});

test.each(NAMES)('%s has the same value in every command', (name) => {
  const own = OWN_FORMS.get(name) ?? [];
  const forms = [...formsOf(name)].filter(([, paths]) => !paths.every((at) => own.includes(at)));
  expect(Object.fromEntries(forms.length > 1 ? forms : [])).toEqual({});
});

test('a command that filters has all filters of messages that can hold there', () => {
  const filters = FILTER_OPTIONS.map(nameOf);
  // An outbox announces nothing. What is dead has a kind instead of a state, and a group.
  const missing = (words: string): readonly string[] => {
    if (words.startsWith('outbox ')) return ['--lane'];
    return words.startsWith('dlq ') ? ['--state', '--fingerprint', '--lane'] : [];
  };
  const filtering = ALL_COMMANDS.filter(({ spec }) => namesOf(spec).includes('--older-than'));
  expect(filtering.length).toBeGreaterThan(20);
  for (const { path: words, spec } of filtering) {
    const wanted = filters.filter((name) => !missing(words).includes(name));
    expect(namesOf(spec), words).toEqual(expect.arrayContaining(wanted));
  }
});

describe.each(ALL_COMMANDS)('respool $path', ({ path: words, spec }) => {
  test('calls a filter by its name', () => {
    for (const name of namesOf(spec)) {
      const exceptions = OTHER_WORDS.get(name);
      if (exceptions !== undefined) expect(exceptions, name).toContain(words);
    }
    // One filter alone is none of messages, apart from those of a list of its own.
    if (namesOf(spec).includes('--code')) expect(namesOf(spec)).toContain('--older-than');
  });

  test('takes an id by its beginning, and says so', () => {
    for (const argument of (spec.arguments ?? []).filter(isId)) {
      expect(argument.description).toContain('beginning');
    }
  });
});

describe('an id by its beginning', () => {
  const HEAD = '01a1e06c-024e';
  const ONE = `${HEAD}-7719-9c3b-8ad06b36cc9c`;
  const OTHER = `${HEAD}-7719-9c3b-8ad1ffff0000`;
  const taking = ALL_COMMANDS.filter(({ spec }) => (spec.arguments ?? []).some(isId));

  /** A bounced message, an outbox message and a replay under each of the two ids. */
  async function twins(): Promise<Shell> {
    const shell = await setup();
    const spool = shell.spool();
    for (const id of [ONE, OTHER]) await spool.enqueue({ id, topic: 'a', body: 'x' });
    await spool.operator({ by: 'ops' }).bounce([ONE, OTHER], { reason: 'to replay it' });
    await spool.stop();
    const planned = await shell.cli(['dlq', 'replay', '--plan-only', '--yes', '--json']);
    const { id } = planned.objects().at(-1) as { id: string };
    const again = shell.spool();
    const found = await again.operator({ by: 'ops' }).records.get('dlq.replays', id);
    for (const copy of [ONE, OTHER]) {
      await again
        .operator({ by: 'ops' })
        .records.put('dlq.replays', copy, { ...(found?.value as object), id: copy });
    }
    await again.stop();
    const database = new Database(path.join(shell.folder, 'app.db'));
    const outbox = createOutbox({ database });
    outbox.migrate();
    outbox.transaction((tx) => {
      for (const one of [ONE, OTHER]) outbox.emit(tx, 'a', {}, { id: one });
    });
    database.close();
    return shell;
  }

  function calling(placed: Placed, id: string): string[] {
    const isOutbox = placed.path.startsWith('outbox ');
    return [...lineOf(placed, id), ...(isOutbox ? ['--store', 'sqlite:./app.db'] : [])];
  }

  test('is asked for in the commands that this is about', () => {
    expect(taking.length).toBeGreaterThan(20);
  });

  test.each(taking)('that fits two is refused by respool $path', async (placed) => {
    const { cli } = await twins();
    const ran = await cli(calling(placed, HEAD));
    expect(ran.stderr).toContain(`"${HEAD}" is the beginning of several ids: ${ONE}, ${OTHER}`);
    expect(ran.code).toBe(2);
  });

  // The second form is that of tables.
  test.each(
    taking.flatMap((placed) => [
      { ...placed, typed: OTHER.slice(0, -4) },
      { ...placed, typed: `${HEAD}…${OTHER.slice(-4)}` },
    ]),
  )('that fits one is found by respool $path $typed', async (placed) => {
    const { cli } = await twins();
    const ran = await cli(calling(placed, placed.typed));
    expect(ran.stderr).not.toMatch(/there is no|several/);
    expect([0, 1]).toContain(ran.code);
  });
});

test.each([
  [['list', '--newer-than', '2h'], '--since'],
  [['list', '--before', '2h'], '--older-than'],
  [['retry', '--origin', 'x'], '--destination'],
  [['dlq', 'list', '--origin', 'x'], '--destination'],
  [['dlq', 'groups', '--newer-than', '1d'], '--since'],
  [['dlq', 'replay', '--max', '3'], '--limit'],
  [['rabbit', 'drain', 'a', '--max', '3'], '--limit'],
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
