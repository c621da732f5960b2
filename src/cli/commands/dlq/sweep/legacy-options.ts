/**
 * legacy-options — the settings of `rmq_retry_checker` under the names its users know: flags, a
 * YAML file with the sections `rabbitmq` and `queues`, and variables of the environment.
 *
 *   flag > file > environment; defaults are added where the settings are put together
 */

import { PORT_MAX } from '../../../../core/limits.ts';
import { RespoolError, show } from '../../../../core/errors.ts';
import { flagOf, type Options } from '../../../options.ts';
import type { OptionSpec } from '../../../spec.ts';

/** What a setting says, and who said it. */
export interface LegacyValue<T> {
  readonly value: T;
  /** Who overrides whom: the highest wins. */
  readonly level: number;
  /** The flag, the key or the variable. */
  readonly name: string;
}

/** How much each source counts. */
export const LEVEL = { flag: 3, file: 2, environment: 1 } as const;

/** A file of the old shape. */
export interface OldFile {
  readonly file: string;
  readonly sections: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

/** What was said under old names. */
export interface OldSettings {
  readonly host?: LegacyValue<string>;
  readonly port?: LegacyValue<number>;
  readonly mgmtPort?: LegacyValue<number>;
  readonly username?: LegacyValue<string>;
  readonly password?: LegacyValue<string>;
  readonly vhost?: LegacyValue<string>;
  readonly ssl?: LegacyValue<boolean>;
  readonly sslVerify?: LegacyValue<boolean>;
  readonly dlq?: LegacyValue<string>;
  readonly targetQueue?: LegacyValue<string>;
  readonly maxRetries?: LegacyValue<number>;
  readonly dedupFile?: LegacyValue<string>;
  readonly dedupMaxAgeHours?: LegacyValue<number>;
}

interface Range {
  readonly min: number;
  readonly max: number;
}

interface OldName {
  readonly key: keyof OldSettings;
  /** As in help. */
  readonly flags: string;
  readonly description: string;
  /** The section of the file and the key in it. */
  readonly yaml: readonly [section: string, key: string];
  readonly env: string;
  /** A range for numbers, `switch` for yes and no. */
  readonly kind: 'text' | 'switch' | Range;
}

const PORT: Range = { min: 1, max: PORT_MAX };
/** What `--max` and its old name may say: the number of deaths that a message may have. */
export const DEATHS: Range = { min: 0, max: 1_000_000 };
const HOURS: Range = { min: 1, max: 87_600 };

const NAMES: readonly OldName[] = [
  {
    key: 'host',
    flags: '--host <name>',
    description: 'old name: the host of the broker',
    yaml: ['rabbitmq', 'host'],
    env: 'RMQ_HOST',
    kind: 'text',
  },
  {
    key: 'port',
    flags: '--port <n>',
    description: 'old name: its port',
    yaml: ['rabbitmq', 'port'],
    env: 'RMQ_PORT',
    kind: PORT,
  },
  {
    key: 'mgmtPort',
    flags: '--mgmt-port <n>',
    description: 'old name: the port of its management API',
    yaml: ['rabbitmq', 'mgmt_port'],
    env: 'RMQ_MGMT_PORT',
    kind: PORT,
  },
  {
    key: 'username',
    flags: '--username <name>',
    description: 'old name: the user',
    yaml: ['rabbitmq', 'username'],
    env: 'RMQ_USERNAME',
    kind: 'text',
  },
  {
    key: 'password',
    flags: '--password <text>',
    description: 'old name: the password; others can read it here, RMQ_PASSWORD is better',
    yaml: ['rabbitmq', 'password'],
    env: 'RMQ_PASSWORD',
    kind: 'text',
  },
  {
    key: 'vhost',
    flags: '--vhost <name>',
    description: 'old name: the virtual host',
    yaml: ['rabbitmq', 'vhost'],
    env: 'RMQ_VHOST',
    kind: 'text',
  },
  {
    key: 'ssl',
    flags: '--ssl',
    description: 'old name: over TLS',
    yaml: ['rabbitmq', 'use_ssl'],
    env: 'RMQ_USE_SSL',
    kind: 'switch',
  },
  {
    key: 'sslVerify',
    flags: '--no-ssl-verify',
    description: 'old name: trust any certificate',
    yaml: ['rabbitmq', 'ssl_verify'],
    env: 'RMQ_SSL_VERIFY',
    kind: 'switch',
  },
  {
    key: 'dlq',
    flags: '--dlq <pattern>',
    description: 'old name of --queue',
    yaml: ['queues', 'dlq_name'],
    env: 'DLQ_NAME',
    kind: 'text',
  },
  {
    key: 'targetQueue',
    flags: '--target-queue <name>',
    description: 'old name of --target',
    yaml: ['queues', 'target_queue'],
    env: 'TARGET_QUEUE',
    kind: 'text',
  },
  {
    key: 'maxRetries',
    flags: '--max-retries <n>',
    description: 'old name of --max',
    yaml: ['queues', 'max_retry_count'],
    env: 'MAX_RETRY_COUNT',
    kind: DEATHS,
  },
  {
    key: 'dedupFile',
    flags: '--dedup-file <file>',
    description:
      'old name: the file that remembers what was moved, so that a crash makes fewer copies',
    yaml: ['queues', 'dedup_file'],
    env: 'DEDUP_FILE',
    kind: 'text',
  },
  {
    key: 'dedupMaxAgeHours',
    flags: '--dedup-max-age-hours <n>',
    description: 'old name: for how many hours it remembers; default 168',
    yaml: ['queues', 'dedup_max_age_hours'],
    env: 'DEDUP_MAX_AGE_HOURS',
    kind: HOURS,
  },
];

/** The old flags. */
export const OLD_OPTIONS: readonly OptionSpec[] = [
  ...NAMES.map(({ flags, description }) => ({ flags, description })),
  {
    flags: '--output-format <format>',
    description: 'old name: json is --json',
    choices: ['text', 'json'],
  },
];

/** The sections of an old file, and the keys of each. */
export const OLD_SECTIONS: Readonly<Record<string, readonly string[]>> = {
  rabbitmq: keysOf('rabbitmq'),
  queues: keysOf('queues'),
};

function keysOf(section: string): readonly string[] {
  return NAMES.filter(({ yaml }) => yaml[0] === section).map(({ yaml }) => yaml[1]);
}

/** Everything that was said under an old name; the highest source of each. */
export function oldSettings(
  options: Options,
  file: OldFile | undefined,
  env: Readonly<Record<string, string | undefined>>,
): OldSettings {
  const said = NAMES.map((name) => [
    name.key,
    flagSays(name, options) ?? fileSays(name, file) ?? environmentSays(name, env),
  ]);
  return Object.fromEntries(said.filter(([, one]) => one !== undefined)) as OldSettings;
}

function flagSays({ key, kind }: OldName, options: Options): LegacyValue<unknown> | undefined {
  const name = key === 'sslVerify' ? '--no-ssl-verify' : flagOf(key);
  const by = { level: LEVEL.flag, name };
  if (kind === 'switch') {
    if (options.isOff(key)) return { value: false, ...by };
    return options.flag(key) ? { value: true, ...by } : undefined;
  }
  const value = kind === 'text' ? options.filled(key) : options.number(key, kind);
  return value === undefined ? undefined : { value, ...by };
}

function fileSays(
  { yaml: [section, key], kind }: OldName,
  old: OldFile | undefined,
): LegacyValue<unknown> | undefined {
  const given = old?.sections[section]?.[key];
  if (old === undefined || given === undefined || given === null) return undefined;
  const name = `${section}.${key} in ${old.file}`;
  return { value: checked(given, kind, name), level: LEVEL.file, name };
}

function environmentSays(
  { env: name, kind }: OldName,
  env: Readonly<Record<string, string | undefined>>,
): LegacyValue<unknown> | undefined {
  const given = env[name] ?? '';
  // A variable that is set to nothing is not set, as everywhere in the configuration.
  if (given === '') return undefined;
  return { value: checked(given, kind, name), level: LEVEL.environment, name };
}

const SWITCHES: Readonly<Record<string, boolean>> = {
  true: true,
  yes: true,
  on: true,
  '1': true,
  false: false,
  no: false,
  off: false,
  '0': false,
};

/** The value of a file or a variable; a number and a switch may be written as text there. */
function checked(input: unknown, kind: OldName['kind'], name: string): unknown {
  const isTold = typeof input === 'boolean' || typeof input === 'number';
  const text = isTold || typeof input === 'string' ? String(input).trim() : '';
  if (kind === 'text') {
    // n.b. YAML reads a password or a queue of digits as a number.
    if (typeof input === 'string' && input !== '') return input;
    if (typeof input === 'number') return text;
    throw refused(name, input, 'a text that is not empty');
  }
  if (kind === 'switch') {
    const value = SWITCHES[text.toLowerCase()];
    if (value !== undefined) return value;
    throw refused(name, input, 'true or false');
  }
  const { min, max } = kind;
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw refused(name, input, `a whole number ${min} to ${max}`);
}

function refused(name: string, value: unknown, allowed: string): RespoolError {
  const shown = /password/i.test(name) ? 'what was given' : show(value);
  return new RespoolError(
    'config.invalid',
    `cannot use ${shown} as ${name}: allowed is ${allowed}`,
  );
}
