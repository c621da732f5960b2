/**
 * option-table — tables that state options as plain data, and the checks that read them.
 *
 * A table states each option once: its name, kind, range, default and one sentence. Checks and
 * defaults are read from it at run time; types, reference pages, configuration keys and the JSON
 * Schema of a configuration are written from it by `npm run options`. Promise: what `readOptions`
 * returns is within the ranges of the table. Why data, and why interfaces are written:
 * docs/decisions/0046-options-are-stated-once-as-data.md
 */

import { durationMs } from './duration.ts';
import { assert, RespoolError, show } from './errors.ts';
import { checkNames, checkNumber, checkOneOf, type NumberRange } from './limits.ts';

/** What every option states. */
interface OptionBase {
  /** One sentence in Markdown, as a reference page continues after the name. */
  readonly about: string;
  readonly required?: true;
  /** The default in words, where it depends on something. */
  readonly defaultText?: string;
  /** Its type for people, where that does not follow from the kind. */
  readonly type?: string;
  /** Its type in TypeScript, where that does not follow from the kind. */
  readonly ts?: string;
  /** The flag of `respool serve`; only for keys of a configuration. */
  readonly flag?: string;
  /**
   * `true`: never shown, and never taken from a command line; `password`: an address that may hold
   * one, which is not shown; `keys`: data in which keys are shown by their places. False, as by
   * default: no secret, though its name may sound like one.
   */
  readonly secret?: boolean | 'password' | 'keys';
  /** May follow the question mark of a store's address. */
  readonly inUrl?: true;
}

/** A whole number. */
interface NumberOption extends OptionBase {
  readonly kind: 'number';
  readonly min: number;
  readonly max: number;
  readonly default?: number;
}

/** A number that need not be whole. */
interface DecimalOption extends OptionBase {
  readonly kind: 'decimal';
  readonly min: number;
  readonly max: number;
  readonly default?: number;
}

/** A number of bytes; the table writes it like `64 MiB`. */
interface BytesOption extends OptionBase {
  readonly kind: 'bytes';
  readonly min: string;
  readonly max: string;
  readonly default?: string;
}

/** A span of time. */
interface DurationOption extends OptionBase {
  readonly kind: 'duration';
  readonly min?: string;
  readonly max?: string;
  readonly default?: string;
}

/** True or false. */
interface BooleanOption extends OptionBase {
  readonly kind: 'boolean';
  readonly default?: boolean;
}

/** One of a list of words. */
interface ChoiceOption extends OptionBase {
  readonly kind: 'choice';
  readonly choices: readonly (string | boolean)[];
  readonly default?: string | boolean;
}

/** Options with a name in common, such as `limits`. */
interface GroupOption extends OptionBase {
  readonly kind: 'group';
  readonly options: OptionTable;
}

/**
 * An option that its owner checks: a text, the name of a file, how long something is kept, data
 * that may be written as JSON, data, code; `numbers` is one number, or several by name.
 */
export interface OwnOption extends OptionBase {
  readonly kind: 'text' | 'file' | 'keep' | 'json' | 'data' | 'code' | 'numbers';
  readonly default?: unknown;
  /** The name of its definition in the JSON Schema, where it is more than a text. */
  readonly schema?: string;
}

/** One option. */
export type Option =
  | NumberOption
  | DecimalOption
  | BytesOption
  | DurationOption
  | BooleanOption
  | ChoiceOption
  | GroupOption
  | OwnOption;

/** Options by their names, in the order of pages and error texts. */
export type OptionTable = Readonly<Record<string, Option>>;

/** The clock of anything that reads the time. */
export const CLOCK_OPTION: OwnOption = {
  kind: 'code',
  type: 'Clock',
  ts: 'Clock',
  defaultText: 'the system clock',
  about: 'for tests',
};

/** The randomness of anything that spreads its retries. */
export const DICE_OPTION: OwnOption = {
  kind: 'code',
  type: 'Dice',
  ts: 'Dice',
  defaultText: "the system's",
  about: 'for tests',
};

/** The names of checked options; spans of time are milliseconds, and end in `Ms`. */
type NameOf<Name extends string, One> = One extends { readonly kind: 'duration' }
  ? `${Name}Ms`
  : One extends { readonly kind: 'number' | 'decimal' | 'bytes' | 'boolean' | 'choice' }
    ? Name
    : never;

type ValueOf<One> = One extends { readonly kind: 'number' | 'decimal' | 'bytes' | 'duration' }
  ? number
  : One extends { readonly kind: 'boolean' }
    ? boolean
    : One extends { readonly choices: readonly (infer Word)[] }
      ? Word
      : never;

type Unset<One> = One extends { readonly default: unknown } | { readonly required: true }
  ? never
  : undefined;

/** The checked options of a table, with its defaults, without those that their owner checks. */
export type OptionValues<Table extends OptionTable> = {
  readonly [Name in keyof Table & string as NameOf<Name, Table[Name]>]:
    | ValueOf<Table[Name]>
    | Unset<Table[Name]>;
};

/** Where options belong, for error texts. */
interface OptionOwner {
  /** The function or the group that takes the options. */
  readonly what: string;
  /** What precedes each name in an error text, such as `limits.`. */
  readonly prefix?: string;
}

