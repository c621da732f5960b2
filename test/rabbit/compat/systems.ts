/** Each other system with its stand-in, on names of one test. */

import { type Compat, goqueue, outbox, type QueuePlanRequest, spring } from 'respool/rabbit';
import { ladder } from 'respool';
import { orderOf } from '../topology/order.ts';
import type { Fake, FakeOptions } from './fakes/fake.ts';
import { fakeGoqueue } from './fakes/goqueue.ts';
import { fakeOutbox } from './fakes/outbox.ts';
import { fakeSpring } from './fakes/spring.ts';
import { freshPrefix, type System } from './messages.ts';

export const DELAYS_MS: readonly number[] = [50, 400, 80];
export const ATTEMPTS: number = DELAYS_MS.length + 1;
export const KEY = 'order.created';

/** A queue that both sides share. */
export interface SharedSetup {
  readonly fake: Fake;
  readonly compat: Compat;
  readonly order: QueuePlanRequest;
  readonly exchange: string;
  /** Queues and exchanges of theirs that our plan does not know. */
  readonly theirs: { readonly queues: readonly string[]; readonly exchanges: readonly string[] };
}

/** What a test calls things, so that no other test does. */
interface Names {
  readonly prefix: string;
  readonly exchange: string;
  readonly options: FakeOptions;
}

type Sides = Pick<SharedSetup, 'fake' | 'compat' | 'theirs'>;

const NONE = { queues: [], exchanges: [] };

const SIDES: Readonly<Record<System, (names: Names) => Sides>> = {
  goqueue: ({ options }) => ({ fake: fakeGoqueue(options), compat: goqueue(), theirs: NONE }),
  outbox: ({ options, exchange }) => ({
    fake: fakeOutbox(options),
    compat: outbox({ exchange }),
    theirs: NONE,
  }),
  spring: ({ prefix, options }) => {
    const names = {
      waitExchange: `${prefix}.wait`,
      returnExchange: `${prefix}.return`,
      waitQueuePrefix: `${prefix}.wait.`,
      deadLetterExchange: `${prefix}.dead`,
      deadQueue: `${prefix}.dead`,
    };
    return {
      fake: fakeSpring(options, names),
      compat: spring(names),
      theirs: { queues: [names.deadQueue], exchanges: [names.deadLetterExchange] },
    };
  },
};

export function sharedSetup(system: System): SharedSetup {
  const prefix = freshPrefix();
  const exchange = `${prefix}.shop`;
  const queue = `${prefix}.orders`;
  const options = { queue, exchange, key: KEY, delaysMs: DELAYS_MS };
  const bindings = [{ exchange, key: KEY }];
  const order = orderOf({ queue, policy: ladder(DELAYS_MS), bindings });
  return { ...SIDES[system]({ prefix, exchange, options }), order, exchange };
}
