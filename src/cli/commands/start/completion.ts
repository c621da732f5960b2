/**
 * completion — prints shell scripts that complete the commands, made from the table of commands.
 */

import type { ArgumentSpec, CommandSpec, OptionSpec } from '../../spec.ts';

/** `respool completion <shell>` */
export const completionCommand: CommandSpec = {
  name: 'completion',
  summary: 'print a completion script for bash or zsh',
  group: 'Start',
  description: 'Prints a script that makes the shell complete commands, options and their values.',
  arguments: [{ name: '<shell>', description: 'which shell', choices: ['bash', 'zsh'] }],
  examples: [
    {
      line: 'source <(respool completion bash)',
      does: 'completes in this bash; put it into .bashrc',
    },
    {
      line: 'respool completion zsh > "${fpath[1]}/_respool"',
      does: 'completes in every new zsh',
    },
  ],
  run: async ({ args, commands, out }) => {
    const places = completionPlaces(commands);
    const [shell = ''] = args;
    const script = shell === 'bash' ? bashScript(places) : zshScript(places);
    if (out.json) await out.object({ shell, script });
    else await out.write(script);
    return undefined;
  },
};

/** One option as a shell sees it. */
interface OptionWords {
  /** `--topic`, and a short form if it has one. */
  readonly names: readonly string[];
  readonly description: string;
  /** What its value is called; undefined for a switch. */
  readonly value: string | undefined;
  readonly choices: readonly string[];
}

/** What can follow one command. */
interface CompletionPlace {
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
  { flags: '--store <url>', description: 'where messages are stored' },
  { flags: '--url <url>', description: 'a running service' },
  { flags: '--json', description: 'print JSON' },
  { flags: '--wide', description: 'full tables: nothing shortened or left out' },
  { flags: '--quiet', description: 'print results only' },
  { flags: '--verbose', description: 'more detailed messages on stderr' },
  { flags: '--no-color', description: 'no colours' },
  { flags: '-h, --help', description: 'print help' },
];

/** Every place of the table: the beginning, each command, each command below one. */
export function completionPlaces(commands: readonly CommandSpec[]): readonly CompletionPlace[] {
  const beginning: CompletionPlace = {
    path: [],
    commands: [
      ...commands.map(({ name, summary }) => ({ name, summary })),
      { name: 'help', summary: 'print the help of a command' },
    ],
    options: [...EVERYWHERE, { flags: '--version', description: 'print the version' }].map(wordsOf),
    arguments: [],
  };
  const help: CompletionPlace = { ...beginning, path: ['help'], options: [] };
  return [beginning, help, ...commands.flatMap((spec) => placesBelow(spec, []))];
}

