/** The outbox of a configuration, and its relay: checked before anything connects. */
import path from 'node:path';
import { exponential, fixed } from 'respool';
import { describe, expect, test } from 'vitest';
import { describeConfig } from '../../src/config/describe.ts';
import { loadConfig } from '../../src/config/load/load-config.ts';
import { folderWith, load, refusal } from './setup.ts';

const CANARY = 'c4nary-Zm9vYmFyYmF6cXV4';
const store = 'postgres://app@db.example/shop';
const to = { amqp: 'amqp://broker.example/v', exchange: 'shop' };

async function outboxOf(outbox: object, more: object = {}) {
  const { config } = await load({ config: { ...more, outbox: { store, ...outbox } } });
  if (config.outbox === undefined) throw new Error('there is no outbox');
  return config.outbox;
}

async function relayOf(relay: object, more: object = {}) {
  const { relay: found } = await outboxOf({ relay: { to, ...relay } }, more);
  if (found === undefined) throw new Error('there is no relay');
  return found;
}

describe('an outbox', () => {
  test('is none unless something is said of one', async () => {
    expect((await load({ config: {} })).config.outbox).toBeUndefined();
  });

  test('has what the reference says unless it says otherwise', async () => {
    expect(await outboxOf({})).toEqual({
      store,
      place: { kind: 'postgres', url: store, address: 'postgres://db.example/shop' },
      schema: 'outbox',
      policies: {},
    });
  });

  test('takes everything that it may say', async () => {
    const said = {
      schema: 'shop',
      tables: 'mail_',
      listenUrl: 'postgres://app@db.example:5433/shop',
      expires: '2d',
    };
    expect(await outboxOf(said)).toMatchObject(said);
  });

  test('may be a file of SQLite, from the folder of the configuration', async () => {
    const loaded = await load({ config: { outbox: { store: 'sqlite:./data/app.db' } } });
    const file = path.join(loaded.folder, 'data/app.db');
    expect(loaded.config.outbox?.place).toMatchObject({ kind: 'sqlite', file });
    expect(loaded.config.outbox?.schema).toBeUndefined();
  });

  test('that is named by a flag starts from the working directory', async () => {
    const folder = await folderWith({ 'respool.config.json': '{}', 'below/x': '' });
    const cwd = path.join(folder, 'below');
    const flags = { 'outbox.store': 'sqlite:app.db' };
    const { config } = await loadConfig({ cwd, env: {}, flags });
    expect(config.outbox?.place).toMatchObject({ file: path.join(cwd, 'app.db') });
  });

  test('has the policies of the configuration, and its own over them', async () => {
    const policies = { default: { fixed: '7s' }, slow: { fixed: '9s' } };
    const own = { default: 'slow', urgent: { exponential: { first: '1s' } } };
    expect((await outboxOf({ policies: own }, { policies })).policies).toEqual({
      default: fixed('9s'),
      slow: fixed('9s'),
      urgent: exponential({ first: '1s' }),
    });
  });

  // A default for the spool silently governed committed events: dead after two quick attempts.
  test('has its own default unless its policies name one', async () => {
    const policies = { default: { fixed: { delay: '100ms', attempts: 2 } }, slow: { fixed: '9s' } };
    expect((await outboxOf({}, { policies })).policies).toEqual({ slow: fixed('9s') });
    const named = await outboxOf({ policies: { default: 'default' } }, { policies });
    expect(named.policies['default']).toEqual(fixed('100ms', { attempts: 2 }));
  });

  test('keeps what the package pg understands in its address', async () => {
    const url = `${store}?sslmode=require`;
    expect((await outboxOf({ store: url })).place).toMatchObject({ url });
  });
});

