/** faulty-connection — a connection that loses requests or answers, as crashes and cuts do. */

import { connect, type NatsConnection } from '@nats-io/transport-node';
import type { Clock } from 'respool';
import { systemClock } from '../../time.ts';
import { atEnd } from './setup.ts';

/** What becomes of a request: it is sent, never leaves, or its answer never comes back. */
export type Fate = 'sent' | 'swallowed' | 'answer lost';

/** Longer than a busy machine needs for a request that is not lost. */
const TIMEOUT_MS = 60_000;

/** Options of a store whose requests meet a fate. */
export interface FaultyOptions {
  readonly connection: NatsConnection;
  readonly timeoutMs: number;
  /** A lost request takes a quarter of the limit: the time of one of the asks of a call. */
  readonly clock: Clock;
}

/** A real connection whose requests meet the fate the judge names, and a clock that knows of it. */
export async function faultyOptions(
  url: string,
  judge: (subject: string) => Fate,
): Promise<FaultyOptions> {
  let aheadMs = 0;
  const connection = await faultyConnection(url, (subject) => {
    const fate = judge(subject);
    if (fate !== 'sent') aheadMs += TIMEOUT_MS / 4;
    return fate;
  });
  const monotonic = (): number => systemClock.monotonic() + aheadMs;
  return { connection, timeoutMs: TIMEOUT_MS, clock: { ...systemClock, monotonic } };
}

/** A real connection whose requests meet the fate the judge names. */
export async function faultyConnection(
  url: string,
  judge: (subject: string) => Fate,
): Promise<NatsConnection> {
  const connection = await connect({ servers: url });
  atEnd(() => connection.close());
  return new Proxy(connection, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (name !== 'publish') return typeof value === 'function' ? value.bind(target) : value;
      return (...[subject, payload, options]: Parameters<NatsConnection['publish']>) => {
        const fate = judge(subject);
        if (fate === 'swallowed') return;
        const reply = fate === 'answer lost' ? { reply: '_INBOX.nobody' } : {};
        target.publish(subject, payload, { ...options, ...reply });
      };
    },
  });
}
