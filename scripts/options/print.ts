/**
 * print — a table of options as the members of an interface, and as the rows of a page.
 *
 * Pure. scripts/options.ts writes both, test/docs/option-tables.test.ts compares them.
 */
import { type Option, type OptionTable, typeText } from '../../src/core/option-table.ts';

const WIDTH = 100;

/** Stands first in every interface that is written, for readers of the source. */
const WRITTEN = '  // Written by `npm run options`: edit the table of options instead.\n';

/** The file with the members of an interface written anew. */
export function withInterface(source: string, name: string, table: OptionTable): string {
  const head = new RegExp(`^export interface ${name}(?:<[^{]*)?[^{]*\\{$`, 'm').exec(source);
  if (head === null) throw new Error(`there is no interface ${name}`);
  const from = head.index + head[0].length + 1;
  const to = source.startsWith('}', from) ? from : source.indexOf('\n}', from) + 1;
  return `${source.slice(0, from)}${WRITTEN}${membersOf(table, 1)}${source.slice(to)}`;
}

function membersOf(table: OptionTable, depth: number): string {
  return Object.entries(table)
    .map(([name, option]) => memberOf(name, option, depth))
    .join('');
}

function memberOf(name: string, option: Option, depth: number): string {
  const indent = '  '.repeat(depth);
  const mark = option.required === true ? '' : '?';
  const type =
    option.kind === 'group' && option.ts === undefined
      ? `{\n${membersOf(option.options, depth + 1)}${indent}}`
      : tsType(option);
  return `${commentOf(option, indent)}${indent}readonly ${name}${mark}: ${type};\n`;
}

/** The type of an option in TypeScript. */
function tsType(option: Option): string {
  if (option.ts !== undefined) return option.ts;
  switch (option.kind) {
    case 'number':
    case 'decimal':
    case 'bytes':
      return 'number';
    case 'duration':
      return 'Duration';
    case 'boolean':
      return 'boolean';
    case 'choice': {
      const words = option.choices.filter((word) => typeof word === 'string');
      const flags = words.length < option.choices.length ? ['boolean'] : [];
      return [...flags, ...words.map((word) => `'${word}'`)].join(' | ');
    }
    default:
      return 'string';
  }
}

function commentOf(option: Option, indent: string): string {
  const about = plain(option.about);
  const facts = [rangeOf(option), defaultOf(option)].filter((text) => text !== '').join('; ');
  const sentence = `${upper(about)}.${facts === '' ? '' : ` ${upper(facts)}.`}`;
  const line = `${indent}/** ${sentence} */\n`;
  if (line.length <= WIDTH + 1) return line;
  return `${indent}/**\n${wrap(sentence, `${indent} * `)}${indent} */\n`;
}

function rangeOf(option: Option): string {
  const isRange = ['number', 'decimal', 'bytes', 'duration'].includes(option.kind);
  return isRange ? plain(typeText(option)).replace(/^duration(?:, )?/, '') : '';
}

function defaultOf(option: Option): string {
  const text = defaultText(option);
  if (text === 'none' || text === 'required' || option.kind === 'group') return '';
  const { default: value, defaultText: words } = option;
  const isWord = typeof value === 'string' && ['text', 'choice'].includes(option.kind);
  if (words !== undefined || isWord) return `default ${plain(text)}`;
  return `default ${typeof value === 'number' ? value.toLocaleString('en') : wordOf(value)}`;
}

/** The default of an option for people. */
export function defaultText(option: Option): string {
  if (option.defaultText !== undefined) return option.defaultText;
  if (option.required === true) return 'required';
  if (option.kind === 'group') return 'see below';
  const { default: value } = option;
  if (value === undefined) return 'none';
  return `\`${wordOf(value)}\``;
}

function wordOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** The rows of a page, one for each option. */
export function rowsOf(table: OptionTable): readonly string[] {
  return Object.entries(table).map(([name, option]) =>
    rowOf([`\`${name}\``, typeOf(option), defaultText(option), option.about]),
  );
}

/** The type of an option for people. */
export function typeOf(option: Option): string {
  return option.kind === 'group' && option.type === undefined ? 'object' : typeText(option);
}

/** One row; a bar within a cell is escaped. */
export function rowOf(cells: readonly string[]): string {
  return `| ${cells.map((cell) => cell.replaceAll('|', String.raw`\|`)).join(' | ')} |`;
}

/** The page with the first table below a heading written anew. */
export function withTable(
  page: string,
  heading: string,
  { head, rows }: { readonly head: readonly string[]; readonly rows: readonly string[] },
): string {
  const lines = page.split('\n');
  const at = lines.findIndex((line) => /^#+ /.test(line) && line.endsWith(` ${heading}`));
  const first = lines.findIndex((line, index) => index > at && line.startsWith('|'));
  if (at === -1 || first === -1) throw new Error(`there is no table below "${heading}"`);
  const after = lines.findIndex((line, index) => index > first && !line.startsWith('|'));
  const table = [rowOf(head), `|${head.map(() => '---').join('|')}|`, ...rows];
  return [...lines.slice(0, first), ...table, ...lines.slice(after)].join('\n');
}

/** Without links, which only a page has. */
export function plain(text: string): string {
  return text.replaceAll(/\[([^\]]+)\]\([^)]+\)/g, '$1');
}

function upper(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

function wrap(text: string, prefix: string): string {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && prefix.length + line.length + 1 + word.length > WIDTH) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line].map((one) => `${prefix}${one}\n`).join('');
}
