/**
 * room-readmes — src/<room>/README.md of every room: its files, each with the first sentence of its
 * head. scripts/room-readmes.ts writes them; room-readmes.test.ts compares.
 *
 * Pure but for reading the sources.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from './pages.ts';

/** How the pages are written again. */
export const COMMAND = 'node --conditions=respool-source scripts/room-readmes.ts';

/** The text of each page, by its path from the root of the project. */
export function roomReadmes(): ReadonlyMap<string, string> {
  return new Map(rooms().map((room) => [`src/${room}/README.md`, readmeOf(room)]));
}

/** `core`, `stores/sqlite`, …: every folder of src/, and each store for itself. */
function rooms(): readonly string[] {
  const folders = (below: string): string[] =>
    readdirSync(path.join(ROOT, 'src', below), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name)
      .toSorted();
  return folders('.').flatMap((name) =>
    name === 'stores' ? folders(name).map((store) => `${name}/${store}`) : [name],
  );
}

function readmeOf(room: string): string {
  const all = readdirSync(path.join(ROOT, 'src', room), { recursive: true, encoding: 'utf8' })
    .map((file) => file.split(path.sep).join('/'))
    .filter((file) => file.endsWith('.ts'));
  // The files of a folder stay together, those of the room itself first.
  const files = all.toSorted((a, b) => {
    const [inA, inB] = [path.posix.dirname(a), path.posix.dirname(b)];
    if (inA !== inB) return inA === '.' || (inB !== '.' && inA < inB) ? -1 : 1;
    return a < b ? -1 : 1;
  });
  const rows = files.map((file) => {
    const text = readFileSync(path.join(ROOT, 'src', room, file), 'utf8');
    return `| [${file}](${file}) | ${summaryOf(text)} |`;
  });
  const up = '../'.repeat(room.split('/').length + 1);
  return [
    `<!-- Generated from the heads of the files: ${COMMAND} -->`,
    `# ${room}`,
    '',
    `The files of this room and what each is. Its floor and its neighbours: [ARCHITECTURE](${up}ARCHITECTURE.md).`,
    '',
    '| File | What it is |',
    '|---|---|',
    ...rows,
    '',
  ].join('\n');
}

/** The first sentence of a file's head, without the file's name. */
export function summaryOf(source: string): string {
  const head = /^\/\*\*([\s\S]*?)\*\//.exec(source)?.[1] ?? '';
  const lines = head.split('\n').map((line) => line.replace(/^\s*\*? ?/, '').trimEnd());
  const start = lines.findIndex((line) => line !== '');
  const end = lines.findIndex((line, at) => at > start && line === '');
  const paragraph = lines
    .slice(start, end === -1 ? undefined : end)
    .join(' ')
    .trim();
  const said = paragraph.replace(/^[`\w.,/<> -]{1,40}? — /, '');
  const sentence = /^.*?[.:](?= [A-Z]|$)/.exec(said)?.[0] ?? said;
  const text = sentence.replace(/[.:]$/, '').replaceAll('|', '\\|').replaceAll('<', '&lt;');
  return text.charAt(0).toUpperCase() + text.slice(1);
}
