/** What a configuration says of an outbox has its effect: on the relay, on its messages. */
import path from 'node:path';
import Sqlite from 'better-sqlite3';
import pg from 'pg';
import { failure, type OutgoingMessage, type Sink } from 'respool';
import { createOutbox, type EmitMessage } from 'respool/outbox';
import { expect, onTestFinished, test } from 'vitest';
import type { LoadedConfig } from '../../src/config/load/load-config.ts';
import { createConfiguredRelay } from '../../src/config/open/open-outbox.ts';
import { service, withService } from '../services/index.ts';
import { load } from './setup.ts';
import { systemClock } from '../time.ts';

/** A sink that keeps what it was sent; `answer` decides, at first it confirms. */
class Tray implements Sink {
  readonly name = 'tray';
  readonly sends: (readonly OutgoingMessage[])[] = [];
  answer: Sink['send'] = (parcels) => Promise.resolve(parcels.map(() => 'confirmed'));

  send(parcels: readonly OutgoingMessage[]): ReturnType<Sink['send']> {
    this.sends.push(parcels);
    return this.answer(parcels);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  get topics(): string[] {
    return this.sends.flat().map(({ topic }) => topic);
  }
}

/** An outbox in a file, and the relay of a configuration over it, which sends into a tray. */
async function setup(outbox: object, relay: object = {}, more: object = {}) {
  const said = { store: 'sqlite:./app.db', ...outbox, relay: { to: { spool: true }, ...relay } };
  const loaded = await load({ config: { ...more, outbox: said } });
  const database = new Sqlite(path.join(loaded.folder, 'app.db'));
  const own = createOutbox({ database, policies: loaded.config.outbox?.policies ?? {} });
  own.migrate();
  const tray = new Tray();
  const emit = (messages: readonly EmitMessage[]) =>
    own.transaction((tx) => own.emitMany(tx, messages)).map(({ id }) => id);
  const start = async (changed: LoadedConfig = sendingTo(loaded, tray)) => {
    const noSpool = (): never => {
      throw new Error('nobody asks for the spool');
    };
    const configured = await createConfiguredRelay(changed, { spool: noSpool });
    onTestFinished(async () => {
      await configured.relay.stop({ within: 0 });
      await configured.close();
    });
    await configured.relay.start();
    return configured;
  };
  onTestFinished(async () => {
    await own.close();
    database.close();
  });
  const states = async (): Promise<Record<string, string>> => {
    const found: Record<string, string> = {};
    for await (const { envelope, status } of own.spool.list()) {
      found[envelope.topic] = status.state;
    }
    return found;
  };
  return { loaded, own, tray, emit, start, states };
}

function sendingTo(loaded: LoadedConfig, sink: Sink): LoadedConfig {
  const { outbox } = loaded.config;
  if (outbox?.relay === undefined) throw new Error('there is no relay');
  const relay = { ...outbox.relay, target: { kind: 'sink' as const, sink } };
  return { ...loaded, config: { ...loaded.config, outbox: { ...outbox, relay } } };
}

const many = (count: number): EmitMessage[] =>
  Array.from({ length: count }, (_, at) => ({ routingKey: `a.${at}` }));

test('batch is the most that is sent at once', async () => {
  const { emit, tray, start } = await setup({}, { batch: 3 });
  emit(many(10));
  await start();
  await expect.poll(() => tray.topics.length).toBe(10);
  expect(Math.max(...tray.sends.map(({ length }) => length))).toBe(3);
});

test('concurrency is how many are on their way at once', async () => {
  const { emit, tray, start, states } = await setup({}, { concurrency: 4 });
  // A relay begins with a single message.
  emit([{ routingKey: 'first' }]);
  const { relay } = await start();
  await expect.poll(states).toEqual({});
  const { promise, resolve } = Promise.withResolvers<void>();
  tray.answer = async (parcels) => {
    await promise;
    return parcels.map(() => 'confirmed');
  };
  emit(many(20));
  await expect.poll(() => relay.load.running).toBe(4);
  resolve();
  await expect.poll(states).toEqual({});
});

test('topics leave other routing keys alone', async () => {
  const { emit, tray, start, states } = await setup({}, { topics: ['order.*', 'user.#'] });
  emit(['order.a', 'mail.b', 'user.c.d'].map((routingKey) => ({ routingKey })));
  await start();
  await expect.poll(() => tray.topics.toSorted()).toEqual(['order.a', 'user.c.d']);
  await expect.poll(states).toEqual({ 'mail.b': 'incoming' });
});

test.each([
  ['at once', {}],
  ['never', { a: 'archived' }],
  ['1h', { a: 'archived' }],
])('cleanUp %j decides what stays of what was sent', async (cleanUp, left) => {
  const { emit, tray, start, states } = await setup({}, { cleanUp });
  emit([{ routingKey: 'a' }]);
  await start();
  await expect.poll(() => tray.topics).toEqual(['a']);
  await expect.poll(states).toEqual(left);
});

test('expires of the outbox gives up what was not sent in time', async () => {
  const { emit, tray, start, states } = await setup({ expires: '1ms' });
  emit([{ routingKey: 'a' }]);
  const before = systemClock.now();
  await expect.poll(() => systemClock.now()).toBeGreaterThan(before + 1);
  await start();
  await expect.poll(states).toEqual({ a: 'bounce' });
  expect(tray.topics).toEqual([]);
});

test('policies, its own and those of the configuration, decide when it is tried again', async () => {
  const policies = { slow: { fixed: '3h' } };
  const outbox = { policies: { default: { fixed: '1h' }, urgent: { fixed: '2h' } } };
  const { emit, tray, start, own } = await setup(outbox, {}, { policies });
  tray.answer = (parcels) =>
    Promise.resolve(parcels.map(() => failure('transient', 'full', 'no room')));
  const ids = emit([
    { routingKey: 'a' },
    { routingKey: 'b', policy: 'urgent' },
    { routingKey: 'c', policy: 'slow' },
  ]);
  await start();
  const waits = async () => {
    const entries = await Promise.all(ids.map((id) => own.spool.get(id)));
    return entries.map((entry) => {
      const { state, dueAt, updatedAt } = entry?.status ?? {};
      return state === 'deferred' ? Number(dueAt) - Number(updatedAt) : state;
    });
  };
  const hourMs = 3_600_000;
  await expect.poll(waits).toEqual([hourMs, 2 * hourMs, 3 * hourMs]);
});

test('lease is how long a claim lasts', async () => {
  const { emit, tray, start, own } = await setup({}, { lease: '1h' });
  tray.answer = () => new Promise(() => undefined);
  const [id = ''] = emit([{ routingKey: 'a' }]);
  await start();
  const leaseMs = async () => {
    const { state, dueAt, updatedAt } = (await own.spool.get(id))?.status ?? {};
    return state === 'active' ? Number(dueAt) - Number(updatedAt) : undefined;
  };
  await expect.poll(leaseMs).toBe(3_600_000);
});

test('pauseAfter is how long a dead target is left alone at first', async () => {
  const { emit, tray, start } = await setup({}, { pauseAfter: '10ms' });
  tray.answer = (parcels) =>
    Promise.resolve(parcels.map(() => failure('transient', 'broker.unavailable', 'gone')));
  emit([{ routingKey: 'a' }]);
  await start();
  // Each pause is twice the last. From the default of 1 s on, ten sends would take 511 s.
  await expect.poll(() => tray.sends.length, { interval: 5 }).toBeGreaterThan(9);
});

test('middleware of the configuration is around every send', async () => {
  const { emit, tray, start, loaded } = await setup({});
  const seen: string[] = [];
  const changed = sendingTo(loaded, tray);
  const config: LoadedConfig['config'] = {
    ...changed.config,
    middleware: [
      async (delivery, next) => {
        seen.push(delivery.topic);
        return next();
      },
    ],
  };
  emit([{ routingKey: 'a' }]);
  await start({ ...changed, config });
  await expect.poll(() => tray.topics).toEqual(['a']);
  expect(seen).toEqual(['a']);
});

test('tables are the names in the file', async () => {
  const { loaded, tray, start } = await setup({ tables: 'mail_' });
  const database = new Sqlite(path.join(loaded.folder, 'app.db'));
  onTestFinished(() => void database.close());
  const other = createOutbox({ database, tables: 'mail_' });
  other.migrate();
  other.transaction((tx) => other.emit(tx, 'mail.sent'));
  await start();
  await expect.poll(() => tray.topics).toEqual(['mail.sent']);
});

withService('postgres', () => {
  test('listenUrl has a connection that listens, and poll keeps the rest quiet', async () => {
    const url = await service('postgres');
    const schema = `listen_${systemClock.now()}`;
    const pool = new pg.Pool({ connectionString: url, max: 2 });
    const own = createOutbox({ pool, schema });
    await own.migrate();
    onTestFinished(async () => {
      await pool.query(`DROP SCHEMA ${schema} CASCADE`);
      await pool.end();
    });
    const tray = new Tray();
    const at = new URL(url);
    at.searchParams.set('application_name', schema);
    const relay = { to: { spool: true }, poll: '1h' };
    const outbox = { store: url, schema, listenUrl: at.href, relay };
    const loaded = sendingTo(await load({ config: { outbox } }), tray);
    const spool = (): never => {
      throw new Error('nobody asks for the spool');
    };
    const configured = await createConfiguredRelay(loaded, { spool });
    onTestFinished(async () => {
      await configured.relay.stop({ within: 0 });
      await configured.close();
    });
    await configured.relay.start();
    const listening = async () => {
      const { rows } = await pool.query<{ query: string }>(
        'SELECT query FROM pg_stat_activity WHERE application_name = $1',
        [schema],
      );
      return rows.map(({ query }) => query.slice(0, 6));
    };
    await expect.poll(listening).toEqual(['LISTEN']);
    await own.transaction((tx) => own.emit(tx, 'a'));
    await expect.poll(() => tray.topics).toEqual(['a']);
  });
});
