/**
 * settings — the settings of `respool dlq sweep`, from new names and old ones, in one form.
 *
 *   flag > file > environment > default, for each setting by itself
 *
 * The old defaults hold only where an old name is used at all; otherwise queues and target have to
 * be named.
 */

import { SWEEP_RANGES } from '../../../../rabbit/queues/sweep.ts';
import path from 'node:path';
import type { Broker } from '../../../../config/load/brokers.ts';
import type { LoadedConfig } from '../../../../config/load/load-config.ts';
import { DAY_MS, durationMs, HOUR_MS, SECOND_MS } from '../../../../core/duration.ts';
import { checkGlobTarget, compileGlob, type Glob } from '../../../../core/glob.ts';
import { CommandError } from '../../../exit-codes.ts';
import { usageOf, LIMIT_RANGE } from '../../../options.ts';
import { createConfigReader } from '../../../session.ts';
import { createOut, type Out } from '../../../ui/output.ts';
import type { CommandContext, Globals } from '../../../spec.ts';
import { chooseBroker, pick } from './broker.ts';
import { type Listen, listenOf } from './listen.ts';
import {
  DEATHS,
  LEVEL,
  type OldSettings,
  oldSettings,
  type LegacyValue,
  OLD_SECTIONS,
  type OldFile,
} from './legacy-options.ts';
import { stat } from 'node:fs/promises';
import { didYouMean } from '../../../../config/load/config-errors.ts';
import { isProgram, readText } from '../../../../config/load/read-file.ts';
import { parseYaml } from '../../../../config/load/read-yaml.ts';
import { isRespoolError, RespoolError, show } from '../../../../core/errors.ts';
import { isPlainObject } from '../../../../core/limits.ts';

/** The settings of a sweep. */
export interface SweepCommandSettings {
  /** Whether an old name was used. */
  readonly isOld: boolean;
  readonly broker: Broker;
  /** The configuration, with this broker in it. */
  readonly loaded: LoadedConfig;
  readonly patterns: readonly string[];
  readonly target: string;
  /** Deaths that a message may have; it is moved when it has more. */
  readonly max: number;
  /** Maximum number of messages moved in one run. */
  readonly limit: number | undefined;
  /** Queues at once. */
  readonly parallel: number | undefined;
  /** Messages in hand at once, of each queue. */
  readonly window: number | undefined;
  readonly createsTarget: boolean;
  readonly reasons: readonly string[];
  readonly queues: readonly string[];
  readonly isTrusted: boolean;
  readonly isDryRun: boolean;
  readonly everyMs: number | undefined;
  readonly listen: Listen | undefined;
  readonly dedupe: { readonly file: string; readonly maxAgeMs: number } | undefined;
}

/** The settings, and the context in which they hold. */
export interface SettingsReader {
  readonly settings: SweepCommandSettings;
  /** As the command's; its output is JSON where the old name says so, its URL is a service. */
  readonly context: CommandContext;
}

const OLD_QUEUE = 'my_dlq';
const OLD_TARGET = 'permanent_failure_queue';
const OLD_DEDUP_FILE = '.rmq_processed_ids';
/** Both also in docs/how-to/switch-from-rmq-retry-checker.md. */
const OLD_DEDUP_HOURS = 168;
const MAX_DEFAULT = 3;
const EVERY = { minMs: SECOND_MS, maxMs: 30 * DAY_MS };

