/**
 * page — docs/walks.md: three walks as `npm run walk` prints them. Written by
 * `npm run walk -- page`; test/walks.test.ts compares it with the walks of now.
 */

import { type Walk, walkText } from './text.ts';

/** The walks on the page. */
export const PAGE_WALKS = ['enqueue', 'claim', 'postgres'] as const;

const INTRO = `# Walks

The way of one message through the source: every file and function that runs for it, in the order in which each runs first.
Paths are below \`src/\`; a file has its number where it is entered for the first time. The floors and rooms are in
[ARCHITECTURE](../ARCHITECTURE.md), the words in the [glossary](glossary.md).

These are measured: \`npm run walk -- enqueue\` warms a process up, sends one message, and prints what ran for it; \`claim\`,
\`postgres\`, \`http\`, \`rabbit\`, \`replay\` and \`outbox\` do the same for other ways. \`test/walks.test.ts\` holds the number of files of
each, and compares this page, which \`npm run walk -- page\` writes, with the walks of now.

In short, with the files where each step is done:

- **enqueue** (\`spool/enqueue.ts\`): check the message, keep its body, insert its entry (\`Enqueuer.#enqueue\`, \`acceptOne\`).
- **insert** (\`stores/sqlite\`): \`file-client.ts\` makes batches, \`file-thread.ts\` says in which thread, \`file.ts\` runs the batch in one
  transaction of \`connection.ts\`.
- **attempt** (\`Engine.#attempt\` in \`engine/engine.ts\`): begin, deliver, judge, settle, one after the other; \`engine/attempt.ts\` has the
  steps.
- **settle** (\`SpoolSource.settle\` in \`spool/source.ts\`): from the verdict to the next status, and back into the store as a change.
`;

/** The text of docs/walks.md. */
export function walksPage(walks: readonly Walk[]): string {
  const sections = walks.map(
    (walk) => `## ${walk.name}\n\n\`\`\`text\n${walkText(walk)}\n\`\`\`\n`,
  );
  return [INTRO, ...sections].join('\n');
}

/** The files that a section of the page shows, with their functions. */
export function filesOnPage(page: string, name: string): ReadonlyMap<string, readonly string[]> {
  const section = page.split(/^## /m).find((text) => text.startsWith(`${name}\n`)) ?? '';
  const shown = new Map<string, string[]>();
  let names: string[] = [];
  for (const line of section.split('\n')) {
    const [, file, more = ''] = /^ *\d* *(\S+\.ts)? +(.*)$/.exec(line) ?? [];
    if (file !== undefined) {
      names = shown.get(`src/${file}`) ?? [];
      shown.set(`src/${file}`, names);
    }
    if (shown.size > 0) names.push(...more.split(/, */).filter((word) => word.trim() !== ''));
  }
  return shown;
}
