/** doctor — which release of RabbitMQ has which quirk. */

import { expect, test } from 'vitest';
import { perDelay, type QueuePlan } from 'respool/rabbit';
import { plannedQueues } from '../../../src/rabbit/topology/model.ts';
import { versionFindings } from '../../../src/rabbit/admin/doctor.ts';
import { orderOf } from './setup.ts';

const quorum = perDelay().plan(orderOf('orders'));
const classic = perDelay().plan(orderOf('orders', { type: 'classic' }));

/** A plan whose queues have this delivery limit. */
function limited(limit: number | undefined): QueuePlan {
  const queues = quorum.topology.queues.map((spec) => ({
    ...spec,
    arguments: { ...spec.arguments, 'x-delivery-limit': limit },
  }));
  return { ...quorum, topology: { ...quorum.topology, queues } };
}

const found = (version: string | undefined, plan: QueuePlan): string[] =>
  versionFindings(version, plannedQueues([plan])).map(({ level, name }) => `${level} ${name}`);

test.each([
  ['3.9.4', quorum, ['ok broker.version', 'bad broker.too-old']],
  ['3.10.8', quorum, ['ok broker.version', 'warn broker.restart']],
  ['3.13.2', quorum, ['ok broker.version', 'warn broker.restart', 'bad broker.cycles']],
  ['3.13.3', quorum, ['ok broker.version', 'warn broker.restart']],
  [
    '4.0.5',
    quorum,
    [
      'ok broker.version',
      'warn broker.restart',
      'ok broker.delivery-limit',
      'ok broker.message-size',
    ],
  ],
  ['4.3.6', quorum, ['ok broker.version', 'ok broker.delivery-limit', 'ok broker.message-size']],
  [
    '4.3.6',
    limited(undefined),
    ['ok broker.version', 'warn broker.delivery-limit', 'ok broker.message-size'],
  ],
  ['3.12.1', limited(-1), ['ok broker.version', 'warn broker.restart', 'bad queue.delivery-limit']],
  ['3.10.8', classic, ['ok broker.version', 'warn classic.dead-lettering']],
  [
    '3.13.7',
    classic,
    ['ok broker.version', 'warn classic.dead-lettering', 'warn classic.confirms'],
  ],
  [undefined, quorum, ['warn broker.version']],
  ['nightly', quorum, ['warn broker.version']],
])('RabbitMQ %s', (version, plan, expected) => {
  expect(found(version, plan)).toEqual(expected);
});
