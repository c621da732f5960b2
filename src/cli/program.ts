/**
 * program — from the arguments of a command line to one command, its output and its exit code.
 *
 * `run` never throws and never ends the process: main.ts does that with the number it returns.
 */

import { Argument, Command, CommanderError, Option } from 'commander';
import { didYouMean } from '../config/load/config-errors.ts';
import { isRespoolError, RespoolError } from '../core/errors.ts';
import { commands } from './commands.ts';
import { CommandError, EXIT, EXIT_CODES, type ExitCode, exitCodeOf } from './exit-codes.ts';
import { createOut, type Io, type Out } from './ui/output.ts';
import { createConfigReader, openSession, type Session, type SessionOptions } from './session.ts';
import { Options } from './options.ts';
import type { CommandContext, CommandSpec, Globals, OptionSpec } from './spec.ts';
import { readVersion } from '../system/version.ts';

/**
 * The options that every command takes, before or after its name. Also in EVERYWHERE of
 * commands/start/completion.ts.
 */
export const GLOBAL_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '--config <file>',
    description: 'the configuration file; default: searched in this folder and those above',
  },
  {
    flags: '--store <url>',
    description: 'where messages are stored, such as sqlite:./respool; for outbox, its database',
  },
  {
    flags: '--url <url>',
    description:
      'a running service, with its token in RESPOOL_TOKEN; for rabbit and for outbox relay, ' +
      'a broker; for dlq, either',
  },
  { flags: '--json', description: 'print JSON: lists one object per line' },
  { flags: '--wide', description: 'full tables: nothing shortened or left out' },
  { flags: '--quiet', description: 'print results only' },
  { flags: '--verbose', description: 'more detailed messages on stderr' },
  { flags: '--no-color', description: 'no colours; NO_COLOR does the same' },
];

/** What was asked for. */
interface Call {
  /** The command's name, with those above it: `config set`. */
  readonly name: string;
  readonly spec: CommandSpec;
  readonly args: readonly string[];
  readonly values: Readonly<Record<string, unknown>>;
}

/** Runs one command line; resolves to its exit code. */
export async function run(argv: readonly string[], io: Io): Promise<number> {
  let printed = '';
  let call: Call | undefined;
  let failedIn = '';
  const program = programOf(io, {
    print: (text) => {
      printed += text;
    },
    choose: (chosen) => {
      call = chosen;
    },
    fail: (name) => {
      failedIn = name;
    },
  });
  // Before the parser had a look: also its errors are JSON where JSON was asked for.
  const early = createOut(io, outOptionsOf({ json: argv.includes('--json') }));
  if (argv.length === 0) {
    early.note(program.helpInformation().trimEnd());
    return EXIT.usage;
  }
  try {
    await program.parseAsync(wordsOf(argv), { from: 'user' });
  } catch (error) {
    return endOfParsing(error, early, { printed, failedIn });
  }
  return call === undefined ? EXIT.usage : perform(call, io);
}

/** Help for what is no command is answered as the command itself would be. */
function wordsOf(argv: readonly string[]): string[] {
  const [first, second = ''] = argv.slice(argv.findIndex((word) => !word.startsWith('-')));
  const isUnknown = second !== '' && !second.startsWith('-') && !isCommand(second);
  return first === 'help' && isUnknown ? [second] : [...argv];
}

function isCommand(word: string): boolean {
  return word === 'help' || commands.some(({ name }) => name === word);
}

async function endOfParsing(
  error: unknown,
  out: Out,
  { printed, failedIn }: { readonly printed: string; readonly failedIn: string },
): Promise<ExitCode> {
  if (!(error instanceof CommanderError)) {
    out.error(error);
    return exitCodeOf(error);
  }
  if (error.code === 'commander.version') {
    await out.line(out.json ? JSON.stringify({ version: readVersion() }) : readVersion());
    return EXIT.done;
  }
  if (error.exitCode === 0) {
    await out.line(printed.trimEnd());
    return EXIT.done;
  }
  // Nothing was named, or a command that only holds others.
  const text =
    error.code === 'commander.help'
      ? (nameOne(failedIn) ?? printed.trim())
      : sentenceOf(error.message, failedIn);
  out.error(new CommandError('usage.invalid', text));
  return EXIT.usage;
}

/** For a command that was named without one of those below it. */
function nameOne(name: string): string | undefined {
  const below = name === '' ? commands : specOf(name)?.subcommands;
  if (below === undefined) return undefined;
  return withHelp(`name a command: ${below.map((one) => one.name).join(', ')}`, name);
}

