/**
 * cli-sections — what docs/reference/cli.md and the pages below docs/reference/cli/ take from the
 * table of commands: parts of the index, and one whole page per group of commands.
 *
 * Pure. cli.test.ts compares them with the pages, scripts/cli-reference.ts writes them.
 */
import type { EXIT_CODES } from '../../src/cli/exit-codes.ts';
import type { CommandGroup, CommandSpec, OptionSpec } from '../../src/cli/spec.ts';

/** Where the commands of a group are described: the file's name, its title and its first line. */
const GROUP_PAGES: Readonly<Record<CommandGroup, GroupPage>> = {
  Start: {
    name: 'start',
    title: 'Commands: start',
    about: 'Set up a project, run the service, and install shell completion.',
  },
  Messages: {
    name: 'messages',
    title: 'Commands: messages',
    about: 'Enqueue messages, list them, and read one with its body.',
  },
  Control: {
    name: 'control',
    title: 'Commands: control',
    about: 'Change what happens to messages: hold, release, retry, bounce, remove, pause.',
  },
  Inspect: {
    name: 'inspect',
    title: 'Commands: inspect',
    about: 'Counts, backlog by age, live events, the audit record, and alerts.',
  },
  Maintain: {
    name: 'maintain',
    title: 'Commands: maintain',
    about: 'Configuration, tokens, keys, consistency checks, diagnosis and benchmarks.',
  },
  RabbitMQ: {
    name: 'rabbitmq',
    title: 'Commands: RabbitMQ',
    about: 'Run consumers, manage topologies, and inspect or drain queues.',
  },
  'Dead letters': {
    name: 'dead-letters',
    title: 'Commands: dead letters',
    about: 'Inspect, repair, replay and sweep dead letters of the spool and of RabbitMQ.',
  },
  Outbox: {
    name: 'outbox',
    title: 'Commands: outbox',
    about: 'Create the tables of an outbox, run its relay, and operate on its messages.',
  },
};

interface GroupPage {
  readonly name: string;
  readonly title: string;
  readonly about: string;
}

/** What stands around a part that is made. */
const BEGIN = (name: string): string => `<!-- made from the code: ${name} -->`;
const END = '<!-- end -->';

/** What the command line is made of. */
export interface CliTable {
  readonly commands: readonly CommandSpec[];
  readonly globals: readonly OptionSpec[];
  readonly codes: typeof EXIT_CODES;
}

/** The parts of the index by name, each without its marks. */
export function cliSections({ commands, globals, codes }: CliTable): Map<string, string> {
  return new Map([
    [
      'groups',
      groupsOf(commands)
        .map((group) => indexOf(GROUP_PAGES[group], ofGroup(commands, group)))
        .join('\n\n'),
    ],
    ['options', table(['Option', 'Meaning'], globals.map(optionRow))],
    [
      'exit codes',
      table(
        ['Code', 'Meaning'],
        codes.map(({ code, meaning }) => [String(code), meaning]),
      ),
    ],
  ]);
}

/** The page of each group, by its path from the root of the project. */
export function cliPages({ commands }: CliTable): Map<string, string> {
  return new Map(
    groupsOf(commands).map((group) => {
      const { name, title, about } = GROUP_PAGES[group];
      const parts = [
        '<!-- Made from the code by scripts/cli-reference.ts. Do not edit. -->',
        `# ${title}`,
        about,
        'Options of every command, exit codes and conventions: [command line](../cli.md).',
        ...ofGroup(commands, group).map((spec) => sectionOf(spec, [])),
      ];
      return [`docs/reference/cli/${name}.md`, `${parts.join('\n\n')}\n`];
    }),
  );
}

function groupsOf(commands: readonly CommandSpec[]): CommandGroup[] {
  return [...new Set(commands.map(({ group }) => group))];
}

function ofGroup(commands: readonly CommandSpec[], group: CommandGroup): CommandSpec[] {
  return commands.filter((spec) => spec.group === group);
}

/** What the index says of a group: a link to its page, and a line for each of its commands. */
function indexOf({ name, title, about }: GroupPage, commands: readonly CommandSpec[]): string {
  const page = `cli/${name}.md`;
  const rows = commands
    .flatMap((spec) => leavesOf(spec, []))
    .map(({ words, summary }) => {
      const link = `[\`${words.join(' ')}\`](${page}#${words.join('-')})`;
      return [link, summary];
    });
  const heading = capital(title.replace('Commands: ', ''));
  return [
    `### ${heading}`,
    `${about} [Details](${page}).`,
    table(['Command', 'What it does'], rows),
  ].join('\n\n');
}

/** The commands that do something, each with the words that call it. */
function leavesOf(
  { name, summary, run, subcommands = [] }: CommandSpec,
  above: readonly string[],
): { readonly words: readonly string[]; readonly summary: string }[] {
  const words = [...above, name];
  const own = run === undefined ? [] : [{ words, summary }];
  return [...own, ...subcommands.flatMap((one) => leavesOf(one, words))];
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
    `${'#'.repeat(1 + words.length)} ${words.join(' ')}`,
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
