/** order — what a flow and its consumer processes agree on. */
import { fixed } from 'respool';
import { type ConsumerOptions, type QueueType, shared } from 'respool/rabbit';

/** What a consumer process is told when it starts. */
export interface ConsumerOrder {
  readonly url: string;
  /** Of the ledger, on loopback. */
  readonly port: number;
  readonly queue: string;
  readonly type: QueueType;
  readonly seed: number;
  readonly maxLost: number;
  readonly prefetch: number;
}

const CONCURRENCY = 8;
export const PREFETCH = 20;
/** High: what is lost with its consumers again and again is no poison here. */
export const MAX_LOST = 1_000_000;
const ATTEMPTS_MAX = 400;

/** How every consumer of a flow is made. */
export function optionsOf(order: Omit<ConsumerOrder, 'port' | 'seed'>): ConsumerOptions {
  const { url, queue, type, maxLost, prefetch } = order;
  return {
    url,
    queue,
    type,
    maxLost,
    prefetch,
    concurrency: CONCURRENCY,
    topology: shared({ prefix: queue }),
    policy: fixed('100ms', { attempts: ATTEMPTS_MAX }),
    // Where suspects wait for their turn.
    waits: ['1s'],
  };
}
