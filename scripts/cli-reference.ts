/**
 * Writes what is made from the table of commands: parts of docs/reference/cli.md, and the pages
 * below docs/reference/cli/. Run it after a command has changed:
 * node --conditions=respool-source scripts/cli-reference.ts
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { commands } from '../src/cli/commands.ts';
import { EXIT_CODES } from '../src/cli/exit-codes.ts';
import { GLOBAL_OPTIONS } from '../src/cli/program.ts';
import { cliPages, cliSections, withSections } from '../test/docs/cli-sections.ts';

const root = path.join(import.meta.dirname, '..');
const table = { commands, globals: GLOBAL_OPTIONS, codes: EXIT_CODES };

const index = path.join(root, 'docs/reference/cli.md');
await writeFile(index, withSections(await readFile(index, 'utf8'), cliSections(table)));

const folder = path.join(root, 'docs/reference/cli');
await rm(folder, { recursive: true, force: true });
await mkdir(folder);
for (const [file, text] of cliPages(table)) await writeFile(path.join(root, file), text);
