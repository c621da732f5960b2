/**
 * tidy — keep src/ in the shape ARCHITECTURE.md describes, by a test and not by memory.
 *
 * An import points to a lower floor or stays inside its room. Rooms on the same floor do not
 * see each other. src/index.ts is the front door and may see everything.
 */
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import * as rules from './tidy/rules.ts';
import { parseSource, readSources } from './tidy/source.ts';

const FLOORS: rules.Floors = {
  9: ['cli'],
  8: ['web', 'tui'],
  7: ['config'],
  6: ['dead-letters'],
  5: ['outbox', 'observe', 'testkit'],
  4: ['spool', 'rabbit', 'deliver', 'middleware'],
  3: [
    'engine',
    'stores/memory',
    'stores/filesystem',
    'stores/sqlite',
    'stores/postgres',
    'stores/nats',
    'stores/s3',
    'transforms',
  ],
  2: ['system', 'stores/shared'],
  1: ['ports'],
  0: ['core'],
};

/** Sample files, by path; the content is what a rule has to judge. */
type Sample = Readonly<Record<string, string>>;

interface RuleCase {
  readonly rule: rules.Rule;
  readonly bad: readonly Sample[];
  readonly good: readonly Sample[];
}

const home = ['', 'home', 'me', 'spool'].join('/');
const lines = (count: number, text = 'work();') => `${text}\n`.repeat(count);

