/**
 * spec — what defines a command: name, arguments, options, examples, and the function that runs
 * it.
 *
 * Files in commands/ hold one, or a few that belong together; commands.ts names them all. Help,
 * completions and the reference are made of them, so a file loads nothing heavy before its `run` is
 * called.
 */

import type { ExitCode } from './exit-codes.ts';
import type { Io, Out } from './ui/output.ts';
import type { ConfigReader, Session } from './session.ts';
import type { Options } from './options.ts';

/** What may be given after a command's name. */
export interface ArgumentSpec {
  /** As in help: `<topic>` must be given, `[id...]` may be, several times. */
  readonly name: string;
  readonly description: string;
  /** The words that are allowed; for completions too. */
  readonly choices?: readonly string[];
}

/** One option of a command. */
export interface OptionSpec {
  /** As in help: `--topic <pattern>`, or `--yes` for a switch. */
  readonly flags: string;
  readonly description: string;
  /** The words that are allowed; for completions too. */
  readonly choices?: readonly string[];
  /** Words that others use, and the choice that each means; they are hinted at, not taken. */
  readonly meant?: Readonly<Record<string, string>>;
  /** May be given several times; with choices also as words joined by commas. */
  readonly repeatable?: true;
}

/** Under which heading of the help a command is shown. */
export type CommandGroup =
  | 'Start'
  | 'Messages'
  | 'Control'
  | 'Inspect'
  | 'Maintain'
  | 'RabbitMQ'
  | 'Dead letters'
  | 'Outbox';

/** A command. */
export interface CommandSpec {
  readonly name: string;
  readonly summary: string;
  readonly group: CommandGroup;
  /** More than the summary, in sentences. */
  readonly description?: string;
  readonly arguments?: readonly ArgumentSpec[];
  readonly options?: readonly OptionSpec[];
  /** Whole command lines, each with what it does. */
  readonly examples?: readonly { readonly line: string; readonly does: string }[];
  /** What the token must allow if the command goes through a service; none: it never does. */
  readonly role?: 'post' | 'read' | 'operate' | 'admin';
  /** A service that has the store open knows more than the store. */
  readonly prefersService?: true;
  /** It makes a store where there is none; others say that there is none. */
  readonly createsStore?: true;
  /** Commands below this one; without a `run` it does nothing itself. */
  readonly subcommands?: readonly CommandSpec[];
  /** Does it. Nothing returned is 0. */
  readonly run?: (context: CommandContext) => Promise<ExitCode | undefined>;
}

/** The options that every command takes. */
export interface Globals {
  readonly config?: string;
  readonly store?: string;
  readonly url?: string;
}

/** What a command works with. */
export interface CommandContext {
  /** What was given after the name, in its order. */
  readonly args: readonly string[];
  readonly options: Options;
  readonly globals: Globals;
  readonly io: Io;
  readonly out: Out;
  /** The messages are those of an outbox: nothing is announced there, and a relay sends. */
  readonly isOutbox?: true;
  /** All commands, for what is made of them. */
  readonly commands: readonly CommandSpec[];
  /** The configuration, read at the first call; a command reads it once. */
  readonly config: ConfigReader;
  /** The session, opened at the first call and closed when the command ends. */
  readonly session: () => Promise<Session>;
  /** Called when the command ends, however it ends; the last first. */
  readonly atEnd: (close: () => Promise<void> | void) => void;
}
