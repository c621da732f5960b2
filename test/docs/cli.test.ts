/** docs/reference/cli.md says what the table of commands says, and its samples print what they show. */
import { describe, expect, test } from 'vitest';
import { commands } from '../../src/cli/commands.ts';
import { EXIT_CODES } from '../../src/cli/exit-codes.ts';
import { GLOBAL_OPTIONS } from '../../src/cli/program.ts';
import { setup } from '../cli/setup.ts';
import { cliSections, withSections } from './cli-sections.ts';
import { type Block, readPage } from './pages.ts';
import { alike, withoutAges } from './programs.ts';

const page = readPage('docs/reference/cli.md');

test('every command, argument, option and exit code is on the page as in the code', () => {
  const sections = cliSections({ commands, globals: GLOBAL_OPTIONS, codes: EXIT_CODES });
  // After a change: node --conditions=respool-source scripts/cli-reference.ts
  expect(page.text).toBe(withSections(page.text, sections));
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
