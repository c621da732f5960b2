/** Every public name has a sentence, every value an example, and every type a value that uses it. */
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { ROOT, readPages } from './pages.ts';
import { makeFolder } from './programs.ts';
import { importsOf, readDoors } from './public-names.ts';

const run = promisify(execFile);
const doors = readDoors();
const documented = doors.flatMap(({ names }) => names.flatMap(({ examples }) => examples));

/** The programs of the pages, of `examples/` and of doc comments. */
const programs: readonly string[] = [
  ...readPages().flatMap(({ blocks }) =>
    blocks.filter(({ language }) => language === 'ts').map(({ text }) => text),
  ),
  ...readdirSync(path.join(ROOT, 'examples'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .map((file) => readFileSync(path.join(ROOT, 'examples', file), 'utf8')),
  ...documented,
];

const shown = new Set(
  programs.flatMap((program) => [...importsOf(program)].map((pair) => pair.join(' '))),
);

describe.each(doors)('$subpath', ({ subpath, names, orphans }) => {
  test('has a sentence for every name', () => {
    const without = names.filter(({ sentence }) => sentence === '').map(({ name }) => name);
    expect(without).toEqual([]);
  });

  test('has an example that imports every function, class and constant', () => {
    const values = names.filter(({ isValue }) => isValue).map(({ name }) => name);
    expect(values.filter((name) => !shown.has(`${subpath} ${name}`))).toEqual([]);
  });

  test('exports no type that none of its values leads to', () => {
    expect(orphans).toEqual([]);
  });
});

test('the examples of doc comments have the types they should', async () => {
  const folder = await makeFolder();
  try {
    const target = path.join(folder, 'programs');
    await mkdir(target);
    await writeFile(path.join(target, 'around.d.ts'), AROUND);
    for (const [at, text] of documented.entries()) {
      await writeFile(path.join(target, `example-${at}.ts`), `${text}\nexport {};\n`);
    }
    await writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify(TYPES));
    const tsc = path.join(ROOT, 'node_modules/.bin/tsc');
    const { stdout } = await run(tsc, ['-p', folder], { cwd: folder }).catch(
      (error: { stdout: string }) => error,
    );
    const wrong = stdout.split('\n').filter((line) => line.startsWith('programs/'));
    const texts = wrong.map((line) => {
      const at = /example-(\d+)/.exec(line)?.[1];
      return at === undefined ? line : `${line}\n${documented[Number(at)]}`;
    });
    expect(texts).toEqual([]);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

/** What an example of a doc comment takes for granted. */
const AROUND = `
declare const spool: import('respool').Spool;
declare const operator: import('respool/operator').Operator;
declare const id: string;
declare const connection: import('respool/rabbit').RabbitConnection;
declare const amqp: import('respool/rabbit').AmqpConnection;
declare const consumer: import('respool/rabbit').Consumer;
declare const letters: import('respool/dead-letters').DeadLetters;
`;

/** As strict as a strict user's project; an example may leave what it makes unused. */
const TYPES = {
  extends: path.join(ROOT, 'tsconfig.base.json'),
  compilerOptions: {
    noEmit: true,
    allowImportingTsExtensions: true,
    customConditions: ['respool-source'],
    noUnusedLocals: false,
  },
  include: ['programs'],
};