describe('a relay', () => {
  test('has what the reference says unless it says otherwise', async () => {
    expect(await relayOf({})).toEqual({
      to,
      target: { kind: 'amqp', url: to.amqp, exchange: 'shop' },
      batch: 100,
      concurrency: 500,
      cleanUp: 'at once',
      topics: ['#'],
      lease: '60s',
      poll: '30s',
      pauseAfter: '1s',
    });
  });

  test('takes everything that it may say', async () => {
    const said = {
      batch: 10,
      concurrency: 20,
      cleanUp: { partition: '1d', keep: '30d' },
      topics: ['order.*', 'user.#'],
      expires: '1h',
      lease: '10s',
      poll: '1s',
      pauseAfter: '30s',
    };
    expect(await relayOf(said)).toMatchObject(said);
    expect((await relayOf({ cleanUp: 'never' })).cleanUp).toBe('never');
    expect((await relayOf({ topics: 'order.*, user.#' })).topics).toEqual(['order.*', 'user.#']);
  });

  test('expires as the outbox, unless it says otherwise', async () => {
    const outbox = await outboxOf({ expires: '2h', relay: { to } });
    expect(outbox.relay?.expires).toBe('2h');
    const own = await outboxOf({ expires: '2h', relay: { to, expires: '1h' } });
    expect(own.relay?.expires).toBe('1h');
  });

  test('sends to the broker of the configuration if it names none', async () => {
    const rabbit = { url: 'amqp://other.example' };
    const { target } = await relayOf({ to: { exchange: '' } }, { rabbit });
    expect(target).toEqual({ kind: 'amqp', url: 'amqp://other.example', exchange: '' });
  });

  test('sends to the spool, over HTTP, or by a command', async () => {
    expect((await relayOf({ to: { spool: true } })).target).toEqual({ kind: 'spool' });
    const http = await relayOf({ to: { http: { url: 'https://example.com/' } } });
    expect(http.target).toMatchObject({ kind: 'deliver' });
    const exec = await relayOf({ to: { exec: ['cat'] } });
    expect(exec.target).toMatchObject({ kind: 'deliver' });
  });

  test('of a program sends by its own handler, or to its own sink', async () => {
    const text = (target: string): string =>
      `export default { outbox: { store: '${store}', relay: { to: ${target} } } };`;
    const targetOf = async (given: string) => {
      const cwd = await folderWith({ 'respool.config.mjs': text(given) });
      return (await loadConfig({ cwd, env: {} })).config.outbox?.relay?.target;
    };
    expect(await targetOf('async () => {}')).toMatchObject({ kind: 'deliver' });
    const sink = "{ name: 'mine', send: () => {}, close: () => {} }";
    expect(await targetOf(sink)).toMatchObject({ kind: 'sink', sink: { name: 'mine' } });
  });
});

describe('is refused with its key and what is allowed:', () => {
  const cases: [object, string[]][] = [
    [{ schema: 'x' }, ['nothing as "outbox.store"', '--store', 'sqlite:./app.db']],
    [{ store: 'mysql://x' }, ['"outbox.store"', 'postgres://… or sqlite:FILE']],
    [{ store: 5 }, ['5', '"outbox.store"']],
    [{ store: `${store}?schema=x` }, ['"outbox.store?schema"', '"outbox.schema"']],
    [{ store: `${store}?unknown=x` }, ['"outbox.store?unknown"']],
    [{ store: 'sqlite:./a.db?thread=true' }, ['"outbox.store?thread"']],
    [{ store, schema: 'A-B' }, ['"A-B"', '"outbox.schema"', 'a-z 0-9 _']],
    [{ store, schema: 5 }, ['5', '"outbox.schema"']],
    [{ store, tables: '1' }, ['"1"', '"outbox.tables"']],
    [{ store, tables: 1 }, ['"outbox.tables"']],
    [{ store: 'sqlite:a.db', tables: '' }, ['"" as "outbox.tables"', 'outbox_']],
    [{ store: 'sqlite:a.db', schema: 'x' }, ['"outbox.schema"', 'it is of PostgreSQL']],
    [{ store: 'sqlite:a.db', listenUrl: store }, ['"outbox.listenUrl"', 'it is of PostgreSQL']],
    [{ store, listenUrl: 'x' }, ['"outbox.listenUrl"', 'straight to the server']],
    [{ store, expires: 'soon' }, ['"soon"', '"outbox.expires"']],
    [{ store, policies: [] }, ['"outbox.policies"', 'names to policies']],
    [{ store, policies: { 'a b': 'postfix' } }, ['"a b"', '"outbox.policies"']],
    [{ store, policies: { a: 'slwo' } }, ['"slwo"', '"outbox.policies.a"', 'no such policy']],
    [{ store, relai: {} }, ['"outbox.relai"', 'relay']],
    [{ store, relay: { batch: 1 } }, ['"outbox.relay.to"', '{ spool: true }']],
    [{ store, relay: { to: {} } }, ['"outbox.relay.to.exchange"']],
    [{ store, relay: { to: { exchange: 'x' } } }, ['"outbox.relay.to.amqp"', '"rabbit.url"']],
    [{ store, relay: { to: { ...to, amqp: 'http://x' } } }, ['"outbox.relay.to.amqp"']],
    [{ store, relay: { to: { ...to, queue: 'x' } } }, ['"outbox.relay.to.queue"']],
    [{ store, relay: { to: { spool: 'yes' } } }, ['"yes"', '"outbox.relay.to.spool"', 'true']],
    [{ store, relay: { to: { http: {} } } }, ['"outbox.relay.to.http.url"']],
    [{ store, relay: { to, batch: 0 } }, ['0', '"outbox.relay.batch"', '1 to 10000']],
    [{ store, relay: { to, concurrency: 10_001 } }, ['"outbox.relay.concurrency"']],
    [{ store, relay: { to, cleanUp: 'soon' } }, ['"soon"', '"outbox.relay.cleanUp"', 'never']],
    [{ store, relay: { to, cleanUp: { keep: '1d' } } }, ['"outbox.relay.cleanUp.partition"']],
    [
      { store, relay: { to, cleanUp: { keep: '1s', partition: '1d' } } },
      ['"1s"', '"outbox.relay.cleanUp.keep"', '1m to'],
    ],
    [
      { store: 'sqlite:a.db', relay: { to, cleanUp: { partition: '1d', keep: '2d' } } },
      ['"outbox.relay.cleanUp"', 'of PostgreSQL'],
    ],
    [{ store, relay: { to, topics: [] } }, ['"outbox.relay.topics"']],
    [{ store, relay: { to, topics: 'a..b' } }, ['"a..b"', '"outbox.relay.topics"']],
    [{ store, relay: { to, expires: 'x' } }, ['"outbox.relay.expires"']],
    [{ store, relay: { to, lease: '1ms' } }, ['"outbox.relay.lease"', '1s to 1d']],
    [{ store, relay: { to, poll: '1ms' } }, ['"outbox.relay.poll"', '10ms to 1h']],
    [{ store, relay: { to, pauseAfter: '2h' } }, ['"outbox.relay.pauseAfter"', '1ms to 1h']],
  ];
  test.each(cases)('%j', async (outbox, words) => {
    const said = await refusal({ config: { outbox } });
    for (const word of [...words, 'respool.config.json']) expect(said).toContain(word);
  });

  test('a variable that is broken JSON, by its name', async () => {
    const env = { RESPOOL_OUTBOX_STORE: store, RESPOOL_OUTBOX_RELAY_TO: '{"amqp"' };
    const said = await refusal({ config: {}, env });
    expect(said).toMatch(/broken JSON as "outbox.relay.to".*RESPOOL_OUTBOX_RELAY_TO/);
  });
});

