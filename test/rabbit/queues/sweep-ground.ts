/** sweep-ground — dead queues with messages that died so and so often, and a sweep over them. */

import { onTestFinished } from 'vitest';
import {
  type Management,
  type Properties,
  type QueueSweep,
  type SweepOptions,
  sweepQueue,
  type SweepQueueOptions,
  sweepQueues,
  type SweepTotal,
} from 'respool/rabbit';
import { service } from '../../services/index.ts';
import { ownName } from '../ground.ts';
import { openManagement } from '../admin/management/setup.ts';
import { lift } from './foreign.ts';
import { DeadQueues, type Kind } from './queues.ts';

export interface Ground {
  readonly queues: DeadQueues;
  readonly management: Management;
  /** A dead queue and its target, removed with the test. */
  readonly pair: (kind?: Kind) => Promise<{ queue: string; target: string }>;
  readonly sweep: (
    options: Partial<SweepQueueOptions> & { queue: string; target: string },
  ) => Promise<QueueSweep>;
  readonly sweepAll: (
    options: Partial<SweepOptions> & { patterns: string[]; target: string },
  ) => Promise<SweepTotal>;
}

export async function openGround(): Promise<Ground> {
  const url = await service('rabbitmq');
  const queues = await DeadQueues.open();
  const management = await openManagement();
  onTestFinished(() => management.close());
  return {
    queues,
    management,
    pair: async (kind = 'own') => {
      const queue = await queues.declare(kind, {}, ownName('dlq'));
      const target = `${queue}.dead`;
      queues.removeLater(target);
      if (kind === 'foreign') await lift(queue, management);
      return { queue, target };
    },
    sweep: (options) => sweepQueue({ url, management, ...options }),
    sweepAll: (options) => sweepQueues({ url, management, ...options }),
  };
}

/** The headers of a message that was rejected so often. */
export function died(count: number, queue = 'work'): Properties {
  const death = {
    count: { '!': 'long', value: count },
    reason: 'rejected',
    queue,
    time: { '!': 'timestamp', value: 1_700_000_000 },
    exchange: 'orders',
    'routing-keys': ['order.new'],
  };
  const first = { 'x-first-death-queue': queue, 'x-first-death-reason': 'rejected' };
  return { headers: { 'x-death': [death], ...first } };
}

/** Every second died too often. */
export function halfDead(index: number): Properties {
  return died(index % 2 === 0 ? 4 : 3);
}
