/**
 * config-errors — errors about a configuration: which key, by its whole path, and who said it;
 * unknown names, with the one that was probably meant; and reading one item of a list by its
 * table.
 *
 * The wording `as "key"`, `key "key"` and `cannot use "key"` of an error is parsed here, by
 * `wholeName` and `withOrigin`, also in errors of other rooms: keep it.
 */

import { isRespoolError, RespoolError, show } from '../../core/errors.ts';
import { checkOption, defaultOf, isChecked, type OptionTable } from '../../core/option-table.ts';

/** Who said a value. */
export interface Origin {
  readonly from: 'flag' | 'file' | 'environment' | 'default';
  /** The flag, the file or the variable; empty for a default. */
  readonly name: string;
}

/** The error of a value that is not what it may be. */
export function configError(key: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${key}": allowed is ${allowed}`,
  );
}

/**
 * Refuses what is no name of a rule or a policy; `what` stands before what is allowed. The pattern
 * as in spool/options.ts and scripts/options/schema.ts.
 */
export function checkItemName(key: string, name: unknown, what = ''): string {
  if (typeof name === 'string' && /^[A-Za-z0-9._-]{1,64}$/.test(name)) return name;
  throw configError(key, name, `${what}1 to 64 letters, digits, . _ -`);
}

/** Refuses an item that has the same as an earlier one under `id`, by what is under `of`. */
export function refuseTwice<Item extends object>(
  key: string,
  items: readonly Item[],
  { of, id = [of], advice }: TwiceOptions<Item>,
): void {
  const ids = items.map((item) => JSON.stringify(id.map((name) => item[name])));
  const first = new Map(ids.map((one, at) => [one, at] as const).toReversed());
  const at = ids.findIndex((one, place) => first.get(one) !== place);
  const item = items[at];
  if (item === undefined) return;
  const before = `${key}[${first.get(ids[at] ?? '')}]`;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(item[of])} as "${key}[${at}].${of}": ${before} has it already${advice}`,
  );
}

interface TwiceOptions<Item> {
  readonly of: keyof Item & string;
  readonly id?: readonly (keyof Item)[];
  /** What to do about it. */
  readonly advice: string;
}

/**
 * Refuses names that are no keys, with the one that was probably meant. A key that ends with `?`
 * is an address, such as `store?`: its options follow without a dot.
 */
export function checkKeys(key: string, value: object, texts: readonly string[]): void {
  const strange = Object.keys(value).find((name) => !texts.includes(name));
  if (strange === undefined) return;
  const whole = key === '' || key.endsWith('?') ? `${key}${strange}` : `${key}.${strange}`;
  const hint = didYouMean(strange, texts);
  throw new RespoolError(
    'config.invalid',
    `there is no key "${whole}"${hint}: known are ${texts.join(', ') || 'none'}`,
  );
}

/** Lets the error of a check further down name the whole key: `url` → `routes[1].…http.url`. */
export function inSection<T>(key: string, check: () => T, mark = '.'): T {
  try {
    return check();
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    throw new RespoolError('config.invalid', wholeName(error.message, `${key}${mark}`));
  }
}

function wholeName(text: string, prefix: string): string {
  const key = prefix.slice(0, -1);
  let isNamed = false;
  const named = text.replace(/ as "([^"]+)"/, (_, name: string) => {
    isNamed = true;
    if (name === key || name.startsWith(prefix)) return ` as "${name}"`;
    // A check that names its own thing first must not make it stand there twice.
    const last = `${key.split('.').at(-1) ?? ''}.`;
    return ` as "${prefix}${name.startsWith(last) ? name.slice(last.length) : name}"`;
  });
  return isNamed ? named : `cannot use "${key}": ${text}`;
}

/** The same text with who said the value at its end, as `config.invalid`; others as they are. */
export function withOrigin(
  error: unknown,
  origins: ReadonlyMap<string, Origin>,
  file: string | undefined,
): unknown {
  if (!isRespoolError(error)) return error;
  const [, key = ''] =
    /(?: as| key) "([^"]+)"/.exec(error.message) ??
    /^cannot use "([^"]+)"/.exec(error.message) ??
    [];
  const said = originText(nearestOrigin(key, origins), file);
  const text = said === '' || error.message.includes(said) ? '' : `; ${said}`;
  return new RespoolError('config.invalid', `${error.message}${text}`);
}

/** The origin of a key, or of the nearest key that holds it. */
export function nearestOrigin(
  key: string,
  origins: ReadonlyMap<string, Origin>,
): Origin | undefined {
  for (let name = key; name !== ''; name = name.replace(/[.?[][^.?[]*$|^[^.?[]*$/, '')) {
    const found = origins.get(name);
    if (found !== undefined) return found;
  }
  return undefined;
}

function originText(origin: Origin | undefined, file: string | undefined): string {
  if (origin === undefined) return file === undefined ? '' : `in ${file}`;
  if (origin.from === 'default') return '';
  return origin.from === 'file' ? `in ${origin.name}` : `from ${origin.name}`;
}

/** Where a configuration file cannot be read, by line and column. */
export function syntaxError(
  file: string,
  line: number,
  column: number,
  what: string,
): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot read ${file}: line ${line}, column ${column}: ${what}`,
  );
}

