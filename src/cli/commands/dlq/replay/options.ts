/** options — how a replay is to go, as the command line says it. */

import { checkTopic } from '../../../../core/limits.ts';
import type { ReplayOptions } from '../../../../operator/replays.ts';
import type { LetterQuery, LetterRoute } from '../../../../ports/dead-letters.ts';
import { checkName } from '../../../../rabbit/topology/names.ts';
import { CommandError } from '../../../exit-codes.ts';
import { type Options, usageOf } from '../../../options.ts';

const COUNT_MAX = 1_000_000_000;
const RATE_MAX = 1_000_000;

/** What a replay goes by where the command line says nothing. */
export interface ReplayDefaults {
  readonly replaysMax: number;
}

/** The options of a replay; `transform` as an absolute path. */
export function replayOptionsOf(
  options: Options,
  {
    query,
    kind,
    replaysMax,
    resolve,
  }: ReplayDefaults & {
    readonly query: LetterQuery;
    readonly kind: 'queue' | 'spool';
    /** Makes a path of a file absolute. */
    readonly resolve: (file: string) => string;
  },
): ReplayOptions {
  const to = options.filled('to');
  const transform = options.filled('transform');
  const given = {
    query: Object.keys(query).length === 0 ? undefined : query,
    to: to === undefined ? undefined : routeOf(to, kind),
    max: options.number('limit', { min: 1, max: COUNT_MAX }),
    canary: options.number('canary', { min: 0, max: COUNT_MAX }),
    canaryWait: options.span('canaryWait'),
    rate: options.number('rate', { min: 1, max: RATE_MAX }),
    window: options.number('window', { min: 1, max: 1_000 }),
    stopAbove: options.number('stopAbove', { min: 0, max: 100 }),
    replaysMax: options.number('replaysMax', { min: 1, max: 1_000 }) ?? replaysMax,
    unsure: options.text('unsure'),
    transform: transform === undefined ? undefined : resolve(transform),
  };
  const said = Object.entries(given).filter(([, value]) => value !== undefined);
  return Object.fromEntries(said);
}

/** `orders`, `shop:order.new`, `:a:queue` for a queue with a colon in its name; or a topic. */
function routeOf(text: string, kind: 'queue' | 'spool'): LetterRoute {
  if (kind === 'spool') {
    const topic = usageOf(() => checkTopic(text, '--to'), ['message.invalid']);
    return { kind: 'topic', topic };
  }
  const at = text.indexOf(':');
  const [exchange, key] = at === -1 ? ['', text] : [text.slice(0, at), text.slice(at + 1)];
  if (exchange === '') usageOf(() => checkName('--to', key));
  if (Buffer.byteLength(exchange) > 255 || Buffer.byteLength(key) > 255) {
    throw new CommandError(
      'usage.invalid',
      'cannot use this as --to: an exchange and a key have at most 255 bytes each',
    );
  }
  return { kind: 'queue', exchange, key };
}
