/** Stores on servers by address and by data: options, refusals, what is shown (R202, R219). */

import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { inspect } from 'node:util';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { describe, expect, test } from 'vitest';
import type { Config } from 'respool';
import { describeConfig } from '../../src/config/describe.ts';
import { storesOf } from '../../src/config/open/stores.ts';
import { redactUrls } from '../../src/core/redact.ts';
import { withService } from '../services/index.ts';
import { load, refusal } from './setup.ts';

const CANARY = 'c4nary-Zm9vYmFyYmF6cXV4';

async function placesOf(config: Config): Promise<unknown[]> {
  const { entries, bodies, place, bodiesPlace } = await storesOf(config, '/nowhere');
  return [entries.name, place.address, bodies.name, bodiesPlace.address];
}

describe('an address of a server makes its stores, and is shown without its user', () => {
  const cases: [string, Config, unknown[]][] = [
    [
      'postgres: for both',
      { store: 'postgres://me:secret@db.example:5433/app?schema=mail&sslmode=disable' },
      ['postgres', 'postgres://db.example:5433/app', 'postgres', 'postgres://db.example:5433/app'],
    ],
    [
      'postgresql: is the same',
      { store: 'postgresql://db.example/app' },
      ['postgres', 'postgres://db.example/app', 'postgres', 'postgres://db.example/app'],
    ],
    [
      'nats: for both, several servers',
      { store: 'nats://me:secret@a:4222,nats://me:secret@b:4222?bucket=mail&entriesMax=1000' },
      ['nats', 'nats://a:4222,nats://b:4222', 'nats', 'nats://a:4222,nats://b:4222'],
    ],
    [
      'nats: for both, with what is for one of them alone',
      { store: 'nats://a?maxChunkSize=65536&maxValueSize=9000&cacheBytes=5&description=mail' },
      ['nats', 'nats://a', 'nats', 'nats://a'],
    ],
    [
      's3: for bodies',
      { entries: 'memory:', bodies: 's3://spool/app?region=eu-central-1&partBytes=5242880' },
      ['memory', undefined, 's3', 's3://spool/app'],
    ],
    [
      'with an @ in a password',
      { entries: 'postgres://me:se@cret@h/app', bodies: 'nats://me:se@cret@a,nats://me:se@cret@b' },
      ['postgres', 'postgres://h/app', 'nats', 'nats://a,nats://b'],
    ],
    [
      'data of PostgreSQL',
      { store: { postgres: { url: 'postgres://me:secret@h/app', schema: 'mail' } } },
      ['postgres', 'postgres://h/app', 'postgres', 'postgres://h/app'],
    ],
    [
      'data of NATS and S3, apart',
      {
        entries: { nats: { url: 'nats://secret@h', bucket: 'mail' } },
        bodies: { s3: { bucket: 'spool', region: 'eu-central-1' } },
      },
      ['nats', 'nats://h', 's3', 's3://spool'],
    ],
  ];
  test.each(cases)('%s', async (_, config, expected) => {
    expect(await placesOf(config)).toEqual(expected);
  });
});

describe('options of an address are checked by their whole name', () => {
  const cases: [object, string[]][] = [
    [{ store: 'postgres://h/db?shema=x' }, ['"store?shema"', '"schema"']],
    [{ store: 'postgres://h/db?schema=A-b' }, ['"A-b"', '"store?schema"']],
    [{ store: 'postgres://h/db?connections=0' }, ['"store?connections"', '1 to 100']],
    [{ store: 'postgres://h/db?migrate=maybe' }, ['"store?migrate"', 'true or false']],
    [{ entries: 'nats://h?bucket=a.b' }, ['"a.b"', '"entries?bucket"']],
    [{ entries: 'nats://h?replicas=9' }, ['"entries?replicas"', '1 to 5']],
    [{ bodies: 'nats://h?entriesMax=5' }, ['"bodies?entriesMax"']],
    [{ bodies: { nats: { url: 'nats://h', cacheBytes: 5 } } }, ['"cacheBytes"']],
    [{ bodies: 'nats://h?maxChunkSize=5' }, ['"bodies?maxChunkSize"', '1024 to']],
    [{ entries: 'nats://h?maxChunkSize=5000' }, ['"entries?maxChunkSize"']],
    [{ bodies: 'nats://h?maxValueSize=5000' }, ['"bodies?maxValueSize"']],
    [{ store: 'nats://h?ttl=60' }, ['"60" as "store?ttl"', 'remove messages that wait']],
    [{ entries: { nats: { url: 'nats://h', history: 5 } } }, ['5 as "entries.nats.history"']],
    [{ bodies: 's3://spool?partBytes=1' }, ['"bodies?partBytes"']],
    [{ bodies: 's3://spool?storageclass=X' }, ['"bodies?storageclass"', '"storageClass"']],
    [{ store: 's3://spool/app' }, ['S3 as "store"', 'bodies only', 'sqlite:./respool']],
    [{ entries: 's3://spool/app' }, ['S3 as "entries"', 'bodies only']],
    [{ store: 'postgres:db' }, ['address of postgres as "store"', 'postgres://host/database']],
    [{ store: 'nats://' }, ['address of nats', 'nats://host:4222']],
    [{ bodies: 's3:bucket' }, ['address of s3 as "bodies"', 's3://bucket/prefix']],
    [{ store: { postgres: { url: 'postgres://h/db', shema: 'x' } } }, ['"shema"']],
    [{ store: { postgres: { url: 'postgres://h', schema: 'A' } } }, ['"store.postgres.schema"']],
    [{ store: { postgre: { url: 'x' } } }, ['"store.postgre"', '"postgres"']],
    [{ store: { s3: { bucket: 'spool' } } }, ['S3 as "store"']],
    [{ store: { postgres: {}, nats: {} } }, ['one of { postgres }']],
    [{ store: { postgres: { schema: 'mail' } } }, ['"store.postgres"', '"url"']],
  ];
  test.each(cases)('%j', async (config, parts) => {
    const text = await refusal({ config });
    for (const part of parts) expect(text).toContain(part);
    expect(text).toContain('respool.config.json');
  });
});

