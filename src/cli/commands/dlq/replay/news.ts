/** news — what rules tell of their rounds, in a line. */

import type { RuleNews } from '../../../../dead-letters/rules/types.ts';
import { numberText, safe } from '../../../../observe/logs/safe-text--safe.ts';
import type { ServeLog } from '../../serve/serve-log.ts';
import { relative } from '../../../ui/times.ts';

/** A line for each round that came to something. */
export function teller(log: ServeLog): (news: RuleNews) => void {
  return (news) => {
    const isBad = news.result === 'stopped' || news.result === 'failed';
    const isQuiet = news.result === 'quiet';
    log.say(isBad ? 'warn' : isQuiet ? 'debug' : 'info', `rule ${newsText(news)}`, news);
  };
}

/** One round in a few words. */
export function newsText({ rule, result, because, sent, replays, at, nextAt }: RuleNews): string {
  const parts = [`${safe(rule)}: ${result}`];
  if (replays.length > 0) parts.push(`sent ${numberText(sent)} by ${replays.join(', ')}`);
  if (because !== undefined) parts.push(safe(because));
  parts.push(`next ${relative(nextAt, at)}`);
  return parts.join(', ');
}
