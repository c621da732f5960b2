/** faulty-connection — a connection that loses requests or answers, as crashes and cuts do. */

import { connect, type NatsConnection } from '@nats-io/transport-node';
import { atEnd } from './setup.ts';

/** What becomes of a request: it is sent, never leaves, or its answer never comes back. */
export type Fate = 'sent' | 'swallowed' | 'answer lost';

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
