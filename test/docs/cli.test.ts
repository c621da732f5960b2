/** The pages of the command line say what the table of commands says, and samples print what they show. */
import { describe, expect, test } from 'vitest';
import { commands } from '../../src/cli/commands.ts';
import { EXIT_CODES } from '../../src/cli/exit-codes.ts';
import { GLOBAL_OPTIONS } from '../../src/cli/program.ts';
import { setup } from '../cli/setup.ts';
import { cliPages, cliSections, withSections } from './cli-sections.ts';
import { type Block, readPage, readPages } from './pages.ts';
import { alike, withoutAges } from './programs.ts';

const page = readPage('docs/reference/cli.md');
const table = { commands, globals: GLOBAL_OPTIONS, codes: EXIT_CODES };

// After a change: node --conditions=respool-source scripts/cli-reference.ts
test('every command, common option and exit code is in the index as in the code', () => {
  expect(page.text).toBe(withSections(page.text, cliSections(table)));
});

test('every group of commands has its page, with every argument and option, and no page is left', () => {
  const written = readPages().filter(({ file }) => file.startsWith('docs/reference/cli/'));
  const texts = Object.fromEntries(written.map(({ file, text }) => [file, text]));
  expect(texts).toEqual(Object.fromEntries(cliPages(table)));
});

describe('samples', () => {
  const samples = page.blocks.flatMap((block, at): [Block, Block | undefined][] =>
    block.marks[0] === 'cli' ? [[block, page.blocks[at + 1]]] : [],
  );

  test('print what the page shows, one after the other in one folder', async () => {
    expect(samples.length).toBeGreaterThan(5);
    const { cli, folder } = await setup();
    for (const [block, output] of samples) {
      let printed = '';
      for (const line of block.text.trim().split('\n')) {
        const [name, ...argv] = wordsOf(line);
        expect(name).toBe('respool');
        const { stdout, stderr } = await cli(argv);
        printed += `${stdout}${stderr}`;
      }
      const shown = printed.replaceAll(folder, '/srv/app');
      expect(output?.marks[0], `line ${block.line}`).toBe('output');
      const like = block.marks.includes('ages') ? withoutAges : alike;
      expect(like(shown), `line ${block.line}`).toBe(like(output?.text ?? ''));
    }
  });
});

/** The words of a line as a shell reads them, as far as the page needs it. */
function wordsOf(line: string): string[] {
  return [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '');
}
