/**
 * read-file — what a configuration file says, as it says it. Nothing is checked here but its form.
 *
 *   .json .yaml .yml    parsed, then ${NAME} filled in from the environment
 *   .ts .mts .js .mjs   imported; the default export is the configuration
 */

import { isUtf8 } from 'node:buffer';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { asError, RespoolError, show, textOf } from '../../core/errors.ts';
import { checkTopicPattern, isPlainObject } from '../../core/limits.ts';
import { isSecretVariable, type KnownSecrets } from '../../core/redact.ts';
import { importFile } from '../../system/peer.ts';
import { scanJson } from '../../core/scan-json.ts';
import { syntaxError } from './config-errors.ts';

/** A configuration file that is parsed is not larger than this; a program is imported as it is. */
const FILE_MAX_BYTES: number = 2 ** 20;
const DEPTH_MAX = 32;

/** The environment, as the process has it. */
export type Environment = Record<string, string | undefined>;

/** What a file said. */
export interface RawConfig {
  readonly value: Readonly<Record<string, unknown>>;
  /** The paths of texts in which something was filled in, and which may mean a number. */
  readonly filled: ReadonlySet<string>;
  /**
   * The paths of texts that are nothing but one variable of the environment, and not of a file
   * `.env`: effective-config.ts lets such a token stand in a file.
   */
  readonly lent: ReadonlySet<string>;
  /** The topic patterns of all routes, also of those left out; undefined: none, or not readable. */
  readonly topics?: readonly string[] | undefined;
}

/** What of a file is read, and how. */
interface ReadOptions {
  /**
   * Keys at the top that are left out; `list[].name` is that name in each item of a list,
   * `group.name` that name in an object.
   */
  readonly without?: readonly string[];
  /** Variables that came from a file `.env`. */
  readonly added?: ReadonlySet<string>;
}

/** Whether a configuration file is a program. */
export function isProgram(file: string): boolean {
  return /\.m?[jt]s$/.test(file);
}

/** Reads a file, or runs it. */
export async function readConfigFile(
  file: string,
  env: Environment,
  secrets: KnownSecrets,
  options: ReadOptions = {},
): Promise<RawConfig> {
  if (!isProgram(file)) return parseConfig(await readText(file), file, env, secrets, options);
  const data = await runProgram(file);
  const value = leaveOut(data, options.without ?? []);
  return { value, filled: new Set(), lent: new Set(), topics: topicsOf(data) };
}

/**
 * Read without the rest of the routes, so that a tool that does not deliver knows the topics
 * without the secrets of the handlers. Nothing is claimed of a list that is not as it should be.
 */
function topicsOf({ routes }: Readonly<Record<string, unknown>>): readonly string[] | undefined {
  if (!Array.isArray(routes) || routes.length === 0) return undefined;
  try {
    return routes.map((route: unknown) =>
      checkTopicPattern(isPlainObject(route) ? route['topic'] : ''),
    );
  } catch {
    return undefined;
  }
}

function leaveOut(
  data: Readonly<Record<string, unknown>>,
  without: readonly string[],
): Record<string, unknown> {
  const kept = Object.entries(data).filter(([key]) => !without.includes(key));
  return Object.fromEntries(
    kept.map(([key, value]) => {
      const below = (inside: string): string[] =>
        without.filter((name) => name.startsWith(inside)).map((name) => name.slice(inside.length));
      const inGroup = below(`${key}.`);
      if (inGroup.length > 0 && isPlainObject(value)) return [key, leaveOut(value, inGroup)];
      const names = below(`${key}[].`);
      if (names.length === 0 || !Array.isArray(value)) return [key, value];
      const items: readonly unknown[] = value;
      return [key, items.map((item) => (isPlainObject(item) ? leaveOut(item, names) : item))];
    }),
  );
}

/** Parses the text of a JSON or YAML file. */
export async function parseConfig(
  text: string,
  file: string,
  env: Environment,
  secrets: KnownSecrets,
  { without = [], added = new Set() }: ReadOptions = {},
): Promise<RawConfig> {
  const parsed = file.endsWith('.json') ? parseJson(text, file) : await parseYamlFile(text, file);
  if (!isPlainObject(parsed)) {
    const said = Array.isArray(parsed) ? 'a list' : show(parsed);
    throw new RespoolError(
      'config.invalid',
      `cannot use ${file}: it holds ${said}, a configuration is an object of keys`,
    );
  }
  // For editors: where the JSON Schema of a configuration is.
  const { $schema: _, ...data } = parsed;
  const filled = new Set<string>();
  const lent = new Set<string>();
  const fill = createFill({ file, env, secrets, filled, lent, added });
  const value = fill(leaveOut(data, without), '', 0) as Record<string, unknown>;
  return { value, filled, lent, topics: topicsOf(data) };
}

