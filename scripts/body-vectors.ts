/**
 * Writes the test vectors of docs/reference/body-format.md. Run it when the format gets a new
 * version, never to make a test pass:
 * node --conditions=respool-source scripts/body-vectors.ts
 */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { makeVectors } from '../test/transforms/encrypt-vectors.ts';

const file = path.join(import.meta.dirname, '../test/fixtures/body-vectors.json');
const text = JSON.stringify(await makeVectors(), null, 2);
// The formatter keeps short lists on one line.
const shortLists = /\[\s+("[^"]{1,60}"(?:,\s+"[^"]{1,30}")?)\s+\]/g;
const tidy = text.replaceAll(shortLists, (_, list: string) => `[${list.replace(/\s+/, ' ')}]`);
await writeFile(file, `${tidy}\n`);
