/** Each other system with its stand-in, on names of one test. */

import { ladder } from '../../../src/core/policy.ts';
import type { Compat } from '../../../src/rabbit/compat/compat.ts';
import { goqueue } from '../../../src/rabbit/compat/goqueue.ts';
import { outbox } from '../../../src/rabbit/compat/outbox.ts';
import { spring } from '../../../src/rabbit/compat/spring.ts';
import type { QueueOrder } from '../../../src/rabbit/topology/model.ts';
import type { Fake } from './fakes/fake.ts';
import { fakeGoqueue } from './fakes/goqueue.ts';
import { fakeOutbox } from './fakes/outbox.ts';
import { fakeSpring } from './fakes/spring.ts';
import { freshPrefix, type System } from './messages.ts';

export const DELAYS_MS: readonly number[] = [50, 120, 80];
export const ATTEMPTS: number = DELAYS_MS.length + 1;
export const KEY = 'order.created';

/** A queue that both sides share. */
export interface SharedSetup {
  readonly fake: Fake;
  readonly compat: Compat;
  readonly order: QueueOrder;
  readonly exchange: string;
  /** Queues and exchanges of theirs that our plan does not know. */
  readonly theirs: { readonly queues: readonly string[]; readonly exchanges: readonly string[] };
}

export function sharedSetup(system: System): SharedSetup {
  const prefix = freshPrefix();
  const exchange = `${prefix}.shop`;
  const queue = `${prefix}.orders`;
  const options = { queue, exchange, key: KEY, delaysMs: DELAYS_MS };
  const order: QueueOrder = {
    queue,
    type: 'quorum',
    policy: ladder(DELAYS_MS),
    extraWaitsMs: [],
    bindings: [{ exchange, key: KEY }],
    durable: true,
    exclusive: false,
    autoDelete: false,
    queueArguments: {},
  };
  const none = { queues: [], exchanges: [] };
  switch (system) {
    case 'goqueue':
      return { fake: fakeGoqueue(options), compat: goqueue(), order, exchange, theirs: none };
    case 'outbox':
      return {
        fake: fakeOutbox(options),
        compat: outbox({ exchange }),
        order,
        exchange,
        theirs: none,
      };
    case 'spring': {
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
        order,
        exchange,
        theirs: { queues: [names.deadQueue], exchanges: [names.deadLetterExchange] },
      };
    }
  }
}