/** The parser's text in our way of writing: one sentence, and where help is. */
function sentenceOf(message: string, name: string): string {
  const [said = '', hint] = message.replace(/^error: /, '').split(/\n\(Did you mean /);
  const text = said.trim().replaceAll("'", '"').replace(/\.$/, '');
  const meant = /^unknown option "(--[a-z-]+)/.exec(text)?.[1] ?? '';
  const known = optionMeant(meant, name) ?? hint?.replace(/\?\)$/s, '');
  const near = known === undefined ? '' : `; did you mean "${known}"?`;
  return withHelp(`${text}${near}`, name);
}

/** What other tools call a filter, and what it is called here. */
const OPTIONS_MEANT: Readonly<Record<string, string>> = {
  '--after': '--since',
  '--newer-than': '--since',
  '--younger-than': '--since',
  '--before': '--older-than',
  '--until': '--older-than',
  '--dest': '--destination',
  '--origin': '--destination',
  '--to': '--destination',
  '--error': '--code',
  '--error-code': '--code',
  '--status': '--state',
  '--grep': '--text',
  '--search': '--text',
  '--reason': '--text',
  '--max': '--limit',
};

/** The option of a command that goes by another name elsewhere. */
function optionMeant(text: string, name: string): string | undefined {
  const meant = Object.hasOwn(OPTIONS_MEANT, text) ? OPTIONS_MEANT[text] : undefined;
  const known = specOf(name)?.options ?? [];
  return known.some(({ flags }) => flags.split(' ')[0] === meant) ? meant : undefined;
}

function specOf(name: string): CommandSpec | undefined {
  let at: CommandSpec | undefined;
  for (const word of name.split(' ')) {
    at = (at === undefined ? commands : at.subcommands)?.find((one) => one.name === word);
  }
  return at;
}

/** The sentence, and where to read how it goes; once. */
function withHelp(text: string, name: string): string {
  if (text.includes('see: ')) return text;
  const help = `see: ${['respool', name, '--help'].filter((word) => word !== '').join(' ')}`;
  return text.endsWith('?') ? `${text} ${help}` : `${text}; ${help}`;
}

interface Hooks {
  readonly print: (text: string) => void;
  readonly choose: (call: Call) => void;
  /** Hears in which command the words were wrong. */
  readonly fail: (name: string) => void;
}

function programOf(io: Io, hooks: Hooks): Command {
  const program = new Command('respool')
    .description('Stores messages safely, and delivers them with retries.')
    .version('-', '--version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand('help [command]', 'print the help of a command')
    .enablePositionalOptions()
    .configureHelp({ subcommandTerm });
  prepare(program, '', io, hooks);
  for (const option of GLOBAL_OPTIONS) program.addOption(optionOf(option, ''));
  for (const spec of commands) program.addCommand(commandOf(spec, io, hooks));
  const codes = EXIT_CODES.map(({ code, meaning }) => `  ${String(code).padEnd(5)}${meaning}`);
  program.addHelpText('after', `\nExit codes:\n${codes.join('\n')}`);
  return program;
}

/** A command and its arguments; that it takes options goes without saying. */
function subcommandTerm(command: Command): string {
  const names = command.registeredArguments.map((argument) =>
    argument.required ? `<${nameOf(argument)}>` : `[${nameOf(argument)}]`,
  );
  return [command.name(), ...names].join(' ');
}

function nameOf(argument: Argument): string {
  return `${argument.name()}${argument.variadic ? '...' : ''}`;
}

function prepare(command: Command, name: string, io: Io, { print, fail }: Hooks): void {
  const exit = (error: CommanderError): never => {
    fail(name);
    throw error;
  };
  command.exitOverride(exit).configureOutput({
    writeOut: print,
    writeErr: print,
    getOutHelpWidth: () => io.columns(),
    getErrHelpWidth: () => io.columns(),
    outputError: () => undefined,
  });
}

/** A summary as a description: a capital and a full stop. */
function descriptionOf(summary: string): string {
  return `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`;
}

function commandOf(spec: CommandSpec, io: Io, hooks: Hooks, above = ''): Command {
  const path = above === '' ? spec.name : `${above} ${spec.name}`;
  const command = new Command(spec.name)
    .summary(spec.summary)
    .description(spec.description ?? descriptionOf(spec.summary))
    .helpGroup(`${spec.group}:`)
    .helpOption('-h, --help', 'print this help');
  prepare(command, path, io, hooks);
  for (const { name, description, choices } of spec.arguments ?? []) {
    const argument = new Argument(name, description);
    if (choices !== undefined) {
      // The choices for the help, then our own error for any other word.
      const known = (word: string): string => knownWord(word, choices, name, path);
      argument.choices([...choices]).argParser(known);
    }
    command.addArgument(argument);
  }
  for (const option of spec.options ?? []) command.addOption(optionOf(option, path));
  for (const option of GLOBAL_OPTIONS) {
    command.addOption(optionOf(option, path).helpGroup('Options of every command:'));
  }
  for (const below of spec.subcommands ?? []) command.addCommand(commandOf(below, io, hooks, path));
  if (spec.subcommands !== undefined) command.helpCommand(false).enablePositionalOptions();
  if (spec.examples !== undefined) command.addHelpText('after', examplesOf(spec.examples));
  if (spec.run !== undefined) {
    command.action(() => {
      hooks.choose({ name: path, spec, args: command.args, values: valuesOf(command) });
    });
  }
  return command;
}

function optionOf(spec: OptionSpec, path: string): Option {
  const { flags, description, choices, meant = {}, repeatable } = spec;
  const words = choices === undefined ? '' : ` (${choices.join(', ')})`;
  const option = new Option(flags, `${description}${words}`);
  const flag = flags.replace(/ .*$/, '');
  const known = (word: string): string =>
    choices === undefined ? word : knownWord(word, choices, flag, path, meant);
  if (repeatable === true) {
    option.argParser((value: string, before: readonly string[] | undefined) => [
      ...(before ?? []),
      ...(choices === undefined ? [value] : value.split(',').map(known)),
    ]);
  } else if (option.required) {
    option.argParser((value: string, before: string | undefined) => {
      if (before === undefined) return known(value);
      // The last would win in silence, and a filter would mean more than what was asked for.
      throw wrongWord(`${flag} was given twice: give it once`, path);
    });
  }
  return option;
}

function knownWord(
  word: string,
  choices: readonly string[],
  what: string,
  path: string,
  meant: Readonly<Record<string, string>> = {},
): string {
  if (choices.includes(word)) return word;
  const hint = Object.hasOwn(meant, word)
    ? ` (did you mean "${meant[word]}"?)`
    : didYouMean(word, choices);
  throw wrongWord(`cannot use "${word}" as ${what}: allowed is ${choices.join(', ')}${hint}`, path);
}

function wrongWord(text: string, path: string): CommandError {
  return new CommandError('usage.invalid', withHelp(text, path));
}

function examplesOf(examples: NonNullable<CommandSpec['examples']>): string {
  const lines = examples.map(({ line, does }) => `  ${line}\n      ${does}`);
  return `\nExamples:\n${lines.join('\n')}`;
}

/** Options of the command and of those above it; what is nearer to its name wins. */
function valuesOf(command: Command): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (let at: Command | null = command; at !== null; at = at.parent) {
    for (const [name, value] of Object.entries(at.opts())) {
      const isGiven = at.getOptionValueSource(name) !== 'default';
      if (isGiven && !Object.hasOwn(values, name)) values[name] = value;
    }
  }
  return values;
}

