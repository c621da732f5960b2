/** options — how a replay is to go: checked when it is planned, with the defaults filled in. */

import { durationMs, SECOND_MS } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkNames, checkNumber, checkOneOf } from '../../core/limits.ts';
import type { LetterRoute } from '../../ports/dead-letters.ts';
import type { ReplayOptions, ReplaySource } from '../../spool/operator/replays.ts';

/** The options of a replay, complete. */
export interface ReplaySettings {
  readonly to: LetterRoute | undefined;
  readonly max: number;
  readonly canary: number;
  readonly canaryWaitMs: number;
  /** Letters per second; undefined: as fast as it goes. */
  readonly rate: number | undefined;
  readonly window: number;
  readonly stopAbove: number;
  readonly replaysMax: number;
  readonly unsure: 'leave' | 'send';
}

/** What holds where nothing is said. */
export const REPLAY_DEFAULTS = {
  canary: 10,
  canaryWait: '10s',
  window: 100,
  stopAbove: 20,
  replaysMax: 3,
  unsure: 'leave',
} as const;

const COUNT_MAX = 1_000_000_000;
const RATE_MAX = 1_000_000;
const NAMES: readonly (keyof ReplayOptions)[] = [
  'query',
  'to',
  'max',
  'canary',
  'canaryWait',
  'rate',
  'window',
  'stopAbove',
  'replaysMax',
  'unsure',
  'transform',
];

/** Refuses what cannot be meant; `config.invalid` names the option. */
export function checkReplayOptions(options: ReplayOptions, source: ReplaySource): void {
  checkNames('a replay', options, NAMES);
  const { canary } = replaySettings(options);
  const { to } = options;
  const kind = source.kind === 'queue' ? 'queue' : 'topic';
  if (to?.kind === 'queue' && to.exchange !== '' && canary > 0) {
    throw new RespoolError(
      'config.invalid',
      `cannot determine whether canaries are delivered through exchange ${show(to.exchange)}: ` +
        'give a queue, or "canary" 0 to send all without canaries',
    );
  }
  if (to === undefined || to.kind === kind) return;
  throw new RespoolError(
    'config.invalid',
    `cannot send letters of a ${source.kind} to a ${to.kind}: give a ${kind}`,
  );
}

/** The options with their defaults. */
export function replaySettings(options: ReplayOptions): ReplaySettings {
  const {
    max = COUNT_MAX,
    canary = REPLAY_DEFAULTS.canary,
    canaryWait = REPLAY_DEFAULTS.canaryWait,
    window = REPLAY_DEFAULTS.window,
    stopAbove = REPLAY_DEFAULTS.stopAbove,
    replaysMax = REPLAY_DEFAULTS.replaysMax,
    unsure = REPLAY_DEFAULTS.unsure,
  } = options;
  return {
    to: options.to,
    max: checkNumber('max', max, { min: 1, max: COUNT_MAX }),
    canary: checkNumber('canary', canary, { min: 0, max: COUNT_MAX }),
    canaryWaitMs: durationMs(canaryWait, 'canaryWait', { maxMs: 24 * 3_600 * SECOND_MS }),
    rate: checkRate(options.rate),
    window: checkNumber('window', window, { min: 1, max: 1_000 }),
    stopAbove: checkNumber('stopAbove', stopAbove, { min: 0, max: 100 }),
    replaysMax: checkNumber('replaysMax', replaysMax, { min: 1, max: 1_000 }),
    unsure: checkOneOf('unsure', unsure, ['leave', 'send']),
  };
}

function checkRate(rate: unknown): number | undefined {
  if (rate === undefined) return undefined;
  if (typeof rate === 'number' && rate > 0 && rate <= RATE_MAX) return rate;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(rate)} as "rate": allowed are letters per second above 0, up to ${RATE_MAX}`,
  );
}
