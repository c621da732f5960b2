/**
 * doors — tests import the package as its users do, unless what they prove has no public name.
 *
 * The limits only fall: lower them when a test stops importing files of src/.
 */
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import manifest from '../../package.json' with { type: 'json' };
import { type Doors, internalModules, publicNamesComeFromDoors } from './door-rules.ts';
import { parseSource, readSources } from './source.ts';

interface InternalLimit {
  /** Most files of this folder of test/ that may import files of src/. */
  readonly files: number;
  /** What they need there that has no public name. */
  readonly why: string;
}

const LIMITS: Readonly<Record<string, InternalLimit>> = {
  cli: { files: 34, why: 'the table of commands, exit codes and output; it is run, not imported' },
  config: { files: 22, why: 'reading, checking and opening a configuration; only the CLI does' },
  core: { files: 20, why: 'pure functions that decide: each case, without an engine around them' },
  'dead-letters': { files: 15, why: 'steps of a replay between which a process may end' },
  deliver: { files: 7, why: 'answers and addresses that no server can be made to give' },
  docs: { files: 7, why: 'limits, commands and option tables that pages repeat' },
  engine: { files: 3, why: 'claiming ahead and slots, counted without a store' },
  frozen: { files: 5, why: 'tables, formats and texts that are frozen' },
  nodes: { files: 1, why: 'findings about a server' },
  observe: { files: 22, why: 'alerts, and what only faults or time bring about' },
  operator: { files: 4, why: 'meters that the service makes for its operator' },
  outbox: { files: 7, why: 'a relay whose store and wake-ups a test controls' },
  properties: { files: 7, why: 'properties of the pure functions of core' },
  rabbit: { files: 48, why: 'what a broker does at moments that no public method chooses' },
  sim: { files: 2, why: 'mutants of the code under simulation' },
  spool: { files: 8, why: 'records, leases and fairness, moment by moment' },
  stores: { files: 1, why: 'claims, counted in looks' },
  'stores/filesystem': { files: 5, why: 'files and their layout after a power cut' },
  'stores/nats': { files: 12, why: 'subjects and messages in a bucket, and rivals on them' },
  'stores/postgres': { files: 21, why: 'statements, their plans and their cost' },
  'stores/s3': { files: 2, why: 'keys of objects, and findings about a bucket' },
  'stores/shared': { files: 7, why: 'heaps, trees, batches and locks, each by itself' },
  'stores/sqlite': { files: 12, why: 'rows, damage and the thread of a file' },
  system: { files: 4, why: 'waits, clocks and breakers, each by itself' },
  testkit: { files: 1, why: 'a source made of the insides of a spool' },
  transforms: { files: 15, why: 'codecs and headers, byte by byte' },
  web: { files: 7, why: 'the service, and limits of connections and memory' },
};

/** Most files of src/ that tests import. */
const MODULES_MAX = 226;

const doors: Doors = Object.fromEntries(
  Object.entries(manifest.exports).map(([subpath, { 'respool-source': file }]) => [
    path.posix.join(manifest.name, subpath),
    path.posix.relative('src', file),
  ]),
);

const tests = readSources(path.join(import.meta.dirname, '..'));
const internal = tests
  .map((source) => ({ file: source.path, modules: internalModules(source) }))
  .filter(({ modules }) => modules.length > 0);

describe('test/', () => {
  test('what has a public name is imported by it', () => {
    const sources = readSources(path.join(import.meta.dirname, '../../src'));
    const list = publicNamesComeFromDoors(tests, sources, doors);
    expect(list.map(({ path: file, line, what }) => `test/${file}:${line} ${what}`)).toEqual([]);
  });

  test.each(Object.entries(LIMITS))('%s: as few files as needed import files of src/', (...row) => {
    const [room, { files }] = row;
    const found = internal.filter(({ file }) => roomOf(file) === room).map(({ file }) => file);
    expect(found.length, found.join('\n')).toBeLessThanOrEqual(files);
  });

  test('every folder that imports files of src/ has a limit', () => {
    const rooms = new Set(internal.map(({ file }) => roomOf(file)));
    expect([...rooms].filter((room) => LIMITS[room] === undefined)).toEqual([]);
    expect(Object.keys(LIMITS).filter((room) => !rooms.has(room))).toEqual([]);
  });

  test('as few files of src/ as needed are imported', () => {
    const modules = new Set(internal.flatMap((one) => one.modules));
    expect(modules.size).toBeLessThanOrEqual(MODULES_MAX);
  });
});

describe('the rule', () => {
  const SOURCES = {
    'index.ts': "export { a, type B as C } from './core/a.ts';",
    'core/a.ts': 'export const a = 1; export interface B {} export function inner() {}',
    'rabbit/index.ts': "export * as nothing from './d.ts'; export { d } from './d.ts';",
    'rabbit/d.ts': "import { e } from './e.ts'; export { e as d };",
    'rabbit/e.ts': 'export class e {}',
  };
  const violations = (text: string) =>
    publicNamesComeFromDoors(
      [parseSource('rabbit/a.test.ts', text)],
      Object.entries(SOURCES).map(([file, source]) => parseSource(file, source)),
      { respool: 'index.ts', 'respool/rabbit': 'rabbit/index.ts' },
    ).map(({ what }) => what);

  test.each([
    ["import { a } from '../../src/core/a.ts';", 'take "a" from "respool"'],
    ["import { inner, a as b } from '../../src/core/a.ts';", 'take "a" from "respool"'],
    ["import type { B } from '../../src/core/a.ts';", 'take "C" from "respool"'],
    ["export { a } from '../../src/core/a.ts';", 'take "a" from "respool"'],
    ["type X = import('../../src/core/a.ts').B;", 'take "C" from "respool"'],
    ["import { a } from '../../src/index.ts';", 'take "a" from "respool"'],
    ["import { e } from '../../src/rabbit/e.ts';", 'take "d" from "respool/rabbit"'],
    ["import { d } from '../../src/rabbit/d.ts';", 'take "d" from "respool/rabbit"'],
  ])('catches %s', (text, advice) => {
    expect(violations(text)).toEqual([expect.stringContaining(advice)]);
  });

  test.each([
    "import { a } from 'respool';",
    "import { inner } from '../../src/core/a.ts';",
    "import { a } from '../core/a.ts';",
    "import * as all from '../../src/core/a.ts';",
  ])('allows %s', (text) => {
    expect(violations(text)).toEqual([]);
  });
});

/** The folder of a file in test/; stores and the files of test/ itself count by themselves. */
function roomOf(file: string): string {
  const [first = '', second = '', ...rest] = file.split('/');
  return first === 'stores' && rest.length > 0 ? `${first}/${second}` : first;
}
