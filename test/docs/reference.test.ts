/** The pages of docs/reference/ say what the code says: no name more, none less, the same values. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { createSpool, ERROR_CODES, STATES, stateNumber } from 'respool';
import { filesystem, filesystemBodies } from 'respool/stores/filesystem';
import { memoryBodies } from 'respool/stores/memory';
import { sqlite } from 'respool/stores/sqlite';
import { createTestSpool } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { HISTORY_MAX } from '../../src/core/entry.ts';
import { CODE_MAX_CHARS, REASON_MAX_CHARS } from '../../src/core/failure.ts';
import * as limits from '../../src/core/limits.ts';
import { NOTES_KEPT_MAX } from '../../src/core/next-status.ts';
import { ATTEMPTS_MAX } from '../../src/core/policy.ts';
import { TRANSITIONS } from '../../src/core/state.ts';
import { LOST_MAX } from '../../src/core/verdict.ts';
import { NOTE_VALUE_MAX_CHARS, NOTES_MAX, WHOLE_BODY_MAX_BYTES } from '../../src/engine/attempt.ts';
import { spoolSettingsOf } from '../../src/spool/options.ts';
import { headingsOf, ROOT, readPage, tableUnder, wordOf } from './pages.ts';

const source = (file: string): string => readFileSync(path.join(ROOT, 'src', file), 'utf8');

test('errors.md has one heading for each code, in the same order', () => {
  const page = readPage('docs/reference/errors.md');
  const codes = headingsOf(page, 2).filter((heading) => heading.includes('.'));
  expect(codes).toEqual([...ERROR_CODES]);
});

test('events.md lists every kind of event', () => {
  const page = readPage('docs/reference/events.md');
  const listed = tableUnder(page, 'Events').map(([kind]) => wordOf(kind));
  const kinds: string[] = [];
  for (const [, union = ''] of source('core/event.ts').matchAll(
    /kind: ((?:'[\w-]+'(?: \| )?)+)/g,
  )) {
    for (const [, kind = ''] of union.matchAll(/'([\w-]+)'/g)) kinds.push(kind);
  }
  expect(kinds.length).toBeGreaterThan(15);
  expect(listed.toSorted()).toEqual(kinds.toSorted());
});

test('states.md has the table of moves that core/state.ts has', () => {
  const page = readPage('docs/reference/states.md');
  const written = tableUnder(page, 'Moves').map(([from, to, by]) => [wordOf(from), wordOf(to), by]);
  const coded = STATES.flatMap((from) =>
    Object.entries(TRANSITIONS[from]).map(([to, movers]) => [from, to, movers.join(', ')]),
  );
  const order = (rows: typeof written) => rows.map((row) => row.join(' ')).toSorted();
  expect(order(written)).toEqual(order(coded));
  const numbers = tableUnder(page, 'States').map(([number, state]) => [wordOf(state), number]);
  expect(numbers).toEqual(STATES.map((state) => [state, String(stateNumber(state))]));
});

test('testkit.md names everything that respool/testkit exports', () => {
  const page = readPage('docs/reference/testkit.md');
  const listed = headingsOf(page, 2).flatMap((heading) =>
    tableUnder(page, heading).map(([name]) => wordOf(name)),
  );
  const exported: string[] = [];
  for (const [, names = ''] of source('testkit/index.ts').matchAll(
    /export (?:type )?\{([^}]+)\}/g,
  )) {
    for (const name of names.split(',')) {
      const word = name.trim().replace(/^type /, '');
      if (word !== '') exported.push(word);
    }
  }
  expect(listed.toSorted()).toEqual(exported.toSorted());
});

describe('write-a-store.md lists the members of each interface, and which are optional', () => {
  const page = readPage('docs/how-to/write-a-store.md');
  test.each([
    ['EntryStore', 'ports/entry-store.ts'],
    ['RecordStore', 'ports/record-store.ts'],
    ['BodyStore', 'ports/body-store.ts'],
  ])('%s', (name, file) => {
    const [, body = ''] = source(file).split(`export interface ${name} {\n`);
    const [members = ''] = body.split('\n}\n');
    const coded = [...members.matchAll(/^ {2}(?:readonly )?(\w+)(\??)[(:]/gm)];
    const listed = tableUnder(page, name).map(([member, , does = '']) => [
      wordOf(member),
      does.startsWith('*optional*') ? '?' : '',
    ]);
    expect(coded.length).toBeGreaterThan(5);
    expect(listed).toEqual(coded.map(([, member, optional]) => [member, optional]));
  });
});

describe('options.md', () => {
  const page = readPage('docs/reference/options.md');
  const names = (heading: string): string[] =>
    tableUnder(page, heading).map(([name]) => wordOf(name));
  const defaults = (heading: string): Record<string, string> =>
    Object.fromEntries(
      tableUnder(page, heading).map(([name, , value]) => [wordOf(name), value ?? '']),
    );

  /** What a door says when it is given an option that does not exist. */
  async function known(ask: () => unknown): Promise<string[]> {
    let text = '';
    try {
      await ask();
    } catch (error) {
      text = (error as Error).message;
    }
    const list = /known are (.+)$/.exec(text)?.[1];
    expect(list, text).toBeDefined();
    return (list ?? '').split(', ');
  }

  const wrong = { nonsense: 1 };
  const handler = () => undefined;
  const doors: Readonly<Record<string, () => unknown>> = {
    createSpool: () => createSpool(wrong as object),
    retention: () => createSpool({ retention: wrong as object }),
    limits: () => createSpool({ limits: wrong as object }),
    caretaker: () => createSpool({ caretaker: wrong as object }),
    handle: () => createSpool().handle('x', handler, wrong as object),
    onBounce: () => createSpool().onBounce('x', handler, wrong as object),
    enqueue: async () => {
      await using spool = (await createTestSpool()).spool;
      await spool.enqueue({ topic: 'x', ...wrong });
    },
    'list, page and tally': async () => {
      await using spool = (await createTestSpool()).spool;
      await spool.page(wrong as object);
    },
    sqlite: () => sqlite({ path: 'x', ...wrong }),
    filesystem: () => filesystem({ path: 'x', ...wrong }),
    filesystemBodies: () => filesystemBodies({ path: 'x', ...wrong }),
    memory: () => memoryBodies(wrong as object),
  };

  test.each(Object.entries(doors))('lists the options of %s', async (heading, ask) => {
    expect(names(heading).toSorted()).toEqual((await known(ask)).toSorted());
  });

  test('tells the defaults that TSDoc tells of handlers', () => {
    const texts: Readonly<Record<string, readonly [string, string, RegExp][]>> = {
      'spool/spool.ts': [['stop', 'within', /within = '(\w+)'/]],
    };
    for (const [file, rows] of Object.entries(texts)) {
      for (const [heading, name, pattern] of rows) {
        const coded = pattern.exec(source(file))?.[1]?.replaceAll('_', '');
        expect(defaults(heading)[name], `${heading}.${name}`).toBe(coded);
      }
    }
  });
});