/** Loaded for files that are YAML: its parser is larger than all the rest of this room. */
async function parseYamlFile(text: string, file: string): Promise<unknown> {
  const { parseYaml } = await import('./read-yaml.ts');
  return parseYaml(text, file);
}

/** The text of a file. */
export async function readText(file: string): Promise<string> {
  let bytes: Buffer;
  try {
    bytes = await readFile(file);
  } catch (error) {
    throw new RespoolError('config.invalid', `cannot read ${file}: ${textOf(error)}`);
  }
  if (bytes.byteLength > FILE_MAX_BYTES) {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${file}: it has ${bytes.byteLength} bytes, allowed are ${FILE_MAX_BYTES}`,
    );
  }
  return textOfFile(bytes, file).replace(/^\uFEFF/, '');
}

/** A text in UTF-8. Of other bytes each would become U+FFFD, also in a password. */
export function textOfFile(bytes: Buffer, file: string): string {
  if (isUtf8(bytes)) return bytes.toString('utf8');
  throw new RespoolError('config.invalid', `cannot use ${file}: it is not UTF-8; save it as UTF-8`);
}

async function runProgram(file: string): Promise<Readonly<Record<string, unknown>>> {
  let exported: Readonly<Record<string, unknown>>;
  try {
    exported = await importFile(pathToFileURL(file).href);
  } catch (error) {
    // A stack trace does not help with a typing error: the file name and the reason do.
    const { name, message, stack = '' } = asError(error);
    const [reason = ''] = message.split('\n');
    const [, line] = /^(\d+)/.exec(stack.split(`${path.basename(file)}:`)[1] ?? '') ?? [];
    const where = line === undefined ? '' : `line ${line}: `;
    throw new RespoolError('config.invalid', `cannot load ${file}: ${where}${name}: ${reason}`);
  }
  const { default: config } = exported;
  if (typeof config === 'object' && config !== null && !Array.isArray(config)) {
    return config as Record<string, unknown>;
  }
  const said = Array.isArray(config) ? 'a list' : config === undefined ? 'nothing' : kindOf(config);
  throw new RespoolError(
    'config.invalid',
    `cannot use ${file}: its default export is ${said}; write ` +
      '`export default defineConfig({ … })`',
  );
}

function kindOf(value: unknown): string {
  return value === null ? 'null' : `a ${typeof value}`;
}

interface FillContext {
  readonly file: string;
  readonly env: Environment;
  readonly secrets: KnownSecrets;
  readonly filled: Set<string>;
  readonly lent: Set<string>;
  readonly added: ReadonlySet<string>;
}

/** Replaces `${NAME}` in every text by the environment's; `$${` stays `${`. */
function createFill({ file, env, secrets, filled, lent, added }: FillContext) {
  const fillText = (text: string, key: string): string =>
    text.replaceAll(/\$(\$\{)|\$\{([^}]*)\}/g, (_, escaped?: string, name = '') => {
      if (escaped !== undefined) return escaped;
      const value = env[name as string];
      if (value === undefined) {
        throw new RespoolError(
          'config.invalid',
          `cannot fill in "${key}" of ${file}: the environment has no ${show(name)}; set it, or ` +
            'write $${ for a plain ${',
        );
      }
      if (isSecretVariable(name as string)) secrets.add(value);
      filled.add(key);
      if (text === `\${${name}}` && !added.has(name as string)) lent.add(key);
      return value;
    });
  const fill = (value: unknown, key: string, depth: number): unknown => {
    if (depth > DEPTH_MAX) {
      throw new RespoolError('config.invalid', `cannot use "${key}" of ${file}: it is too deep`);
    }
    if (typeof value === 'string') return fillText(value, key);
    if (Array.isArray(value)) {
      return value.map((item, at) => fill(item, `${key}[${at}]`, depth + 1));
    }
    if (!isPlainObject(value)) return value;
    const clean: Record<string, unknown> = {};
    for (const [name, item] of Object.entries(value)) {
      const inner = key === '' ? name : `${key}.${name}`;
      if (name === '__proto__') {
        throw new RespoolError('config.invalid', `there is no key "${inner}", in ${file}`);
      }
      clean[name] = fill(item, inner, depth + 1);
    }
    return clean;
  };
  return fill;
}

/** Parses a text; a key that stands twice in one object is refused, as in YAML. */
function parseJson(text: string, file: string): unknown {
  const refuse = (at: number, what: string): never => {
    const before = text.slice(0, at).split('\n');
    throw syntaxError(file, before.length, (before.at(-1)?.length ?? 0) + 1, what);
  };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // n.b. The engine's own text may quote what stands around the error, secrets included.
    const { endAt } = scanJson(text);
    return refuse(endAt, endAt >= text.length ? 'the file ends too early' : 'this is no JSON');
  }
  const { duplicateKeyAt } = scanJson(text);
  if (duplicateKeyAt === undefined) return value;
  return refuse(duplicateKeyAt, 'duplicate key: it stands above already; take one of them out');
}
