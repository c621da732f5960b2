/** vhost — a virtual host of its own for programs whose queues have names that others use, too. */
import { randomUUID } from 'node:crypto';
import { service } from '../services/index.ts';

/** Where it is, and the way to remove it with everything in it. */
export interface Vhost {
  readonly url: string;
  readonly remove: () => Promise<void>;
}

/** Makes one at the broker that the tests share. */
export async function makeVhost(): Promise<Vhost> {
  const url = new URL(await service('rabbitmq'));
  const { origin, username, password } = new URL(await service('rabbitmq-management'));
  const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
  const name = `docs-${randomUUID()}`;
  const ask = async (method: string, path: string, body?: object): Promise<void> => {
    const answer = await fetch(`${origin}/api${path}`, {
      method,
      headers: { authorization, 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(`cannot ${method} ${path}: the broker says ${answer.status}`);
  };
  await ask('PUT', `/vhosts/${name}`);
  const all = { configure: '.*', write: '.*', read: '.*' };
  await ask('PUT', `/permissions/${name}/${url.username}`, all);
  url.pathname = `/${name}`;
  return { url: url.href, remove: () => ask('DELETE', `/vhosts/${name}`) };
}