test('limits.md tells the limits of the code', () => {
  const page = readPage('docs/reference/limits.md');
  const rows = headingsOf(page, 2).flatMap((heading) => tableUnder(page, heading));
  const limit = (what: string): string => rows.find(([name]) => name === what)?.[1] ?? 'no row';
  const settings = spoolSettingsOf({});
  const number = (value: number): string => value.toLocaleString('en');
  expect({
    body: limit('body'),
    inline: limit('inline body'),
    headers: limit('headers, names and values together'),
    count: limit('number of headers'),
    topic: limit('topic, topic pattern'),
    key: limit('dedupe key, destination'),
    priority: limit('priority'),
    code: limit('code of a failure'),
    reason: limit('reason of a failure, hold or postponement'),
    history: limit('history of a message'),
    notes: limit('notes of one attempt'),
    kept: limit('notes of a message'),
    note: limit('value of a note'),
    whole: limit('whole body in memory (`body`, `text`, `json`)'),
    lost: limit('holders lost in a row').slice(0, 1),
    concurrency: limit('handlers at once'),
  }).toEqual({
    body: `${settings.bodyMaxBytes / 2 ** 20} MiB`,
    inline: `${settings.inlineMaxBytes / 1024} KiB`,
    headers: `${settings.headerMaxBytes / 1024} KiB`,
    count: String(limits.HEADERS_MAX),
    topic: `${limits.TOPIC_MAX_CHARS} characters`,
    key: `${limits.KEY_MAX_CHARS} characters`,
    priority: `0 to ${limits.PRIORITY_MAX}`,
    code: `${CODE_MAX_CHARS} characters`,
    reason: `${number(REASON_MAX_CHARS)} characters`,
    history: `the last ${HISTORY_MAX} attempts`,
    notes: `${NOTES_MAX} notes`,
    kept: `${NOTES_KEPT_MAX} over all attempts`,
    note: `${number(NOTE_VALUE_MAX_CHARS)} characters`,
    whole: `${WHOLE_BODY_MAX_BYTES / 2 ** 20} MiB`,
    lost: String(LOST_MAX),
    concurrency: String(settings.concurrency),
  });
  const attempts = rows.find(([name]) => name === 'attempts of a policy')?.[2];
  expect(attempts).toContain(number(ATTEMPTS_MAX));
});
