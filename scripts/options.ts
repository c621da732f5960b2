/**
 * Writes what follows from the tables of options: interfaces in src/, tables of the reference
 * pages, and respool.schema.json. Run it after an option has changed: npm run options
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { writtenFiles } from './options/written.ts';

const root = path.join(import.meta.dirname, '..');
const files = writtenFiles((file) => readFileSync(path.join(root, file), 'utf8'));
for (const [file, text] of files) writeFileSync(path.join(root, file), text);
const sources = [...files.keys()].filter((file) => file.endsWith('.ts'));
spawnSync('npx', ['biome', 'format', '--write', ...sources], { cwd: root, stdio: 'inherit' });
