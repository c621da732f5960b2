/**
 * walk — the way of one message through the source.
 *
 *   npm run walk -- enqueue|claim|postgres|http|rabbit|replay|outbox [--json]
 *   npm run walk -- page                            writes docs/walks.md
 *
 * Prints the files and functions that run for one message, in the order in which each runs first.
 * The process is warm: messages of the same kind went before it. test/walks.test.ts holds the
 * number of files of each walk, and docs/walks.md shows three of them.
 */

import { writeFileSync } from 'node:fs';
import { PAGE_WALKS, walksPage } from './walk/page.ts';
import { traceSource } from './walk/trace.ts';
import { walkText } from './walk/text.ts';

const [name = '', ...rest] = process.argv.slice(2);
traceSource(`${import.meta.dirname}/..`);
// Imported after the tracing has begun, so that all of the source is traced.
const { isScenarioName, SCENARIO_NAMES, walk } = await import('./walk/scenarios.ts');
if (name === 'page') {
  const walks = [];
  for (const one of PAGE_WALKS) walks.push(await walk(one));
  writeFileSync(`${import.meta.dirname}/../docs/walks.md`, walksPage(walks));
} else if (isScenarioName(name) && rest.every((argument) => argument === '--json')) {
  const walked = await walk(name);
  const text = rest.length > 0 ? JSON.stringify(walked) : walkText(walked);
  process.stdout.write(`${text}\n`);
} else {
  process.stderr.write(`usage: npm run walk -- page|${SCENARIO_NAMES.join('|')} [--json]\n`);
  process.exitCode = 2;
}
