/**
 * pages — the documentation as data: every page, its code blocks, headings and links.
 *
 * Pure but for reading the files. The tests beside it compare what pages say with what is.
 *
 * A fence's first word is the language, the rest are marks:
 *   ts run [name.ts]   a whole program; type-checked and run in an empty folder
 *   ts run fails       the same, and it ends with a failure on purpose
 *   sh run             run by sh in the folder that the programs above it left behind
 *   ts run until-output …  it does not end by itself: interrupted once it has printed something
 *   … ages            its output tells ages, which are not compared
 *   … needs:command   not run where this command is not installed
 *   … broker          finds a RabbitMQ by RABBITMQ_URL; not run where there is none
 *   … database        finds an empty PostgreSQL by DATABASE_URL; the same
 *   text output        what the run block before it prints
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

/** The folder of the project. */
export const ROOT: string = path.join(import.meta.dirname, '../..');

/** A fenced block. */
export interface Block {
  readonly language: string;
  readonly marks: readonly string[];
  readonly text: string;
  /** The line of its opening fence, counted from 1. */
  readonly line: number;
}

/** One page. */
export interface Page {
  /** From the root of the project, with slashes. */
  readonly file: string;
  readonly text: string;
  readonly blocks: readonly Block[];
}

const TOP = ['README.md', 'ARCHITECTURE.md', 'CHANGELOG.md', 'CONTRIBUTING.md'];

/** Every page of the documentation. */
export function readPages(): readonly Page[] {
  const below = readdirSync(path.join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.md'))
    .map((file) => `docs/${file.split(path.sep).join('/')}`)
    .toSorted();
  return [...TOP, ...below].map(readPage);
}

/** One page by its path from the root. */
export function readPage(file: string): Page {
  const text = readFileSync(path.join(ROOT, file), 'utf8');
  return { file, text, blocks: blocksOf(text) };
}

/** The anchors that the headings of a page make, as GitHub names them. */
export function anchorsOf(page: Page): ReadonlySet<string> {
  const anchors = new Set<string>();
  for (const title of headingsOf(page)) {
    const plain = title.toLowerCase().replaceAll(/[^\p{L}\p{N}\s_-]/gu, '');
    anchors.add(plain.replaceAll(/\s/g, '-'));
  }
  return anchors;
}

/** The texts of all headings, or of those of one depth. */
export function headingsOf(page: Page, depth?: number): readonly string[] {
  const found: string[] = [];
  for (const line of proseOf(page).split('\n')) {
    const heading = /^(#{1,6}) (.+)$/.exec(line);
    if (heading === null) continue;
    if (depth === undefined || heading[1]?.length === depth) found.push(heading[2] ?? '');
  }
  return found;
}

/** The targets of the links of a page. */
export function linksOf(page: Page): readonly string[] {
  return [...proseOf(page).matchAll(/\]\(([^)\s]+)\)/g)].map((link) => link[1] ?? '');
}

/** The page without what stands in fences. */
function proseOf({ text }: Page): string {
  return text.replaceAll(/^```[\s\S]*?^```$/gm, '');
}

/** The cells of every table row under a heading, without the header rows. */
export function tableUnder(page: Page, heading: string): readonly (readonly string[])[] {
  const lines = page.text.split('\n');
  const start = lines.findIndex((line) => /^#+ /.test(line) && line.endsWith(` ${heading}`));
  if (start < 0) throw new Error(`${page.file} has no heading "${heading}"`);
  const rows: string[][] = [];
  for (const line of lines.slice(start + 1)) {
    if (/^#+ /.test(line)) break;
    if (line.startsWith('|')) rows.push(cellsOf(line));
    // The line under a header row: what came before it was the header.
    if (/^\|[-| :]+\|$/.test(line)) rows.splice(-2, 2);
  }
  return rows;
}

/** The first word in backticks of a cell, or the cell. */
export function wordOf(cell: string | undefined): string {
  return /`([^`]+)`/.exec(cell ?? '')?.[1] ?? cell ?? '';
}

function cellsOf(line: string): string[] {
  // A bar inside a cell is written as \|.
  return line
    .slice(1, -1)
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll(String.raw`\|`, '|'));
}

function blocksOf(text: string): Block[] {
  const blocks: Block[] = [];
  let open: { info: string; line: number; lines: string[] } | undefined;
  for (const [at, line] of text.split('\n').entries()) {
    if (open === undefined) {
      const fence = /^```(.*)$/.exec(line);
      if (fence !== null) open = { info: fence[1] ?? '', line: at + 1, lines: [] };
    } else if (line === '```') {
      const [language = '', ...marks] = open.info.split(' ');
      const body = open.lines.map((one) => `${one}\n`).join('');
      blocks.push({ language, marks, text: body, line: open.line });
      open = undefined;
    } else open.lines.push(line);
  }
  if (open !== undefined) throw new Error(`a fence of line ${open.line} is never closed`);
  return blocks;
}
