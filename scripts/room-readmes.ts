/**
 * Writes src/<room>/README.md from the heads of the files. Run it after a file was added, renamed
 * or has another head: node --conditions=respool-source scripts/room-readmes.ts
 */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { roomReadmes } from '../test/docs/room-readmes.ts';

const root = path.join(import.meta.dirname, '..');
for (const [file, text] of roomReadmes()) await writeFile(path.join(root, file), text);
