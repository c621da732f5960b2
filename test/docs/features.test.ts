/** docs/project/features.md: every row once, and every test that it names is there. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { nats, natsBodies } from 'respool/stores/nats';
import { postgres } from 'respool/stores/postgres';
import { bodyStoreSuite, entryStoreSuite } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { headingsOf, ROOT, readPage, tableUnder, wordOf } from './pages.ts';

const ROWS = 221;
const page = readPage('docs/project/features.md');
const rows = headingsOf(page, 2)
  .flatMap((heading) => tableUnder(page, heading))
  .filter(([row]) => /^R\d+$/.test(row ?? ''));
const options = tableUnder(page, 'Options');
const serverOptions = tableUnder(page, 'Options of stores on servers');
const rabbitOptions = tableUnder(page, 'Options of RabbitMQ');
const outboxOptions = tableUnder(page, 'Options of the outbox');

/** The promises of the stores are cases of the suites; a file that runs a suite has them all. */
const never = (): never => {
  throw new Error('only the names are asked for');
};
const SUITES: Readonly<Record<string, readonly string[]>> = {
  entryStoreSuite: entryStoreSuite(never, {
    canReopen: true,
    canShare: true,
    canDamage: true,
    canExpireLost: true,
    canOrder: true,
  }).map(({ name }) => name),
  bodyStoreSuite: bodyStoreSuite(never, { canReopen: true }).map(({ name }) => name),
};

test('every row from R1 to R221 is there once, in order, with a sentence', () => {
  expect(rows.map(([row]) => row)).toEqual(Array.from({ length: ROWS }, (_, at) => `R${at + 1}`));
  expect(rows.filter(([, sentence = '']) => sentence.length < 10)).toEqual([]);
});

test('every row says open, or names tests that exist under that title', () => {
  const wrong = [...rows, ...options, ...serverOptions, ...rabbitOptions, ...outboxOptions].flatMap(
    (cells) => {
      const proof = cells.at(-1) ?? '';
      if (proof === 'open') return [];
      const named = [...proof.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name);
      if (named.length === 0) return [`${cells[0]} names nothing`];
      return named.filter((name) => !exists(name)).map((name) => `${cells[0]}: ${name}`);
    },
  );
  expect(wrong).toEqual([]);
});

test('every option of docs/reference/options.md names a test', () => {
  const reference = readPage('docs/reference/options.md');
  const known = headingsOf(reference, 2).flatMap((heading) =>
    tableUnder(reference, heading).map(([name]) => `${heading}: ${wordOf(name)}`),
  );
  expect(options.map(([name]) => (name ?? '').replaceAll('`', ''))).toEqual(known);
  expect(options.filter(([, proof]) => proof === 'open').map(([name]) => name)).toEqual([]);
});

test('every option of docs/reference/stores/ names a test', () => {
  const known = ['postgres', 'nats', 's3'].flatMap((store) =>
    tableUnder(readPage(`docs/reference/stores/${store}.md`), 'Options').flatMap(([names = '']) =>
      wordsOf(names).map((name) => `${store}: ${name}`),
    ),
  );
  expect(serverOptions.map(([name = '']) => name.replaceAll('`', ''))).toEqual(known);
});

test('every option of docs/reference/rabbit.md is there', () => {
  const known = ['createConsumer', 'createPublisher', 'createConnection'].flatMap((door) =>
    tableUnder(readPage('docs/reference/rabbit.md'), `Options of ${door}`).flatMap(([names = '']) =>
      wordsOf(names).map((name) => `${door}: ${name}`),
    ),
  );
  expect(rabbitOptions.map(([name = '']) => name.replaceAll('`', ''))).toEqual(known);
});

test('every option of docs/reference/outbox.md names a test', () => {
  const known = ['createOutbox', 'emit', 'relay', 'once', 'listen'].flatMap((door) =>
    tableUnder(readPage('docs/reference/outbox.md'), `Options of ${door}`).flatMap(([names = '']) =>
      wordsOf(names).map((name) => `${door}: ${name}`),
    ),
  );
  expect(outboxOptions.map(([name = '']) => name.replaceAll('`', ''))).toEqual(known);
});

test.each([
  ['postgres', [postgres]],
  ['nats', [nats, natsBodies]],
])('docs/reference/stores/%s.md lists every option that the store knows', (name, makers) => {
  const known = new Set(makers.flatMap(namesKnownTo));
  const page = readPage(`docs/reference/stores/${name}.md`);
  const listed = tableUnder(page, 'Options').flatMap(([names = '']) => wordsOf(names));
  expect(listed.toSorted()).toEqual([...known].toSorted());
});

/** A store that is given a word it does not know lists those that it does. */
function namesKnownTo(make: (options: object) => unknown): readonly string[] {
  try {
    make({ nothing: 1 });
  } catch (error) {
    return (error as Error).message.split('known are ')[1]?.split(', ') ?? [];
  }
  return [];
}

describe('a named test', () => {
  test('that is not there is noticed', () => {
    expect(exists('test/docs/features.test.ts › that is not there is noticed')).toBe(true);
    expect(exists(`test/docs/features.test.ts › ${['that nobody', 'wrote'].join(' ')}`)).toBe(
      false,
    );
    expect(exists('test/docs/nowhere.test.ts › that is not there is noticed')).toBe(false);
  });

  test('may be one case of a table', () => {
    expect(exists('test/docs/snippets.test.ts › docs/start.md run as written')).toBe(true);
  });
});

/** One row may be of several options. */
function wordsOf(cell: string): string[] {
  return [...cell.matchAll(/`(\w+)`/g)].map(([, name = '']) => name);
}

function exists(name: string): boolean {
  const [file = '', title = ''] = name.split(' › ');
  const target = path.join(ROOT, file);
  if (title === '' || !file.endsWith('.test.ts') || !existsSync(target)) return false;
  const text = readFileSync(target, 'utf8');
  if (text.includes(title)) return true;
  // A file may run a suite through a helper beside it.
  const beside = [...text.matchAll(/from '(\.\/[^']+)'/g)].map(([, other = '']) =>
    readFileSync(path.join(path.dirname(target), other), 'utf8'),
  );
  const whole = [text, ...beside].join('\n');
  const suites = Object.entries(SUITES).filter(([suite]) => whole.includes(suite));
  if (suites.some(([, names]) => names.includes(title))) return true;
  // A title with a place to fill in, such as '%s run as written'.
  const titles = [...text.matchAll(/(['"`])((?:(?!\1).)*(?:%[sdijo]|\$\{)(?:(?!\1).)*)\1/g)];
  return titles.some(([, , pattern = '']) => fits(pattern, title));
}

function fits(pattern: string, title: string): boolean {
  const parts = pattern.split(/%[sdijo]|\$\{[^}]*\}/);
  // What is only a place to fill in says nothing.
  if (parts.join('').trim().length < 8) return false;
  const escaped = parts.map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`));
  return new RegExp(`^${escaped.join('.+')}$`).test(title);
}