describe('no password of an address is shown', () => {
  const password = encodeURIComponent(`${CANARY}/@`);
  const listen = encodeURIComponent(`postgres://me:${CANARY}@h/db`);
  const endpoint = `https://key:${CANARY}@s3.example`;
  const configs: Record<string, object> = {
    postgres: { store: `postgres://me:${password}@h/db?listenUrl=${listen}` },
    'nats with a password': { store: `nats://me:${CANARY}@h:4222` },
    'nats with a token': { store: `nats://${CANARY}@h:4222` },
    's3, as it is': { bodies: `s3://spool/app?endpoint=${endpoint}` },
    's3, encoded': { bodies: `s3://spool/app?endpoint=${encodeURIComponent(endpoint)}` },
    data: {
      entries: {
        postgres: {
          url: `postgres://me:${CANARY}@h/db`,
          listenUrl: `postgres://me:${CANARY}@h/db`,
        },
      },
      bodies: {
        s3: { bucket: 'spool', credentials: { accessKeyId: CANARY, secretAccessKey: CANARY } },
      },
    },
    'data of NATS': { store: { nats: { url: 'nats://h', connect: { user: 'me', pass: CANARY } } } },
  };

  test.each(Object.entries(configs))('by config, of %s', async (_, config) => {
    const loaded = await load({ config });
    const text = JSON.stringify(describeConfig(loaded)) + inspect(describeConfig(loaded));
    expect(text).not.toContain(CANARY);
    expect(text).toContain('(secret)');
  });

  test.each(Object.entries(configs))('by a text that repeats it, of %s', async (_, config) => {
    const { hide } = await load({ config });
    expect(hide(`the server said: ${CANARY}`)).not.toContain(CANARY);
    expect(hide(JSON.stringify(config))).not.toContain(CANARY);
  });

  test.each([
    ['a flag', { flags: { store: `postgres://me:${CANARY}@h/db` } }],
    ['the environment', { env: { RESPOOL_STORE: `postgres://me:${CANARY}@h/db` } }],
    ['.env', { dotEnv: `RESPOOL_ENTRIES=nats://me:${CANARY}@h` }],
  ])('by a text that repeats it, from %s', async (_, given) => {
    const loaded = await load({ config: {}, ...given });
    expect(loaded.hide(`the server said: ${CANARY}`)).not.toContain(CANARY);
    expect(JSON.stringify(describeConfig(loaded))).not.toContain(CANARY);
  });

  test('by the place that commands and logs name', async () => {
    for (const config of Object.values(configs)) {
      const { place, bodiesPlace } = await storesOf(config, '/nowhere');
      expect(JSON.stringify([place, bodiesPlace])).not.toContain(CANARY);
    }
  });

  test.each([
    ['a slash in it', { store: `postgres://me:${CANARY}/x@h/db` }],
    ['a hash in it', { store: `postgres://me:${CANARY}#@h/db` }],
    ['no slashes', { store: `postgres:me:${CANARY}@h/db` }],
    ['an option too many', { store: `postgres://me:${CANARY}@h/db?x=1` }],
    ['an option twice', { store: `postgres://h/db?listenUrl=${listen}&listenUrl=${listen}` }],
    ['a place that has none', { store: `s3://spool?endpoint=${endpoint}` }],
    ['data that is wrong', { store: { postgres: { url: CANARY, password: CANARY } } }],
  ])('by the refusal of one with %s', async (_, config) => {
    expect(await refusal({ config })).not.toContain(CANARY);
  });

  test('where a parameter is an address with a user, however it is written', () => {
    expect(redactUrls(`s3://b?endpoint=${encodeURIComponent(endpoint)}&region=x`)).toBe(
      's3://b?endpoint=(secret)&region=x',
    );
    expect(redactUrls('https://h/?back=https%3A%2F%2Fh%2Fa')).toBe(
      'https://h/?back=https%3A%2F%2Fh%2Fa',
    );
  });
});

withService('nats', (url) => {
  test('the journal of a NATS bucket is beside the configuration, as all paths in it', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'respool-config-'));
    const bucket = path.basename(folder);
    try {
      const store = `${url()}?bucket=${bucket}&journal=notes/orders`;
      const { entries } = await storesOf({ store }, folder);
      await entries.open();
      await entries.close();
      expect(await readdir(path.join(folder, 'notes'))).toEqual(['orders']);
    } finally {
      await rm(folder, { recursive: true });
      const connection = await connect({ servers: url() });
      await (await jetstreamManager(connection)).streams.delete(`KV_${bucket}`);
      await connection.close();
    }
  });
});