/** Reads everything, and refuses what does not fit together. Nothing is connected. */
export async function readSettings(commandContext: CommandContext): Promise<SettingsReader> {
  const { options, globals, io } = commandContext;
  const out = outOf(commandContext);
  const warn = (text: string): void => out.warn(text);
  const file = await readOldFile(globals.config, { cwd: io.cwd, warn });
  const context = contextOf({ ...commandContext, out }, file !== undefined);
  // n.b. First: it adds what a file `.env` says to the environment.
  const found = await context.config();
  const old = oldSettings(options, file, io.env);
  const isOld = file !== undefined || Object.keys(old).length > 0;
  const chosen = chooseBroker({
    old,
    hasOldDefaults: isOld,
    url: brokerUrlOf(commandContext),
    managementUrl: options.filled('managementUrl'),
    loaded: found,
    hasOldFile: file !== undefined,
  });
  if (chosen === undefined) throw usage('name the broker: --url amqp://host, or "rabbit.url"');
  warnOfUnsafe(old, warn);
  const { patterns, target } = queuesOf(commandContext, old, isOld);
  const every = options.span('every');
  const listen = options.filled('listen');
  if (listen !== undefined && every === undefined) {
    throw usage('--listen needs a sweep that keeps running: add --every, such as --every 5m');
  }
  const settings: SweepCommandSettings = {
    isOld,
    ...chosen,
    patterns,
    target,
    max: maxOf(commandContext, old),
    limit: options.number('limit', LIMIT_RANGE),
    parallel: options.number('parallel', SWEEP_RANGES.parallel),
    window: options.number('window', SWEEP_RANGES.window),
    createsTarget: !options.flag('requireTarget'),
    reasons: options.texts('countReasons'),
    queues: options.texts('countQueues').map((one) => globOf(one).pattern),
    isTrusted: options.flag('trustLimit'),
    isDryRun: options.flag('dryRun'),
    everyMs: every === undefined ? undefined : usageOf(() => durationMs(every, '--every', EVERY)),
    listen: listen === undefined ? undefined : listenOf(listen),
    dedupe: dedupeOf(old, io.cwd),
  };
  return { settings, context };
}

/** The old format decides as `--json` does; one of them is enough. */
function outOf({ options, out, io }: CommandContext): Out {
  const format = options.text('outputFormat');
  if (format === 'text' && out.json) {
    throw usage('--json and --output-format text say different things: give one of them');
  }
  if (format !== 'json' || out.json) return out;
  const { quiet, verbose, color } = out;
  return createOut(io, { json: true, quiet, verbose, color });
}

/** A file of the old shape is no configuration of ours, and a broker no service. */
function contextOf(context: CommandContext, hasOldFile: boolean): CommandContext {
  const { config, url, ...rest } = context.globals;
  const globals: Globals = {
    ...rest,
    ...(hasOldFile || config === undefined ? {} : { config }),
    ...(url === undefined || isBroker(url) ? {} : { url }),
  };
  const { io, out } = context;
  return { ...context, globals, config: createConfigReader({ globals, io, out }) };
}

function isBroker(url: string): boolean {
  return /^amqps?:/i.test(url);
}

function brokerUrlOf({ globals: { url }, options }: CommandContext): string | undefined {
  const named = options.filled('broker');
  if (url === undefined || !isBroker(url)) return named;
  if (named !== undefined && named !== url) {
    throw usage('--url and --broker name two brokers: give one of them');
  }
  return url;
}

function warnOfUnsafe({ password, sslVerify }: OldSettings, warn: (text: string) => void): void {
  if (password?.level === LEVEL.flag) {
    warn(
      'a password on the command line can be read by every user of this machine: put it into ' +
        'RMQ_PASSWORD, or into a file',
    );
  }
  if (sslVerify?.value === false) {
    warn(`${sslVerify.name}: certificates are not verified, so any server can pose as the broker`);
  }
}

function queuesOf(
  { options }: CommandContext,
  { dlq, targetQueue }: OldSettings,
  isOld: boolean,
): Pick<SweepCommandSettings, 'patterns' | 'target'> {
  const given = options.texts('queue');
  const queues = pick('queue', [
    ...(given.length === 0 ? [] : [{ value: given, level: LEVEL.flag, name: '--queue' }]),
    ...(dlq === undefined ? [] : [{ ...dlq, value: [dlq.value] }]),
  ]);
  const named = options.filled('target');
  const target = pick('target', [
    ...(named === undefined ? [] : [{ value: named, level: LEVEL.flag, name: '--target' }]),
    ...(targetQueue === undefined ? [] : [targetQueue]),
  ]);
  const patterns = queues?.value ?? (isOld ? [OLD_QUEUE] : []);
  const where = target?.value ?? (isOld ? OLD_TARGET : undefined);
  if (patterns.length === 0) throw usage("name the queues to sweep: --queue 'dlq.*'");
  if (where === undefined) {
    throw usage("name the queue for what died too often: --target 'dead.*', or one fixed name");
  }
  for (const pattern of patterns) {
    const problem = checkGlobTarget(where, globOf(pattern));
    if (problem !== undefined) throw usage(problem);
  }
  return { patterns, target: where };
}