describe('who does not send', () => {
  const yaml = `
outbox:
  store: ${store}
  relay: { to: { amqp: "\${NOT_SET}", exchange: shop } }`;

  test('needs nothing of what only the relay knows', async () => {
    const folder = await folderWith({ 'respool.config.yaml': yaml });
    const { config } = await loadConfig({ cwd: folder, env: {}, routes: 'outbox' });
    expect(config.outbox).toMatchObject({ store });
    expect(config.outbox?.relay).toBeUndefined();
    await expect(loadConfig({ cwd: folder, env: {}, routes: 'relay' })).rejects.toThrow('NOT_SET');
  });

  test('and does not ask for an outbox reads nothing of it', async () => {
    const folder = await folderWith({ 'respool.config.yaml': yaml });
    const env = { RESPOOL_OUTBOX_RELAY_BATCH: '0' };
    const { config } = await loadConfig({ cwd: folder, env, routes: false });
    expect(config.outbox).toBeUndefined();
  });
});

describe('shown', () => {
  test('are values with who said them, and no password', async () => {
    const loaded = await load({
      config: {
        outbox: {
          store: `postgres://app:${CANARY}@db.example/shop`,
          listenUrl: `postgres://app:${CANARY}@db.example/shop`,
          policies: { default: { fixed: '5s' } },
          relay: {
            to: { amqp: `amqp://shop:${CANARY}@broker.example/v`, exchange: 'shop' },
            topics: ['a', 'b'],
          },
        },
      },
      env: { RESPOOL_OUTBOX_RELAY_BATCH: '7' },
    });
    const lines = describeConfig(loaded).filter(({ key }) => key.startsWith('outbox.'));
    expect(JSON.stringify(lines)).not.toContain(CANARY);
    const shown = Object.fromEntries(lines.map(({ key, value, from }) => [key, { value, from }]));
    expect(shown['outbox.store']).toMatchObject({
      value: 'postgres://(secret)@db.example/shop',
      from: `file ${loaded.file}`,
    });
    expect(shown['outbox.relay.to']?.value).toEqual({
      amqp: 'amqp://broker.example/v',
      exchange: 'shop',
    });
    expect(shown['outbox.relay.batch']).toEqual({
      value: 7,
      from: 'environment RESPOOL_OUTBOX_RELAY_BATCH',
    });
    expect(shown['outbox.relay.lease']).toEqual({ value: '60s', from: 'default' });
    expect(shown['outbox.relay.topics[1]']?.value).toBe('b');
    expect(shown['outbox.policies.default']?.value).toContain('5s');
  });

  test('errors show no password either', async () => {
    const secret = `postgres://app:${CANARY}@db.example/shop`;
    for (const outbox of [
      { store: `${secret}?unknown=1` },
      { store: `mysql://app:${CANARY}@x` },
      { store, listenUrl: `http://app:${CANARY}@x` },
      { store, relay: { to: { amqp: `ftp://app:${CANARY}@x`, exchange: 'x' } } },
      { store, relay: { to: [`amqp://app:${CANARY}@x`] } },
    ]) {
      expect(await refusal({ config: { outbox } })).not.toContain(CANARY);
    }
  });
});
