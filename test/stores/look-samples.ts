/** look-samples — backlogs and filters for tests that count what a look for work reads. */

import type { ClaimFilter, Entry, TopicRule } from 'respool';
import { sampleEntries } from 'respool/testkit';
import { DELIVERY, later } from './requests.ts';

const topics = (...rules: readonly TopicRule[]): readonly TopicRule[] => rules;
const take = (pattern: string): TopicRule => ({ pattern, take: true });
const leave = (pattern: string): TopicRule => ({ pattern, take: false });

const FIFTY = Array.from({ length: 50 }, (_, at) => `other-${at}.#`);

/** What the engine asks for while the backlog is of `big.*`, destination `down`. */
export const FILTERS: Readonly<Record<string, ClaimFilter>> = {
  'one route for everything': { ...DELIVERY, topics: topics(take('#')) },
  'two routes in one claim': { ...DELIVERY, topics: topics(take('big.#'), take('live')) },
  'a route with a concurrency of its own': {
    ...DELIVERY,
    topics: topics(leave('big.#'), take('live')),
  },
  'fifty routes, none of them for the backlog': {
    ...DELIVERY,
    topics: topics(...FIFTY.map(take), take('live')),
  },
  'a paused topic': { ...DELIVERY, topics: topics(leave('big.#'), take('#')) },
  'a destination that is full': { ...DELIVERY, exceptDestinations: ['down'] },
};

/** Those of them that leave the backlog out. */
export const LEAVING_OUT: readonly string[] = Object.keys(FILTERS).slice(2);

/** A backlog of ten topics, half of it incoming and half deferred. */
export function backlog(count: number, dueAt: number, isManyDestinations = false): Entry[] {
  return sampleEntries(count, 'big', (at) => ({
    topic: `big.${at % 10}`,
    destination: isManyDestinations ? `d${at}` : 'down',
    state: at % 2 === 0 ? 'incoming' : 'deferred',
    dueAt: dueAt + (at % 1_000),
  }));
}

export const NOT_DUE: number = later(1e9);
export const LONG_DUE: number = later(-10_000);