/** ` (did you mean "store"?)`, or nothing; a beginning that all names share does not count. */
export function didYouMean(text: string, texts: readonly string[], beginning = ''): string {
  const near = nearest(
    text.slice(beginning.length),
    texts.map((name) => name.slice(beginning.length)),
  );
  return near === undefined ? '' : ` (did you mean "${beginning}${near}"?)`;
}

/** Whether a name is a known one, or nearly; open/transforms.ts shows no other: it may be a key. */
export function isNear(text: string, texts: readonly string[]): boolean {
  return nearest(text, texts) !== undefined;
}

function nearest(text: string, texts: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(text.length / 3)) + 1;
  for (const name of texts) {
    const distance = distanceOf(text.toLowerCase(), name.toLowerCase());
    if (distance < bestDistance) [best, bestDistance] = [name, distance];
  }
  return best;
}

/** How many letters must be put in, taken out, replaced or swapped with their neighbour. */
function distanceOf(from: string, to: string): number {
  // A long name is no typing error, and the table below grows with the square of its length.
  if (from.length > 64 || to.length > 64) return Number.POSITIVE_INFINITY;
  let before: number[] = [];
  let last: number[] = Array.from({ length: to.length + 1 }, (_, at) => at);
  for (let row = 1; row <= from.length; row += 1) {
    const next = [row];
    for (let column = 1; column <= to.length; column += 1) {
      const isSame = from[row - 1] === to[column - 1];
      let cost = Math.min(
        (last[column] ?? 0) + 1,
        (next[column - 1] ?? 0) + 1,
        (last[column - 1] ?? 0) + (isSame ? 0 : 1),
      );
      const isSwap = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      if (row > 1 && column > 1 && isSwap) cost = Math.min(cost, (before[column - 2] ?? 0) + 1);
      next.push(cost);
    }
    [before, last] = [last, next];
  }
  return last[to.length] ?? 0;
}

// The values of one route, consumer, rule, outbox or relay: as configured, else from the
// table of its keys, checked against it.

/** What is read, and how it is named in an error. */
interface ItemSource {
  readonly table: OptionTable;
  readonly item: Readonly<Record<string, unknown>>;
  /** The whole name of the item, such as `routes[0]`. */
  readonly key: string;
  /** Paths of texts that were filled in from the environment, and may mean a number. */
  readonly filled?: ReadonlySet<string>;
}

/** The values that a table checks or has a default for, as written; refuses what is not allowed. */
export function readItem<Values extends object>({ table, item, key, filled }: ItemSource): Values {
  const values: Record<string, unknown> = {};
  for (const [name, option] of Object.entries(table)) {
    const whole = `${key}.${name}`;
    const said = item[name];
    const isNumber = option.kind === 'number' && typeof said === 'string' && said.trim() !== '';
    const given = isNumber && filled?.has(whole) === true ? Number(said) : said;
    const value = given ?? defaultOf(option);
    const isOfTable = isChecked(option) || defaultOf(option) !== undefined;
    if (value === undefined || !isOfTable) continue;
    checkOption(whole, value, option);
    values[name] = value;
  }
  return values as Values;
}
