/** relay-options — what a relay takes, checked, with its defaults. */

import {
  DURATION_MAX_MS,
  type Duration,
  durationMs,
  HOUR_MS,
  SECOND_MS,
} from '../core/duration.ts';
import { RespoolError, show } from '../core/errors.ts';
import { checkNames, checkNumber, checkTopicPattern } from '../core/limits.ts';
import type { SpoolOptions } from '../spool/options.ts';
import type { RelayStoreOptions } from './parts.ts';
import type { CleanUp, RelayOptions } from './types.ts';

/** The options, checked. */
export interface RelaySettings {
  readonly batch: number;
  readonly concurrency: number;
  /** Messages of each pattern that are claimed for a probe; one of all of them is sent. */
  readonly probers: number;
  readonly topics: readonly string[];
  readonly expiresMs: number | undefined;
  readonly pauseMs: number;
  readonly pauseMaxMs: number;
  readonly kept: NonNullable<NonNullable<SpoolOptions['retention']>['delivered']>;
  readonly store: RelayStoreOptions;
}

const NAMES = [
  'to',
  'batch',
  'concurrency',
  'cleanUp',
  'topics',
  'expires',
  'lease',
  'poll',
  'pauseAfter',
  'middleware',
];

const MANY = { min: 1, max: 10_000 };
const TOPICS_MAX = 100;
/** Messages that are claimed for a probe, over all patterns. */
const PROBERS_MAX = 8;
const PAUSE_MAX_MS: number = 30 * SECOND_MS;

/** Checks what was given, but for what the spool of the relay checks itself. */
export function relaySettings(options: RelayOptions): RelaySettings {
  checkNames('relay', options, NAMES);
  const { expires, pauseAfter = SECOND_MS, cleanUp = 'at once' } = options;
  const pauseMs = durationMs(pauseAfter, 'pauseAfter', { minMs: 1, maxMs: HOUR_MS });
  const concurrency = checkNumber('concurrency', options.concurrency ?? 500, MANY);
  const topics = topicsOf(options.topics);
  const share = Math.max(1, Math.floor(PROBERS_MAX / topics.length));
  return {
    batch: checkNumber('batch', options.batch ?? 100, MANY),
    concurrency,
    probers: Math.min(share, concurrency),
    topics,
    expiresMs: expires === undefined ? undefined : durationMs(expires, 'expires', { minMs: 1 }),
    pauseMs,
    pauseMaxMs: Math.max(pauseMs, PAUSE_MAX_MS),
    ...keepingOf(cleanUp),
  };
}

function topicsOf(given: RelayOptions['topics'] = '#'): readonly string[] {
  const topics: readonly unknown[] = Array.isArray(given) ? given : [given];
  if (topics.length >= 1 && topics.length <= TOPICS_MAX) return topics.map(checkTopicPattern);
  throw invalid('topics', given, `a pattern, or a list of 1 to ${TOPICS_MAX}`);
}

function keepingOf(cleanUp: CleanUp): Pick<RelaySettings, 'kept' | 'store'> {
  if (cleanUp === 'at once') return { kept: 'remove', store: {} };
  if (cleanUp === 'never') return { kept: { archive: DURATION_MAX_MS }, store: {} };
  if (typeof cleanUp !== 'object') return { kept: { archive: ageOf(cleanUp) }, store: {} };
  if (cleanUp === null) throw invalid('cleanUp', cleanUp, CLEAN_UPS);
  checkNames('cleanUp', cleanUp, ['partition', 'keep']);
  const { partition, keep } = cleanUp;
  const keepMs = durationMs(keep, 'cleanUp.keep');
  return { kept: { archive: keepMs }, store: { partition: { partition, keep } } };
}

const CLEAN_UPS = "'at once', 'never', an age such as '7d', or { partition: '1d', keep: '30d' }";

function ageOf(cleanUp: Duration): Duration {
  try {
    durationMs(cleanUp, 'cleanUp');
    return cleanUp;
  } catch (error) {
    throw invalid('cleanUp', cleanUp, CLEAN_UPS, error);
  }
}

function invalid(what: string, value: unknown, allowed: string, cause?: unknown): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}" of a relay: allowed is ${allowed}`,
    { cause },
  );
}
