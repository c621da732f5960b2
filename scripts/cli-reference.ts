/**
 * Writes what is made from the table of commands into docs/reference/cli.md. Run it after a command
 * has changed: node --conditions=respool-source scripts/cli-reference.ts
 */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { commands } from '../src/cli/commands.ts';
import { EXIT_CODES } from '../src/cli/exit-codes.ts';
import { GLOBAL_OPTIONS } from '../src/cli/program.ts';
import { cliSections, withSections } from '../test/docs/cli-sections.ts';

const file = path.join(import.meta.dirname, '../docs/reference/cli.md');
const sections = cliSections({ commands, globals: GLOBAL_OPTIONS, codes: EXIT_CODES });
await writeFile(file, withSections(await readFile(file, 'utf8'), sections));
