/**
 * cli-sections — the parts of docs/reference/cli.md that are made from the table of commands.
 *
 * Pure. cli.test.ts compares them with the page, scripts/cli-reference.ts writes them into it.
 */
import type { EXIT_CODES } from '../../src/cli/exit-codes.ts';
import type { CommandSpec, OptionSpec } from '../../src/cli/spec.ts';

/** What stands around a part that is made. */
const BEGIN = (name: string): string => `<!-- made from the code: ${name} -->`;
const END = '<!-- end -->';

/** What the command line is made of. */
export interface CliTable {
  readonly commands: readonly CommandSpec[];
  readonly globals: readonly OptionSpec[];
  readonly codes: typeof EXIT_CODES;
}

/** The parts by name, each without its marks. */
export function cliSections({ commands, globals, codes }: CliTable): Map<string, string> {
  const groups = [...new Set(commands.map(({ group }) => group))];
  return new Map([
    ['options', table(['Option', 'Meaning'], globals.map(optionRow))],
    [
      'exit codes',
      table(
        ['Code', 'Meaning'],
        codes.map(({ code, meaning }) => [String(code), meaning]),
      ),
    ],
    [
      'commands',
      groups
        .map((group) => {
          const own = commands.filter((spec) => spec.group === group);
          return [`## ${group}`, ...own.map((spec) => sectionOf(spec, []))].join('\n\n');
        })
        .join('\n\n'),
    ],
  ]);
}

/** The page with its made parts replaced. */
export function withSections(text: string, sections: ReadonlyMap<string, string>): string {
  let page = text;
  for (const [name, section] of sections) {
    const start = page.indexOf(BEGIN(name));
    const end = page.indexOf(END, start);
    if (start < 0 || end < 0) throw new Error(`the page has no part "${name}"`);
    const before = page.slice(0, start + BEGIN(name).length);
    page = `${before}\n\n${section}\n\n${page.slice(end)}`;
  }
  return page;
}

function sectionOf(spec: CommandSpec, above: readonly string[]): string {
  const words = [...above, spec.name];
  const names = (spec.arguments ?? []).map(({ name }) => name);
  const usage = ['respool', ...words, ...names, '[options]'].join(' ');
  const parts = [
    `${'#'.repeat(2 + words.length)} ${words.join(' ')}`,
    spec.description ?? `${capital(spec.summary)}.`,
    ...(spec.run === undefined ? [] : [`\`\`\`text\n${usage}\n\`\`\``]),
  ];
  const rows = [
    ...(spec.arguments ?? []).map(({ name, description, choices = [] }) => [
      `\`${name}\``,
      withChoices(description, choices),
    ]),
    ...(spec.options ?? []).map(optionRow),
  ];
  if (rows.length > 0) parts.push(table(['Argument or option', 'Meaning'], rows));
  if (spec.role !== undefined) {
    parts.push(`Through a service it needs a token of the role \`${spec.role}\`.`);
  }
  if (spec.examples !== undefined) {
    const lines = spec.examples.map(({ line, does }) => `# ${does}\n${line}`);
    parts.push(`\`\`\`sh\n${lines.join('\n')}\n\`\`\``);
  }
  return [...parts, ...(spec.subcommands ?? []).map((one) => sectionOf(one, words))].join('\n\n');
}

function optionRow({ flags, description, choices = [], repeatable }: OptionSpec): string[] {
  const often = repeatable === true ? '; may be given several times' : '';
  return [`\`${flags}\``, `${withChoices(description, choices)}${often}`];
}

function withChoices(description: string, choices: readonly string[]): string {
  if (choices.length === 0) return description;
  return `${description}: ${choices.map((word) => `\`${word}\``).join(', ')}`;
}

function table(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', String.raw`\|`)).join(' | ')} |`;
  return [line(heads), `|${'---|'.repeat(heads.length)}`, ...rows.map(line)].join('\n');
}

function capital(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;
}