function placesBelow(spec: CommandSpec, above: readonly string[]): readonly CompletionPlace[] {
  const path = [...above, spec.name];
  const below = spec.subcommands ?? [];
  const place: CompletionPlace = {
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

// A completion script for bash 3.2 and newer, which has no associative arrays.
//
// The script finds the command among the words typed so far, then offers what may follow it.

/** The script; every word in it comes from our own table. */
function bashScript(places: readonly CompletionPlace[]): string {
  const options = places.flatMap((place) => place.options);
  const withValue = [...new Set(options.filter(hasValue).flatMap(({ names }) => names))];
  const commands = places.filter(({ path }) => path.length > 0).map(({ path }) => path.join(' '));
  return `# bash completion for respool; made by: respool completion bash

_respool() {
  local cur prev word place='' skip='' i
  cur="\${COMP_WORDS[COMP_CWORD]}"
  prev="\${COMP_WORDS[COMP_CWORD-1]}"
  COMPREPLY=()

  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    if [[ -n $skip ]]; then skip=''; continue; fi
    case "$word" in
      ${withValue.join('|')}) skip=1; continue ;;
      -*) continue ;;
    esac
    case "\${place:+$place }$word" in
${commands.map((command) => `      '${command}') place='${command}' ;;`).join('\n')}
    esac
  done

  case "$place:$prev" in
${places.flatMap(valueCases).join('\n')}
  esac

  case "$place" in
${places.map(placeCase).join('\n')}
  esac
}

_respool_words() {
  local IFS=$' \\t\\n'
  COMPREPLY=($(compgen -W "$1" -- "$cur"))
}

complete -o default -F _respool respool
`;
}

function hasValue({ value }: OptionWords): boolean {
  return value !== undefined;
}

/** After an option that takes a value: its choices, or file names where it has none. */
function valueCases({ path, options }: CompletionPlace): string[] {
  return options.filter(hasValue).map(({ names, choices }) => {
    const patterns = names.map((name) => `'${path.join(' ')}:${name}'`).join('|');
    const offer = choices.length === 0 ? '' : `_respool_words '${choices.join(' ')}'; `;
    return `    ${patterns}) ${offer}return ;;`;
  });
}

function placeCase(place: CompletionPlace): string {
  const flags = place.options.flatMap(({ names }) => names);
  const words = [
    ...place.commands.map(({ name }) => name),
    ...place.arguments.flatMap(({ choices = [] }) => choices),
  ];
  return `    '${place.path.join(' ')}')
      if [[ $cur == -* ]]; then _respool_words '${flags.join(' ')}'
      else _respool_words '${words.join(' ')}'; fi ;;`;
}

// A completion script for zsh: what bash gets, with the descriptions beside it.

/** The script; every word in it comes from our own table. */
function zshScript(places: readonly CompletionPlace[]): string {
  return `#compdef respool
# zsh completion for respool; made by: respool completion zsh

${places.map(functionOf).join('\n\n')}

if [ "$funcstack[1]" = "_respool" ]; then
  _respool "$@"
else
  compdef _respool respool
fi
`;
}

function functionOf(place: CompletionPlace): string {
  const name = nameOf(place.path);
  const specs = place.options.flatMap(optionSpecs);
  const lines =
    place.commands.length === 0
      ? [...specs, ...argumentSpecs(place)]
      : [...specs, `'1: :${name}_commands'`, `'*:: :->below'`];
  const body = `${name}() {
  local curcontext="$curcontext" state line
  typeset -A opt_args
  _arguments -C \\
    ${lines.join(' \\\n    ')}`;
  if (place.commands.length === 0) return `${body}\n}`;
  const names = place.commands.map((command) => command.name);
  return `${body}
  [[ $state == below ]] || return
  case "$words[1]" in
${names.map((word) => `    ${word}) ${nameOf(belowOf(place, word))} ;;`).join('\n')}
  esac
}

${name}_commands() {
  local -a commands
  commands=(
${place.commands.map((command) => `    ${quoted(`${command.name}:${command.summary}`)}`).join('\n')}
  )
  _describe -t commands command commands
}`;
}

/** After `help` come the commands themselves, and nothing after them. */
function belowOf({ path }: CompletionPlace, word: string): readonly string[] {
  return path[0] === 'help' ? ['help'] : [...path, word];
}

function nameOf(path: readonly string[]): string {
  return ['_respool', ...path.map((word) => word.replaceAll('-', '_'))].join('_');
}

function optionSpecs({ names, description, value, choices }: OptionWords): string[] {
  const offer = choices.length === 0 ? '' : `(${choices.join(' ')})`;
  const action = value === undefined ? '' : `:${value}:${offer === '' ? '_files' : offer}`;
  // A star: some may be given several times, and offering one twice does no harm.
  return names.map((name) => quoted(`*${name}[${escaped(description)}]${action}`));
}

function argumentSpecs(place: CompletionPlace): string[] {
  return place.arguments.map(({ name, description, choices = [] }) => {
    const many = name.includes('...') ? '*' : '';
    const offer = choices.length === 0 ? '_files' : `(${choices.join(' ')})`;
    return quoted(`${many}:${escaped(description)}:${offer}`);
  });
}

/** These mean something inside a spec of `_arguments`. */
function escaped(text: string): string {
  return text.replaceAll(/[[\]:\\]/g, String.raw`\$&`);
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
