/** options — the command and options of `exec()`, checked all at once when it is called. */

import { DAY_MS, type Duration, durationMs } from '../../core/duration.ts';
import { checkNames } from '../../core/limits.ts';
import { hideArguments, hideValues } from '../redact.ts';
import { checkOptionList, checkRecord, checkTexts, refused } from '../option-checks.ts';

/** What `exec()` takes besides the command. */
export interface ExecOptions {
  /** The folder the command runs in, and relative programs are looked for; ours by default. */
  readonly cwd?: string;
  /** Environment variables for the command, besides the inherited ones. */
  readonly env?: Readonly<Record<string, string>>;
  /** Names of our environment variables to pass on; PATH, HOME, LANG, TZ and such by default. */
  readonly inherit?: readonly string[];
  /** The command is told to end after this, `'5m'` unless said otherwise. */
  readonly timeout?: Duration;
  /** So long it may take to end before it is killed, `'5s'` unless said otherwise. */
  readonly killAfter?: Duration;
  /** Exit codes that are tried again, besides 75 and all that are in no list. */
  readonly transient?: readonly number[];
  /** Exit codes that are final, besides 64 to 68, 77 and 78 of sysexits. */
  readonly permanent?: readonly number[];
  /** Exit codes after which the message is held for a person to look; none by default. */
  readonly hold?: readonly number[];
}

/** What an exit code means for the message. */
export type ExitMeaning = 'transient' | 'permanent' | 'hold';

/** Command and options in the form the handler works with. */
export interface ExecSettings {
  readonly program: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  readonly env: Readonly<Record<string, string>>;
  readonly inherit: readonly string[];
  readonly timeoutMs: number;
  readonly killAfterMs: number;
  readonly exits: ReadonlyMap<number, ExitMeaning>;
}

const KNOWN = [
  'cwd',
  'env',
  'inherit',
  'timeout',
  'killAfter',
  'transient',
  'permanent',
  'hold',
] as const;

/** Enough to find programs, a home and a language; nothing that carries secrets. */
const INHERITED: readonly string[] = (
  'PATH HOME USER LOGNAME SHELL LANG LANGUAGE LC_ALL LC_CTYPE TZ TMPDIR TEMP TMP ' +
  'SYSTEMROOT SystemRoot PATHEXT COMSPEC'
).split(' ');

/** The codes of sysexits that say: this message, or this command, will never work like this. */
const DEFAULT_EXITS: readonly (readonly [number, ExitMeaning])[] = [
  [64, 'permanent'],
  [65, 'permanent'],
  [66, 'permanent'],
  [67, 'permanent'],
  [68, 'permanent'],
  [75, 'transient'],
  [77, 'permanent'],
  [78, 'permanent'],
];

const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;
const COMMAND_ALLOWED =
  "a list such as ['./send.sh', '--fast'], or the name of a program without blanks; " +
  'there is no shell in between';
const EXIT_ALLOWED = 'a list of exit codes 1 to 255';

/** Checks everything, so that a mistake is found at the start and not with the first message. */
export function checkExecOptions(command: unknown, options: ExecOptions): ExecSettings {
  if (typeof options !== 'object' || options === null) {
    throw refused('options of exec()', options, "an object such as { timeout: '5m' }");
  }
  checkNames('exec()', options, KNOWN);
  const { cwd } = options;
  if (cwd !== undefined && !isPlain(cwd)) throw refused('cwd', cwd, 'the path of a folder');
  return {
    ...checkCommand(command),
    cwd,
    env: checkEnvironment(options.env ?? {}),
    inherit: checkTexts('inherit', options.inherit ?? INHERITED, 'names of variables', isVariable),
    timeoutMs: durationMs(options.timeout ?? '5m', 'timeout', { minMs: 1, maxMs: DAY_MS }),
    killAfterMs: durationMs(options.killAfter ?? '5s', 'killAfter', { maxMs: DAY_MS }),
    exits: checkExits(options),
  };
}

function checkCommand(command: unknown): Pick<ExecSettings, 'program' | 'args'> {
  const isName = typeof command === 'string';
  // "program argument" in one text is meant for a shell, which would read more into it than meant.
  if (isName && /\s/.test(command)) throw refused('command', command, COMMAND_ALLOWED);
  const list = checkOptionList('command', isName ? [command] : command, COMMAND_ALLOWED);
  const wrong = list.findIndex((part, at) => !(isPlain(part) || (part === '' && at > 0)));
  if (list.length === 0 || wrong >= 0) throw refused('command', command, COMMAND_ALLOWED);
  const [program = '', ...args] = list as readonly string[];
  return { program, args };
}

function checkEnvironment(env: unknown): Readonly<Record<string, string>> {
  const pairs = checkRecord('env', env, 'an object of names to texts');
  for (const [name, value] of pairs) {
    if (!isVariable(name) || name.startsWith('RESPOOL_')) {
      throw refused('env', name, 'names of A-Z a-z 0-9 _ that do not begin with RESPOOL_');
    }
    // The value is not named: the environment carries secrets.
    if (value.includes('\0')) throw refused(`env.${name}`, '…', 'a text without NUL');
  }
  return Object.fromEntries(pairs);
}

function checkExits(options: ExecOptions): ReadonlyMap<number, ExitMeaning> {
  const own = new Map<number, ExitMeaning>();
  for (const meaning of ['transient', 'permanent', 'hold'] as const) {
    for (const code of checkOptionList(meaning, options[meaning] ?? [], EXIT_ALLOWED)) {
      if (typeof code !== 'number' || !Number.isInteger(code) || code < 1 || code > 255) {
        throw refused(meaning, code, EXIT_ALLOWED);
      }
      if ((own.get(code) ?? meaning) !== meaning) {
        throw refused(meaning, code, `an exit code that is not in "${own.get(code)}" as well`);
      }
      own.set(code, meaning);
    }
  }
  return new Map([...DEFAULT_EXITS, ...own]);
}

function isPlain(text: unknown): text is string {
  return typeof text === 'string' && text !== '' && !text.includes('\0');
}

function isVariable(name: string): boolean {
  return VARIABLE.test(name);
}

/** The settings as they may be shown. */
export function describeExec(settings: ExecSettings): Readonly<Record<string, unknown>> {
  const { program, args, cwd, exits } = settings;
  const withMeaning = (wanted: ExitMeaning) =>
    [...exits].filter(([, meaning]) => meaning === wanted).map(([code]) => code);
  return {
    kind: 'exec',
    command: [program, ...hideArguments(args)],
    ...(cwd === undefined ? {} : { cwd }),
    env: hideValues(settings.env),
    inherit: settings.inherit,
    timeoutMs: settings.timeoutMs,
    killAfterMs: settings.killAfterMs,
    transient: withMeaning('transient'),
    permanent: withMeaning('permanent'),
    hold: withMeaning('hold'),
  };
}