/** Refuses unknown names and values out of range; fills in the defaults. */
export function readOptions<const Table extends OptionTable>(
  { what, prefix = '' }: OptionOwner,
  input: object,
  table: Table,
): OptionValues<Table> {
  checkNames(what, input, Object.keys(table));
  return valuesOf(input, table, (name, value, option) =>
    checkOption(`${prefix}${name}`, value, option),
  );
}

/** The checked options of a table, with its defaults; `check` refuses a value or returns it. */
export function valuesOf<const Table extends OptionTable>(
  input: object,
  table: Table,
  check: (name: string, value: unknown, option: Option) => unknown,
): OptionValues<Table> {
  const values: Record<string, unknown> = {};
  for (const [name, option] of Object.entries(table)) {
    if (!isChecked(option)) continue;
    const value: unknown = Reflect.get(input, name) ?? defaultOf(option);
    const key = option.kind === 'duration' ? `${name}Ms` : name;
    const isLeftOut = value === undefined && option.required !== true;
    values[key] = isLeftOut ? undefined : check(name, value, option);
  }
  return values as OptionValues<Table>;
}

/** The options of a group; its name precedes theirs in error texts. */
export function readGroup<const Table extends OptionTable>(
  name: string,
  value: object | undefined,
  { options }: { readonly options: Table },
): OptionValues<Table> {
  return readOptions({ what: name, prefix: `${name}.` }, value ?? {}, options);
}

/** Whether the table alone decides which values are allowed. */
export function isChecked({ kind }: Option): boolean {
  return ['number', 'decimal', 'bytes', 'duration', 'boolean', 'choice'].includes(kind);
}

/** The options that may follow the question mark of a store's address. */
export function urlNames(table: OptionTable): readonly string[] {
  return Object.keys(table).filter((name) => table[name]?.inUrl === true);
}

/** The default of an option, as a value. */
export function defaultOf(option: Option): unknown {
  if (option.kind === 'group') return undefined;
  return option.kind === 'bytes' && option.default !== undefined
    ? bytesOf(option.default)
    : option.default;
}

/** The range of a whole number. */
export function rangeOf(table: OptionTable, name: string): NumberRange {
  const option = table[name];
  assert(option?.kind === 'number', `the option "${name}" is a number`);
  return option;
}

/** Refuses a value that is out of range; one that its owner checks is returned as it is. */
export function checkOption(what: string, value: unknown, option: Option): unknown {
  switch (option.kind) {
    case 'number':
      return checkNumber(what, value, option);
    case 'decimal':
      return checkNumber(what, value, option, false);
    case 'bytes':
      return checkNumber(what, value, { min: bytesOf(option.min), max: bytesOf(option.max) });
    case 'duration':
      return durationMs(value as string, what, durationRange(option));
    case 'boolean':
      return checkBoolean(what, value);
    case 'choice':
      return checkChoice(what, value, option.choices);
    default:
      return value;
  }
}

/** Refuses what is neither true nor false. */
export function checkBoolean(what: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}": allowed is true or false`,
  );
}

function checkChoice(
  what: string,
  value: unknown,
  choices: readonly (string | boolean)[],
): string | boolean {
  if (typeof value === 'boolean' && choices.includes(value)) return value;
  return checkOneOf(what, value, choices as readonly string[]);
}

function durationRange({ min, max }: DurationOption): { minMs?: number; maxMs?: number } {
  return {
    ...(min === undefined ? {} : { minMs: durationMs(min, 'min') }),
    ...(max === undefined ? {} : { maxMs: durationMs(max, 'max') }),
  };
}

/** Small sizes as people write them. */
const SHORT: Readonly<Record<string, string>> = { '0 bytes': '0', '1 bytes': '1 byte' };

const UNITS = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** `64 MiB` → 67108864. */
export function bytesOf(text: string): number {
  const [amount = '', unit = 'bytes'] = text.split(' ');
  return Number(amount) * 1_024 ** UNITS.indexOf(unit);
}

/** The type of an option for people, with its range: `duration, 1s to 1d`. */
export function typeText(option: Option): string {
  if (option.type !== undefined) return option.type;
  switch (option.kind) {
    case 'number':
    case 'decimal':
      return `${option.min.toLocaleString('en')} to ${option.max.toLocaleString('en')}`;
    case 'bytes':
      return `${SHORT[option.min] ?? option.min} to ${option.max}`;
    case 'duration': {
      const { min, max } = option;
      if (max === undefined) return min === undefined ? 'duration' : `duration, at least ${min}`;
      return min === undefined ? `duration, up to ${max}` : `duration, ${min} to ${max}`;
    }
    case 'boolean':
      return '`true` or `false`';
    case 'choice':
      return listText(option.choices.map((word) => `\`${word}\``));
    default:
      return option.kind === 'file' ? 'a file' : option.kind;
  }
}

/** `a`, `b` or `c`. */
function listText(words: readonly string[]): string {
  const last = words.at(-1) ?? '';
  return words.length < 2 ? last : `${words.slice(0, -1).join(', ')} or ${last}`;
}
