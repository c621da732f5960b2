/**
 * program — from the words of a command line to one command, its output and its exit code.
 *
 * `run` never throws and never ends the process: main.ts does that with the number it returns.
 */

import { Argument, Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { commands } from './commands.ts';
import { CommandError, EXIT, EXIT_CODES, type ExitCode, exitCodeOf } from './exit-codes.ts';
import type { Io } from './io.ts';
import { type Desk, type DeskParts, openDesk } from './open-desk.ts';
import { Options } from './options.ts';
import { createOut, type Out } from './out.ts';
import type { CommandContext, CommandSpec, Globals, OptionSpec } from './spec.ts';
import { readVersion } from './version.ts';

/** The options that every command takes, before or after its name. */
export const GLOBAL_OPTIONS: readonly OptionSpec[] = [
  { flags: '--config <file>', description: 'the configuration file; default: found upwards' },
  { flags: '--store <url>', description: 'where messages lie, such as sqlite:./respool' },
  { flags: '--url <url>', description: 'a running service; its token comes from RESPOOL_TOKEN' },
  { flags: '--json', description: 'print JSON: lists one object per line' },
  { flags: '--quiet', description: 'print results only' },
  { flags: '--verbose', description: 'say more on stderr' },
  { flags: '--no-color', description: 'no colours; NO_COLOR does the same' },
];

/** What was asked for. */
interface Call {
  readonly spec: CommandSpec;
  readonly args: readonly string[];
  readonly values: Readonly<Record<string, unknown>>;
}

/** Runs one command line; resolves to its exit code. */
export async function run(argv: readonly string[], io: Io): Promise<number> {
  let printed = '';
  let call: Call | undefined;
  const program = programOf(io, {
    print: (text) => {
      printed += text;
    },
    choose: (chosen) => {
      call = chosen;
    },
  });
  // Before the parser had a look: also its errors are JSON where JSON was asked for.
  const early = createOut(io, outOptionsOf({ json: argv.includes('--json') }));
  if (argv.length === 0) {
    early.note(program.helpInformation().trimEnd());
    return EXIT.usage;
  }
  try {
    await program.parseAsync([...argv], { from: 'user' });
  } catch (error) {
    return endOfParsing(error, early, printed);
  }
  return call === undefined ? EXIT.usage : perform(call, io);
}

async function endOfParsing(error: unknown, out: Out, printed: string): Promise<ExitCode> {
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
  // A command that only holds others was named alone: its help is the answer, and the usage wrong.
  const text = error.code === 'commander.help' ? printed.trim() : sentenceOf(error.message);
  out.error(new CommandError('usage.invalid', text));
  return EXIT.usage;
}

/** The parser's text in our way of writing: one sentence, and where help is. */
function sentenceOf(message: string): string {
  const [said = '', hint] = message.replace(/^error: /, '').split(/\n\(Did you mean /);
  const text = said.trim().replaceAll("'", '"').replace(/\.$/, '');
  const near = hint === undefined ? '' : `; did you mean "${hint.replace(/\?\)$/s, '')}"?`;
  return `${text}${near}${near === '' ? ';' : ''} see: respool --help`;
}

interface Hooks {
  readonly print: (text: string) => void;
  readonly choose: (call: Call) => void;
}

function programOf(io: Io, hooks: Hooks): Command {
  const program = new Command('respool')
    .description('Puts messages down in a safe place and delivers them, with retries.')
    .version('-', '--version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand('help [command]', 'print the help of a command')
    .enablePositionalOptions()
    .configureHelp({ subcommandTerm });
  prepare(program, io, hooks);
  for (const option of GLOBAL_OPTIONS) program.addOption(optionOf(option));
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

function prepare(command: Command, io: Io, { print }: Hooks): void {
  command.exitOverride().configureOutput({
    writeOut: print,
    writeErr: print,
    getOutHelpWidth: () => io.columns(),
    getErrHelpWidth: () => io.columns(),
    outputError: () => undefined,
  });
}

function commandOf(spec: CommandSpec, io: Io, hooks: Hooks): Command {
  const command = new Command(spec.name)
    .summary(spec.summary)
    .description(spec.description ?? `${spec.summary}.`)
    .helpGroup(`${spec.group}:`)
    .helpOption('-h, --help', 'print this help');
  prepare(command, io, hooks);
  for (const { name, description, choices } of spec.arguments ?? []) {
    const argument = new Argument(name, description);
    command.addArgument(choices === undefined ? argument : argument.choices([...choices]));
  }
  for (const option of spec.options ?? []) command.addOption(optionOf(option));
  for (const option of GLOBAL_OPTIONS) {
    command.addOption(optionOf(option).helpGroup('Options of every command:'));
  }
  for (const below of spec.subcommands ?? []) command.addCommand(commandOf(below, io, hooks));
  if (spec.subcommands !== undefined) command.helpCommand(false).enablePositionalOptions();
  if (spec.examples !== undefined) command.addHelpText('after', examplesOf(spec.examples));
  if (spec.run !== undefined) {
    command.action(() => {
      hooks.choose({ spec, args: command.args, values: valuesOf(command) });
    });
  }
  return command;
}

function optionOf({ flags, description, choices, repeatable }: OptionSpec): Option {
  const words = choices === undefined ? '' : ` (${choices.join(', ')})`;
  const option = new Option(flags, `${description}${words}`);
  if (repeatable === true) {
    option.argParser((value: string, before: readonly string[] | undefined) => [
      ...(before ?? []),
      ...(choices === undefined ? [value] : value.split(',').map((word) => known(word, choices))),
    ]);
  } else if (choices !== undefined) option.argParser((value: string) => known(value, choices));
  return option;
}

function known(word: string, choices: readonly string[]): string {
  if (choices.includes(word)) return word;
  throw new InvalidArgumentError(`Allowed is ${choices.join(', ')}`);
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

async function perform({ spec, args, values }: Call, io: Io): Promise<number> {
  const out = createOut(io, outOptionsOf(values));
  const closers: (() => Promise<void> | void)[] = [];
  const globals = globalsOf(values);
  const atEnd = (close: () => Promise<void> | void): void => void closers.push(close);
  let desk: Promise<Desk> | undefined;
  const context: CommandContext = {
    args,
    options: new Options(values),
    globals,
    io,
    out,
    commands,
    desk: () => (desk ??= openDesk({ globals, io, out, atEnd, ...wishesOf(spec) })),
    atEnd,
  };
  let code: number = EXIT.done;
  try {
    code = (await spec.run?.(context)) ?? EXIT.done;
  } catch (error) {
    out.error(error);
    code = exitCodeOf(error);
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

function wishesOf({ createsStore, prefersService }: CommandSpec): Partial<DeskParts> {
  return { mayCreate: createsStore, prefersService };
}

function outOptionsOf(values: Readonly<Record<string, unknown>>): Parameters<typeof createOut>[1] {
  const is = (name: string): boolean => values[name] === true;
  return {
    json: is('json'),
    quiet: is('quiet'),
    verbose: is('verbose'),
    color: values['color'] !== false,
  };
}

function globalsOf(values: Readonly<Record<string, unknown>>): Globals {
  const given = ['config', 'store', 'url'].filter((name) => typeof values[name] === 'string');
  return Object.fromEntries(given.map((name) => [name, values[name]]));
}