const CASES: Readonly<Record<string, RuleCase>> = {
  'an import points to a lower floor or stays inside its room': {
    rule: rules.importsPointDown,
    bad: [
      { 'core/a.ts': "import type { B } from '../ports/b.ts';" },
      { 'stores/memory/a.ts': "import { b } from '../sqlite/b.ts';" },
      { 'stores/shared/a.ts': "export { b } from '../../system/b.ts';" },
      { 'engine/a.ts': "const b = await import('../spool/b.ts');" },
      { 'engine/a.ts': "const b = new URL('../stores/memory/b.ts', import.meta.url);" },
      { 'engine/a.ts': "import { b } from '../index.ts';" },
      { 'attic/a.ts': "import { b } from '../core/b.ts';" },
      { 'cli/a.ts': "import { b } from '../attic/b.ts';" },
    ],
    good: [
      { 'core/a.ts': "import { b } from './deep/b.ts';" },
      { 'spool/a.ts': "import { b } from '../stores/sqlite/index.ts';" },
      { 'stores/sqlite/a.ts': "import { b } from '../shared/b.ts';" },
      { 'index.ts': "export * from './cli/a.ts';" },
    ],
  },
  'an import points to a lower folder of rabbit or stays inside its folder': {
    rule: rules.foldersPointDown,
    bad: [
      { 'rabbit/connection/a.ts': "import { b } from '../consume/b.ts';" },
      { 'rabbit/message-history.ts': "import { b } from './compat/b.ts';" },
      { 'rabbit/attic/a.ts': "import { b } from '../connection/b.ts';" },
    ],
    good: [
      { 'rabbit/consume/a.ts': "import { b } from '../connection/b.ts';" },
      { 'rabbit/consume/a.ts': "import { b } from './b.ts';" },
      { 'rabbit/index.ts': "export { b } from './migrate/b.ts';" },
      { 'outbox/a.ts': "import { b } from '../rabbit/publish/b.ts';" },
    ],
  },
  'a relative import names an existing file with its extension': {
    rule: rules.importsNameExistingFiles,
    bad: [
      { 'core/a.ts': "import { b } from './b';", 'core/b.ts': '' },
      { 'core/a.ts': "import { b } from './b.js';", 'core/b.ts': '' },
      { 'core/a.ts': "import { b } from '../../test/b.ts';" },
      { 'cli/a.ts': "import { b } from 'respool/testkit';" },
    ],
    good: [{ 'core/a.ts': "import { b } from './b.ts';", 'core/b.ts': '' }],
  },
  'a comment names existing files': {
    rule: rules.commentsNameExistingFiles,
    bad: [
      { 'core/a.ts': '// Sorted by b.ts.' },
      { 'core/a.ts': '/** n.b. What it means: cli/b.ts. */', 'core/b.ts': '' },
      { 'core/a.ts': '/**\n * a — the first.\n *\n * The second: ../deep/b.ts\n */' },
    ],
    good: [
      { 'core/a.ts': '/** The rest: b.ts, core/b.ts, src/core/b.ts, ./b.ts. */', 'core/b.ts': '' },
      { 'core/a.ts': "/** Such as 'repair.ts', or `repair.ts`; measured by bench/claim.ts. */" },
      { 'core/a.ts': "const text = 'cannot read repair.ts';" },
    ],
  },
  'imports form no cycle': {
    rule: rules.importsFormNoCycle,
    bad: [
      { 'core/a.ts': "import './b.ts';", 'core/b.ts': "import type { A } from './a.ts';" },
      { 'core/a.ts': "import './a.ts';" },
      {
        'core/a.ts': "import './b.ts';",
        'core/b.ts': "export * from './c.ts';",
        'core/c.ts': "import './b.ts';",
      },
    ],
    good: [
      { 'core/a.ts': "import './b.ts'; import './c.ts';", 'core/b.ts': "import './c.ts';" },
      {
        'engine/a.ts': "new URL('./worker.ts', import.meta.url);",
        'engine/worker.ts': "import type { A } from './a.ts';",
      },
    ],
  },
  'only system/ asks for the time, for chance or for a timer': {
    rule: rules.timeAndChanceLiveInSystem,
    bad: [
      { 'core/a.ts': 'const now = Date.now();' },
      { 'core/a.ts': 'const clock = { now: Date.now };' },
      { 'core/a.ts': 'const now = new Date();' },
      { 'core/a.ts': 'const now = new Date;' },
      { 'core/a.ts': 'const now = globalThis.performance.now();' },
      { 'core/a.ts': 'const dice = Math.random();' },
      { 'testkit/a.ts': 'setTimeout(work, 1);' },
      { 'testkit/a.ts': 'globalThis.setInterval(work, 1);' },
      { 'stores/sqlite/worker.ts': 'const later = { setImmediate };' },
      { 'engine/a.ts': 'const signal = AbortSignal.timeout(5);' },
      { 'engine/a.ts': "import { setTimeout as sleep } from 'node:timers/promises';" },
    ],
    good: [
      { 'system/a.ts': 'setTimeout(work, Date.now() + Math.random());' },
      { 'core/a.ts': 'const at = new Date(now);' },
      { 'core/a.ts': 'interface Clock { setTimeout(work: Work): void }' },
      { 'core/a.ts': 'clock.setTimeout(work);' },
      { 'core/a.ts': 'type Timer = ReturnType<typeof setTimeout>;' },
    ],
  },
  'only cli/ prints or exits': {
    rule: rules.onlyTheCommandLinePrintsOrExits,
    bad: [
      { 'web/a.ts': "console.log('x');" },
      { 'engine/a.ts': 'process.exit(1);' },
      { 'engine/a.ts': 'const log = logger ?? console;' },
    ],
    good: [{ 'cli/a.ts': "console.log('x'); process.exit(1);" }, { 'core/a.ts': 'a.console();' }],
  },
  'ports/ holds types only': {
    rule: rules.portsHoldTypesOnly,
    bad: [
      { 'ports/a.ts': 'export const a = 1;' },
      { 'ports/a.ts': "import { b } from '../core/b.ts';" },
      { 'ports/a.ts': "export { b } from '../core/b.ts';" },
      { 'ports/a.ts': 'export function a(): void {}' },
    ],
    good: [
      {
        'ports/a.ts':
          "import type { B } from '../core/b.ts';\nexport type { B };\nexport interface A { b: B }",
      },
    ],
  },
  'a file has at most 700 lines': {
    rule: rules.filesAreShort,
    bad: [{ 'core/a.ts': lines(701) }],
    good: [{ 'core/a.ts': lines(700) }],
  },
  'a file with one importer has 60 lines, or a reason': {
    rule: rules.smallFilesHaveAReason,
    bad: [
      { 'core/a.ts': "import { b } from './b.ts';", 'core/b.ts': lines(59) },
      { 'core/a.ts': "import type { B } from './b.ts';", 'core/b.ts': lines(1) },
    ],
    good: [
      { 'core/a.ts': "import { b } from './b.ts';", 'core/b.ts': lines(60) },
      { 'core/a.ts': "import './b.ts';", 'core/b.ts': '', 'core/c.ts': "import './b.ts';" },
      { 'rabbit/index.ts': "export { b } from './b.ts';", 'rabbit/b.ts': '' },
      { 'cli/commands.ts': "import { b } from './commands/b.ts';", 'cli/commands/b.ts': '' },
      { 'cli/a.ts': "const { b } = await import('./b.ts');", 'cli/b.ts': '' },
      { 'stores/nats/a.ts': "new URL('./b.ts', import.meta.url);", 'stores/nats/b.ts': '' },
      { 'cli/a.ts': "import { b } from '../web/index.ts';", 'web/index.ts': '' },
    ],
  },
  'a function has at most 70 lines': {
    rule: rules.functionsAreShort,
    bad: [
      { 'core/a.ts': `function a() {\n${lines(69)}}` },
      { 'core/a.ts': `class A {\n  a() {\n${lines(69)}}}` },
      { 'engine/a.ts': `const a = () => {\n${lines(40)}return () => {\n${lines(40)}}}` },
      { 'testkit/a.ts': `const a = () => {\n${lines(40)}return () => {\n${lines(69)}}}` },
    ],
    good: [
      { 'core/a.ts': `/**\n${lines(9, ' *')} */\nfunction a() {\n${lines(68)}}` },
      { 'testkit/a.ts': `const a = () => {\n${lines(40)}return () => {\n${lines(40)}}}` },
    ],
  },
  'a line has at most 100 characters': {
    rule: rules.linesAreShort,
    bad: [{ 'core/a.ts': `// ${'x'.repeat(98)}` }],
    good: [
      { 'core/a.ts': `// ${'─'.repeat(97)}` },
      { 'core/a.ts': `// n.b. https://example.org/${'x'.repeat(98)}` },
    ],
  },
  'there is no enum and no namespace': {
    rule: rules.syntaxIsErasable,
    bad: [{ 'core/a.ts': 'enum A { B }' }, { 'core/a.ts': 'namespace A { const b = 1; }' }],
    good: [{ 'core/a.ts': "type A = 'enum' | 'namespace';" }],
  },
  'the heart has no dependency, and core/ no I/O': {
    rule: rules.heartHasNoDependency,
    bad: [
      { 'core/a.ts': "import { createHash } from 'node:crypto';" },
      { 'ports/a.ts': "import type { Pool } from 'pg';" },
      { 'spool/a.ts': "import { uuidv7 } from 'uuidv7';" },
      { 'system/a.ts': "import { z } from 'zod';" },
      { 'engine/a.ts': "import { open } from 'fs/promises';" },
    ],
    good: [
      { 'system/a.ts': "import { uuidv7 } from 'uuidv7'; import os from 'node:os';" },
      { 'cli/a.ts': "import { Command } from 'commander';" },
    ],
  },
  'a client library is loaded through system/peer.ts': {
    rule: rules.clientsAreLoadedThroughPeer,
    bad: [
      { 'stores/postgres/connection.ts': "const pg = await import('pg');" },
      { 'stores/postgres/connection.ts': "import { Pool } from 'pg';" },
      { 'stores/nats/connection.ts': "import { connect } from '@nats-io/transport-node';" },
      { 'stores/sqlite/entry-store.ts': "import Database from 'better-sqlite3';" },
      { 'spool/client.ts': "import Database from 'better-sqlite3';" },
      { 'config/a.ts': 'await import(name);' },
      { 'stores/s3/connection.ts': "const s3 = require('@aws-sdk/client-s3');" },
    ],
    good: [
      { 'system/peer.ts': 'await import(name);' },
      {
        'stores/sqlite/client.ts': "const { default: Database } = await import('better-sqlite3');",
      },
      { 'stores/postgres/connection.ts': "import type { Pool } from 'pg';" },
      { 'spool/a.ts': "await import('../stores/sqlite/index.ts');" },
    ],
  },
  'no file names a path of one machine': {
    rule: rules.noMachineIsNamed,
    bad: [{ 'core/a.ts': `const dir = '${home}';` }, { 'core/a.ts': '// See ../shared/notes.md.' }],
    good: [
      { 'stores/sqlite/a.ts': "import { b } from '../shared/b.ts';" },
      { 'stores/sqlite/a.ts': "import {\n  b,\n} from '../shared/b.ts';" },
      { 'web/a.ts': "const url = 'https://example.org/home/x';" },
    ],
  },
};

const sources = readSources(path.join(import.meta.dirname, '../src'));

describe('src/', () => {
  test.each(Object.entries(CASES))('%s', (title, { rule }) => {
    const found = rule(sources, FLOORS);
    const list = found.map(({ path: file, line, what }) => `src/${file}:${line} ${what}`);
    expect(list, `${title}:\n${list.join('\n')}\n`).toEqual([]);
  });

  test('every reason for a small file is needed', () => {
    const small = new Set(rules.smallFiles(sources).map((violation) => violation.path));
    expect(Object.keys(rules.SMALL_FILES).filter((file) => !small.has(file))).toEqual([]);
  });
});

describe('the rule', () => {
  test.each(Object.entries(CASES))('"%s" catches what it should, no more', (_, ruleCase) => {
    const { rule, bad, good } = ruleCase;
    const violations = (sample: Sample) =>
      rule(
        Object.entries(sample).map(([file, text]) => parseSource(file, text)),
        FLOORS,
      );
    expect(bad.filter((sample) => violations(sample).length === 0)).toEqual([]);
    expect(good.flatMap(violations)).toEqual([]);
  });
});
