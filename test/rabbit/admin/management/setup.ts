/** setup — a client of the broker's management API, names of one's own, and plain HTTP for users. */

import { randomUUID } from 'node:crypto';
import { createManagement, type Management } from 'respool/rabbit';
import { service } from '../../../services/index.ts';

/** A name that no other test has. */
export function freshName(what: string): string {
  return `t-${what}-${randomUUID().slice(0, 8)}`;
}

export async function openManagement(): Promise<Management> {
  return createManagement({ url: await service('rabbitmq-management') });
}

/** One request in the administrator's name. */
export async function administer(method: string, path: string, json?: unknown): Promise<void> {
  const url = new URL(await service('rabbitmq-management'));
  const user = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  const answer = await fetch(`${url.origin}/api${path}`, {
    method,
    headers: {
      authorization: `Basic ${Buffer.from(user).toString('base64')}`,
      'content-type': 'application/json',
    },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
  });
  await answer.arrayBuffer();
  if (!answer.ok && answer.status !== 404) throw new Error(`${method} ${path}: ${answer.status}`);
}

interface UserRights {
  readonly tags?: string;
  readonly password?: string;
  readonly configure?: string;
  readonly write?: string;
  readonly read?: string;
}

/** A user of one test, removed when the test is over. */
export async function freshUser({
  tags = '',
  password = 'plain-pass-word',
  configure = '',
  write = '',
  read = '',
}: UserRights): Promise<{ name: string; password: string } & AsyncDisposable> {
  const name = freshName('user');
  await administer('PUT', `/users/${name}`, { password, tags });
  await administer('PUT', `/permissions/%2F/${name}`, { configure, write, read });
  return {
    name,
    password,
    [Symbol.asyncDispose]: () => administer('DELETE', `/users/${name}`),
  };
}
