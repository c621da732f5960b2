/** diagnose — every line of the doctor about NATS, seen to change with server and stream. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { jetstreamManager } from '@nats-io/jetstream';
import { describe, expect, onTestFinished, test } from 'vitest';
import { readSync } from '../../../src/stores/nats/schema.ts';
import { connectTo, type NatsConnection } from '../../../src/stores/nats/connection.ts';
import { diagnoseNats, examineStream } from '../../../src/stores/nats/diagnose.ts';
import { readEntryOptions } from '../../../src/stores/nats/options.ts';
import type { StoreFinding } from '../../../src/stores/shared/finding.ts';
import { withService } from '../../services/index.ts';
import { atEnd, bucketName, openStore, plainConnection, removeBucket } from './setup.ts';

const byId = (found: readonly StoreFinding[]): Readonly<Record<string, StoreFinding>> =>
  Object.fromEntries(found.map((finding) => [finding.id, finding]));

withService('nats', (url) => {
  test('a bucket that is not there is not made by a look', async () => {
    const bucket = bucketName();
    const diagnosis = await diagnoseNats({ url: url(), bucket }, 'entries');
    expect(diagnosis.isThere).toBe(false);
    expect(byId(diagnosis.findings)['stream']?.text).toContain(`no stream "KV_${bucket}"`);
    const manager = await jetstreamManager(await plainConnection(url()));
    await expect(manager.streams.info(`KV_${bucket}`)).rejects.toThrow();
  });

  test('a bucket of ours has nothing unsafe', async () => {
    const bucket = bucketName();
    await openStore({ url: url(), bucket });
    const diagnosis = await diagnoseNats({ url: url(), bucket }, 'entries');
    expect(diagnosis.isThere).toBe(true);
    expect(['server', 'process']).toContain(diagnosis.durability);
    expect(diagnosis.findings.filter(({ level }) => level === 'unsafe')).toEqual([]);
    expect(byId(diagnosis.findings)['sync']?.level).toBe('note');
  });

  test('a stream that forgets is unsafe: memory, max_age, discard old', async () => {
    const bucket = bucketName();
    const manager = await jetstreamManager(await plainConnection(url()));
    await manager.streams.add({
      name: `OBJ_${bucket}`,
      subjects: [`$O.${bucket}.>`],
      storage: 'memory',
      max_age: 3_600_000_000_000,
      max_bytes: 2 ** 20,
      discard: 'old',
    });
    atEnd(() => removeBucket(url(), bucket));
    const diagnosis = await diagnoseNats({ url: url(), bucket }, 'bodies');
    const dangers = diagnosis.findings.filter(({ level }) => level === 'unsafe');
    expect(dangers.map(({ id }) => id)).toEqual(['storage', 'max-age', 'discard']);
    expect(diagnosis.durability).toBe('process');
  });

  /** The server as it would be with another version or limit. */
  async function serverWith(info: Partial<NonNullable<NatsConnection['info']>>) {
    const connection = await plainConnection(url());
    const changed = new Proxy<NatsConnection>(connection, {
      get: (target, name) => {
        if (name === 'info') return { ...target.info, ...info };
        const value: unknown = Reflect.get(target, name);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
    const options = { connection: changed, bucket: bucketName() };
    return {
      plain: byId((await diagnoseNats(options, 'entries')).findings),
      tripled: byId((await diagnoseNats({ ...options, replicas: 3 }, 'entries')).findings),
    };
  }

  test('an old server is told, in a cluster as a danger, and with replicas as unsafe', async () => {
    const alone = await serverWith({ version: '2.9.10', cluster: '' });
    expect(alone.plain['version']?.level).toBe('note');
    expect(alone.plain['sync']?.text).toContain('cannot be configured to do it at once');
    expect(alone.tripled['replicas']).toMatchObject({ level: 'unsafe' });
    const clustered = await serverWith({ version: '2.10.20', cluster: 'c' });
    expect(clustered.plain['version']).toMatchObject({ level: 'unsafe' });
    expect(clustered.tripled['replicas']).toMatchObject({ level: 'ok' });
    const good = await serverWith({ version: '2.12.1', cluster: '' });
    expect(good.plain['version']?.level).toBe('ok');
    expect(good.plain['sync']?.todo).toContain('monitoringUrl');
  });

  test('a small payload is unsafe', async () => {
    const small = await serverWith({ max_payload: 8_192 });
    expect(small.plain['payload']).toMatchObject({ level: 'unsafe' });
    expect(small.plain['payload']?.todo).toContain('max_payload');
  });
});

describe('what a stream says of itself', () => {
  const state = { last_seq: 0, bytes: 900, messages: 3 };
  const levels = (config: Readonly<Record<string, unknown>>, name = 'KV_x'): string[] =>
    examineStream(name, { created: '', config: { storage: 'file', ...config }, state }).map(
      ({ id, level }) => `${id}: ${level}`,
    );

  test.each([
    [{}, ['stream: ok']],
    [{ persist_mode: 'async' }, ['persist-mode: unsafe', 'stream: ok']],
    [{ max_bytes: 1_000, discard: 'new' }, ['stream: note']],
    [{ max_bytes: 10_000, discard: 'new' }, ['stream: ok']],
    [{ max_msgs: 10, discard: 'old' }, ['discard: unsafe', 'stream: ok']],
    [{ retention: 'limits', max_msgs_per_subject: 1 }, ['stream: ok']],
    [{ retention: 'workqueue' }, ['retention: unsafe', 'stream: ok']],
  ])('%j', (config, expected) => {
    expect(levels(config)).toEqual(expected);
  });

  test('bodies are cut where it keeps so many messages per subject', () => {
    expect(levels({ max_msgs_per_subject: -1 }, 'OBJ_x')).toEqual(['stream: ok']);
    const expected = ['per-subject: unsafe', 'stream: ok'];
    expect(levels({ max_msgs_per_subject: 1 }, 'OBJ_x')).toEqual(expected);
  });
});

describe('monitoring addresses', () => {
  const [always, seldom, broken] = ['{"jetstream":{"config":{"sync_always":true}}}', '{}', '?'];

  test.each([
    [[always], true],
    [[always, always], true],
    [[always, seldom], false],
    [[broken, always], false],
  ])('of servers that say %j', async (answers, isAlways) => {
    const urls = await Promise.all(answers.map(monitor));
    const settings = readEntryOptions({ url: 'nats://127.0.0.1', monitoringUrl: urls.join() });
    expect(await readSync(settings)).toBe(isAlways);
  });

  test.each(['http://h:1,http://', 'http://h:x', 'http://h:1,'])(
    '%j is refused',
    (monitoringUrl) => {
      const options = { url: 'nats://127.0.0.1', monitoringUrl };
      expect(() => readEntryOptions(options)).toThrow(/"monitoringUrl"/);
    },
  );
});

/** A monitoring door that says what it is told to. */
async function monitor(answer: string): Promise<string> {
  const server = createServer((_, response) => response.end(answer));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe('an address', () => {
  const asked = async (url: string): Promise<object> => {
    let seen: object = {};
    const connect = async (options: object): Promise<NatsConnection> => {
      seen = options;
      return {} as NatsConnection;
    };
    await connectTo({ connect, headers: () => ({}) as never }, url, {});
    return seen;
  };

  test.each([
    ['nats://h:4222', { servers: ['nats://h:4222'] }],
    ['nats://me:p%40ss@h:4222', { user: 'me', pass: 'p@ss', servers: ['nats://h:4222'] }],
    ['nats://token@h', { token: 'token', servers: ['nats://h'] }],
    [
      'nats://me:pass@a,nats://me:pass@b',
      { user: 'me', pass: 'pass', servers: ['nats://a', 'nats://b'] },
    ],
  ])('%s gives its user to the package', async (url, expected) => {
    expect(await asked(url)).toMatchObject(expected);
  });

  test('that cannot be reached is told without its user', async () => {
    const url = 'nats://me:c4nary-password@127.0.0.1:1';
    const error = await diagnoseNats({ url }, 'entries').catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'store.unavailable' });
    expect(String(error)).not.toContain('c4nary');
  });
});
