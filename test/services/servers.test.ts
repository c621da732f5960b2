/** servers — every server starts on the first ask, answers, and can be treated badly. */
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import pg from 'pg';
import { expect, test } from 'vitest';
import { answersHttp, answersTcp } from '../../scripts/services/probes.ts';
import { privateServer, service, withService } from './index.ts';

withService('postgres', (url) => {
  test('PostgreSQL answers, flushes to the disk and allows 200 connections', async () => {
    expect(await ask(url(), 'SHOW fsync')).toBe('on');
    expect(await ask(url(), 'SHOW max_connections')).toBe('200');
  });

  test('a server is started once, however often it is asked for', async () => {
    expect(await Promise.all([service('postgres'), service('postgres')])).toEqual([url(), url()]);
  });
});

withService('nats', (url) => {
  test('NATS answers with JetStream', async () => {
    await using connection = await closing(await connect({ servers: url() }));
    const manager = await jetstreamManager(connection.value);
    expect((await manager.getAccountInfo()).streams).toBeTypeOf('number');
  });
});

withService('s3', (url) => {
  test('the S3 server answers, and refuses who has no key', async () => {
    const { origin } = new URL(url());
    expect(await answersHttp(`${origin}/some-bucket`, { codes: [403, 404] })).toBe(true);
  });
});

withService('pgbouncer', (url) => {
  test('pgbouncer shares connections between transactions', async () => {
    const clients = Array.from({ length: 40 }, () => new pg.Client({ connectionString: url() }));
    await Promise.all(clients.map((client) => client.connect()));
    const pids = new Set<unknown>();
    for (const client of clients) {
      pids.add((await client.query('SELECT pg_backend_pid() AS pid')).rows[0]?.pid);
    }
    await Promise.all(clients.map((client) => client.end()));
    // In session mode, each client would have one of its own.
    expect(pids.size).toBeLessThan(10);
  });
});

withService('rabbitmq', (url) => {
  test('RabbitMQ answers at both of its doors', async () => {
    const { port } = new URL(url());
    const hello = Uint8Array.of(0x41, 0x4d, 0x51, 0x50, 0, 0, 9, 1);
    expect(await answersTcp(Number(port), { send: hello, expect: /RabbitMQ/ })).toBe(true);
    const { origin, username, password } = new URL(await service('rabbitmq-management'));
    const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
    const overview = await fetch(`${origin}/api/overview`, { headers: { authorization } });
    expect(((await overview.json()) as { node: string }).node).toMatch(/^respool\d+@localhost$/);
  });
});

withService('nats', () => {
  test('another binary can be picked, and one that is not there is told', async () => {
    const env = { RESPOOL_TEST_NATS_BIN: '/nowhere/nats-server' };
    await using server = await privateServer('nats');
    expect(server.url).toMatch(/^nats:/);
    // Not installed: but packages and docker are not the answer to a wrong path.
    await expect(privateServer('nats', { env })).rejects.toThrow('/nowhere/nats-server');
  });

  test('the sync interval is set where the server knows of one, and told where not', async () => {
    const env = { RESPOOL_TEST_NATS_SYNC: 'always' };
    const started = await privateServer('nats', { env }).catch((error: unknown) => error);
    if (started instanceof Error) expect(started.message).toContain('sync_interval');
    else expect(started).toHaveProperty('url');
  });
});

withService('postgres', () => {
  test('a private server keeps its data and its port over a crash', async () => {
    await using server = await privateServer('postgres');
    await ask(server.url, 'CREATE TABLE kept AS SELECT 7 AS n');
    for (const how of [undefined, 'SIGKILL'] as const) {
      await server.kill(how);
      await expect(ask(server.url, 'SELECT 1')).rejects.toThrow();
      await server.restart();
      expect(await ask(server.url, 'SELECT n FROM kept')).toBe(7);
    }
  });

  test('a frozen server does not answer, and answers when it is thawed', async () => {
    await using server = await privateServer('postgres');
    const client = new pg.Client({ connectionString: server.url });
    await client.connect();
    await server.freeze();
    let hasAnswered = false;
    const answer = client.query('SELECT 1').then(() => {
      hasAnswered = true;
    });
    await expect(ask(server.url, 'SELECT 1', 500)).rejects.toThrow(/timeout/);
    expect(hasAnswered).toBe(false);
    await server.thaw();
    await answer;
    expect(hasAnswered).toBe(true);
    await client.end();
  });
});

async function ask(url: string, sql: string, timeoutMs = 120_000): Promise<unknown> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: timeoutMs });
  client.on('error', () => undefined);
  await client.connect();
  try {
    const { rows } = await client.query(sql);
    return Object.values(rows[0] ?? {})[0];
  } finally {
    await client.end();
  }
}

async function closing<Value extends { close(): Promise<unknown> }>(
  value: Value,
): Promise<AsyncDisposable & { readonly value: Value }> {
  return {
    value,
    async [Symbol.asyncDispose]() {
      await value.close();
    },
  };
}