async function perform({ name, spec, args, values }: Call, io: Io): Promise<number> {
  const out = createOut(io, outOptionsOf(values));
  const closers: (() => Promise<void> | void)[] = [];
  const globals = globalsOf(values);
  const atEnd = (close: () => Promise<void> | void): void => void closers.push(close);
  const config = createConfigReader({ globals, io, out });
  let session: Promise<Session> | undefined;
  const context: CommandContext = {
    args,
    options: new Options(values),
    globals,
    io,
    out,
    commands,
    config,
    session: () => (session ??= openSession({ ...context, ...wishesOf(spec) })),
    atEnd,
  };
  let code: number = EXIT.done;
  try {
    code = (await spec.run?.(context)) ?? EXIT.done;
  } catch (error) {
    const said = explained(error, name);
    out.error(said);
    code = exitCodeOf(said);
  }
  for (const close of closers.reverse()) {
    try {
      await close();
    } catch (error) {
      out.error(error);
      if (code === EXIT.done) code = exitCodeOf(error);
    }
  }
  return code;
}

/** The error as people can use it: wrong usage with its help, the system's in a sentence. */
function explained(error: unknown, name: string): unknown {
  if (error instanceof CommandError && error.code === 'usage.invalid') {
    return new CommandError(error.code, withHelp(error.message, name));
  }
  if (isRespoolError(error) || !(error instanceof Error) || !('syscall' in error)) return error;
  // Whatever a command opens besides its store is refused in its own words.
  return new RespoolError(
    'store.unavailable',
    `cannot ${name}: the system said "${error.message}"; look at the path and its rights`,
    { cause: error },
  );
}

function wishesOf({ createsStore, prefersService }: CommandSpec): Partial<SessionOptions> {
  return { mayCreate: createsStore, prefersService };
}

function outOptionsOf(values: Readonly<Record<string, unknown>>): Parameters<typeof createOut>[1] {
  const is = (name: string): boolean => values[name] === true;
  return {
    json: is('json'),
    wide: is('wide'),
    quiet: is('quiet'),
    verbose: is('verbose'),
    color: values['color'] !== false,
  };
}

function globalsOf(values: Readonly<Record<string, unknown>>): Globals {
  const given = ['config', 'store', 'url'].filter((name) => typeof values[name] === 'string');
  return Object.fromEntries(given.map((name) => [name, values[name]]));
}
