/** Every program in the docs that is marked `run` compiles, runs, and prints what the page says. */
import { execFile } from 'node:child_process';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { skipReason } from '../services/index.ts';
import { type Database, makeDatabase } from './database.ts';
import { type Page, ROOT, readPages } from './pages.ts';
import { alike, fileNameOf, isRun, makeFolder, needs, runPage, withoutAges } from './programs.ts';
import { makeVhost, type Vhost } from './vhost.ts';

const run = promisify(execFile);
const pages = readPages().filter((page) => page.blocks.some(isRun));

describe.concurrent('the programs of', () => {
  test.each(pages.map((page) => [page.file, page] as const))(
    '%s run as written',
    async (_, page) => {
      const vhost = await vhostFor(page);
      const database = await databaseFor(page);
      const urls = {
        ...(vhost === undefined ? {} : { broker: vhost.url }),
        ...(database === undefined ? {} : { database: database.url }),
      };
      try {
        for (const { block, output, printed } of await runPage(page, urls)) {
          if (output === undefined) continue;
          const like = block.marks.includes('ages') ? withoutAges : alike;
          expect(like(printed), `${page.file}:${block.line}`).toBe(like(output.text));
        }
      } finally {
        await vhost?.remove();
        await database?.remove();
      }
    },
  );

  test('all pages have the types they should', async () => {
    const folder = await makeFolder();
    try {
      for (const page of pages) await writePrograms(page, folder);
      await writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify(TYPES));
      const tsc = path.join(ROOT, 'node_modules/.bin/tsc');
      const { stdout } = await run(tsc, ['-p', folder], { cwd: folder }).catch(
        (error: { stdout: string }) => error,
      );
      // The source is checked elsewhere; what counts here is what stands in the pages.
      const wrong = stdout.split('\n').filter((line) => line.startsWith('programs/'));
      expect(wrong).toEqual([]);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});

test('what a command says while a busy machine lets it wait is no difference', () => {
  const waited = 'id  a\n0 done\n1,000 of 2,000 done\n{"progress":{"done":0}}\nstate  hold';
  expect(alike(waited)).toBe('id  a\nstate  hold');
});

test('every how-to page has a program that runs', () => {
  const howTo = readPages().filter(({ file }) => file.startsWith('docs/how-to/'));
  const without = howTo.filter(({ blocks }) => !blocks.some(isRun)).map(({ file }) => file);
  expect(without).toEqual([]);
});

/** A broker for the programs of a page, unless none needs it or it is to be skipped. */
async function vhostFor({ blocks }: Page): Promise<Vhost | undefined> {
  const isNeeded = blocks.some((block) => needs(block, 'broker'));
  return isNeeded && skipReason('rabbitmq') === undefined ? makeVhost() : undefined;
}

/** The same for a database. */
async function databaseFor({ blocks }: Page): Promise<Database | undefined> {
  const isNeeded = blocks.some((block) => needs(block, 'database'));
  return isNeeded && skipReason('postgres') === undefined ? makeDatabase() : undefined;
}

/** As strict as a strict user's project. */
const TYPES = {
  extends: path.join(ROOT, 'tsconfig.base.json'),
  compilerOptions: {
    noEmit: true,
    allowImportingTsExtensions: true,
    customConditions: ['respool-source'],
  },
  include: ['programs'],
};

async function writePrograms(page: Page, folder: string): Promise<void> {
  const target = path.join(folder, 'programs', page.file.replaceAll('/', '_'));
  await mkdir(target, { recursive: true });
  for (const block of page.blocks) {
    if (!isRun(block) || block.language !== 'ts') continue;
    await writeFile(path.join(target, fileNameOf(block)), block.text);
  }
}
