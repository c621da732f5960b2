/**
 * run — `node test/docs/run.ts [page …]`: runs the programs of the docs and pastes what they print
 * into the `text output` blocks below them. Look at the difference before you commit it. Programs
 * that need a server take an empty one that RABBITMQ_URL or DATABASE_URL names.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { type Page, ROOT, readPage, readPages } from './pages.ts';
import { isRun, type Ran, runPage } from './programs.ts';

const { RABBITMQ_URL: broker, DATABASE_URL: database } = process.env;
const urls = {
  ...(broker === undefined ? {} : { broker }),
  ...(database === undefined ? {} : { database }),
};
const asked = process.argv.slice(2);
const pages = asked.length === 0 ? readPages() : asked.map(readPage);
for (const page of pages.filter(({ blocks }) => blocks.some(isRun))) {
  const ran = await runPage(page, urls);
  writeFileSync(path.join(ROOT, page.file), pasted(page, ran));
  console.log(`${page.file}: ${ran.length} programs`);
}

function pasted(page: Page, ran: readonly Ran[]): string {
  const lines = page.text.split('\n');
  // From the end, so that the lines above keep their numbers.
  for (const { output, printed } of ran.toReversed()) {
    if (output === undefined) continue;
    const old = output.text.split('\n').length - 1;
    lines.splice(output.line, old, ...printed.split('\n'));
  }
  return lines.join('\n');
}
