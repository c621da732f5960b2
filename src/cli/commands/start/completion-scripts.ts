/**
 * completion-scripts — what can be typed after which words, from the table of commands. Pure.
 *
 * bash.ts and zsh.ts turn it into scripts.
 */

import type { ArgumentSpec, CommandSpec, OptionSpec } from '../../spec.ts';

/** One option as a shell sees it. */
export interface OptionWords {
  /** `--topic`, and a short form if it has one. */
  readonly names: readonly string[];
  readonly description: string;
  /** What its value is called; undefined for a switch. */
  readonly value: string | undefined;
  readonly choices: readonly string[];
}

/** What can follow one command. */
export interface Place {
  /** The words of the command: `['policy', 'explain']`; empty at the beginning. */
  readonly path: readonly string[];
  readonly commands: readonly { readonly name: string; readonly summary: string }[];
  readonly options: readonly OptionWords[];
  readonly arguments: readonly ArgumentSpec[];
}

/**
 * What every command takes. The parser's own list is in cli/program.ts, which sees this room; a
 * test compares the two.
 */
const EVERYWHERE: readonly OptionSpec[] = [
  { flags: '--config <file>', description: 'the configuration file' },
  { flags: '--store <url>', description: 'where messages lie' },
  { flags: '--url <url>', description: 'a running service' },
  { flags: '--json', description: 'print JSON' },
  { flags: '--wide', description: 'tables in full: whole ids, nothing cut or left out' },
  { flags: '--quiet', description: 'print results only' },
  { flags: '--verbose', description: 'say more on stderr' },
  { flags: '--no-color', description: 'no colours' },
  { flags: '-h, --help', description: 'print help' },
];

/** Every place of the table: the beginning, each command, each command below one. */
export function placesOf(commands: readonly CommandSpec[]): readonly Place[] {
  const beginning: Place = {
    path: [],
    commands: [
      ...commands.map(({ name, summary }) => ({ name, summary })),
      { name: 'help', summary: 'print the help of a command' },
    ],
    options: [...EVERYWHERE, { flags: '--version', description: 'print the version' }].map(wordsOf),
    arguments: [],
  };
  const help: Place = { ...beginning, path: ['help'], options: [] };
  return [beginning, help, ...commands.flatMap((spec) => placesBelow(spec, []))];
}

function placesBelow(spec: CommandSpec, above: readonly string[]): readonly Place[] {
  const path = [...above, spec.name];
  const below = spec.subcommands ?? [];
  const place: Place = {
    path,
    commands: below.map(({ name, summary }) => ({ name, summary })),
    options: [...(spec.options ?? []), ...EVERYWHERE].map(wordsOf),
    arguments: spec.arguments ?? [],
  };
  return [place, ...below.flatMap((one) => placesBelow(one, path))];
}

function wordsOf({ flags, description, choices = [] }: OptionSpec): OptionWords {
  const names = flags.match(/(?<![\w<[-])--?[\w-]+/g) ?? [];
  const value = /[<[]([^>\]]+)[>\]]/.exec(flags)?.[1];
  return { names, description, value, choices };
}