function globOf(pattern: string): Glob {
  return usageOf(() => compileGlob(pattern));
}

function maxOf({ options }: CommandContext, { maxRetries }: OldSettings): number {
  const given = options.number('max', DEATHS);
  const candidates: LegacyValue<number>[] = [
    ...(given === undefined ? [] : [{ value: given, level: LEVEL.flag, name: '--max' }]),
    ...(maxRetries === undefined ? [] : [maxRetries]),
  ];
  return pick('max', candidates)?.value ?? MAX_DEFAULT;
}

/** The old tool dropped this in a later version; so it is used only on request. */
function dedupeOf(
  { dedupFile, dedupMaxAgeHours }: OldSettings,
  cwd: string,
): SweepCommandSettings['dedupe'] {
  if (dedupFile === undefined && dedupMaxAgeHours === undefined) return undefined;
  const hours = dedupMaxAgeHours?.value ?? OLD_DEDUP_HOURS;
  const file = path.resolve(cwd, dedupFile?.value ?? OLD_DEDUP_FILE);
  return { file, maxAgeMs: hours * HOUR_MS };
}

function usage(text: string): CommandError {
  return new CommandError('usage.invalid', text);
}

// Whether the file of `--config` is one of `rmq_retry_checker`: YAML with a section `rabbitmq` or
// `queues`, which our own configuration does not have.

/** The file as the old tool reads it; undefined if it is not a file of that tool. */
async function readOldFile(
  named: string | undefined,
  { cwd, warn }: { readonly cwd: string; readonly warn: (text: string) => void },
): Promise<OldFile | undefined> {
  if (named === undefined || isProgram(named)) return undefined;
  const file = path.resolve(cwd, named);
  const found = await stat(file).catch(() => undefined);
  // What is not there, or a folder, is for our own way of finding a configuration.
  if (found?.isFile() !== true) return undefined;
  const data = await parsed(file);
  if (
    !isPlainObject(data) ||
    !Object.keys(OLD_SECTIONS).some((name) => Object.hasOwn(data, name))
  ) {
    return undefined;
  }
  const strange = Object.keys(data).filter((name) => !Object.hasOwn(OLD_SECTIONS, name));
  if (strange.length > 0) {
    warn(`${named} has the sections rabbitmq and queues; not read is ${strange.join(', ')}`);
  }
  const sections = Object.entries(OLD_SECTIONS).map(([name, keys]) => [
    name,
    sectionOf(data[name], { name, keys, file: named }),
  ]);
  return { file: named, sections: Object.fromEntries(sections) as OldFile['sections'] };
}

/** n.b. JSON is YAML, too; what is neither is refused by our own reader, in its words. */
async function parsed(file: string): Promise<unknown> {
  const text = await readText(file);
  try {
    return parseYaml(text, file);
  } catch (error) {
    if (isRespoolError(error) && /^\s*(?:rabbitmq|queues)\s*:/m.test(text)) throw error;
    return undefined;
  }
}

function sectionOf(
  value: unknown,
  { name, keys, file }: { readonly name: string; readonly keys: readonly string[]; file: string },
): Readonly<Record<string, unknown>> {
  if (value === undefined || value === null) return {};
  if (!isPlainObject(value)) {
    const text = `cannot use ${show(value)} as "${name}" in ${file}: allowed is an object of keys`;
    throw new RespoolError('config.invalid', text);
  }
  const strange = Object.keys(value).find((key) => !keys.includes(key));
  if (strange === undefined) return value;
  throw new RespoolError(
    'config.invalid',
    `there is no key "${name}.${strange}", in ${file}: known are ${keys.join(', ')}` +
      didYouMean(strange, keys),
  );
}
