/** emit — messages in the caller's own transaction, in PostgreSQL. */

import type pg from 'pg';
import { expect, test } from 'vitest';
import { exponential, fixed } from 'respool';
import { createOutbox, type EmitMessage, once, transaction } from 'respool/outbox';
import { withService } from '../services/index.ts';
import {
  atEnd,
  bodyOf,
  openOutbox,
  openPool,
  ordersIn,
  ownSchema,
  serverUrl,
} from './core-setup.ts';
import { systemClock } from '../time.ts';

const HOUR_MS = 3_600_000;

withService('postgres', () => {
  test('what is emitted is there when the transaction commits, and nowhere before', async () => {
    const { pool, schema, outbox, entries } = await openOutbox();
    const client = await pool.connect();
    await client.query('BEGIN');
    await client.query(`INSERT INTO "${schema}".orders VALUES (1)`);
    const emitted = await outbox.emit(client, 'order.process', { orderId: 1 });
    expect(emitted).toEqual({ id: expect.any(String), duplicate: false });
    expect(await entries()).toEqual([]);
    await client.query('COMMIT');
    client.release();
    const [entry] = await entries();
    expect(entry?.envelope).toMatchObject({ id: emitted.id, topic: 'order.process' });
    expect(entry?.status).toMatchObject({ state: 'incoming', attempts: 0 });
    expect((await bodyOf(outbox, emitted.id)).toString()).toBe('{"orderId":1}');
  });

  test('nothing stays of what was emitted in a transaction that is rolled back', async () => {
    const { pool, schema, outbox, entries } = await openOutbox();
    const failing = transaction(pool, async (tx) => {
      await tx.query(`INSERT INTO "${schema}".orders VALUES (1)`);
      await outbox.emit(tx, 'a', 1);
      await outbox.emitMany(tx, [{ routingKey: 'b' }, { routingKey: 'c' }]);
      throw new Error('no stock');
    });
    await expect(failing).rejects.toThrow('no stock');
    expect(await entries()).toEqual([]);
    expect(await ordersIn(pool, schema)).toEqual([]);
    const contents = await pool.query(`SELECT count(*)::int AS n FROM "${schema}".contents`);
    expect(contents.rows).toEqual([{ n: 0 }]);
  });

  test('of many transactions, exactly the messages of those that commit are there', async () => {
    const { pool, outbox, entries } = await openOutbox();
    const kept: string[] = [];
    await Promise.all(
      Array.from({ length: 40 }, async (_, at) => {
        const isKept = (at * 7) % 5 !== 0;
        const ids: string[] = [];
        const working = transaction(pool, async (tx) => {
          for (let n = 0; n <= at % 3; n += 1) ids.push((await outbox.emit(tx, 'a', at)).id);
          if (!isKept) throw new Error('rolled back');
        });
        await working.catch(() => undefined);
        if (isKept) kept.push(...ids);
      }),
    );
    expect((await entries()).map(({ envelope }) => envelope.id)).toEqual(kept.sort());
  });

  test('a body is text, bytes, a JSON value or nothing, and says what it is', async () => {
    const { pool, outbox, entries } = await openOutbox();
    const cases: readonly (readonly [unknown, string, string | undefined])[] = [
      ['hello', 'hello', 'text/plain; charset=utf-8'],
      [Buffer.from('bytes'), 'bytes', 'application/octet-stream'],
      [new Uint16Array([0x4141]), 'AA', 'application/octet-stream'],
      [Uint8Array.from([66]).buffer, 'B', 'application/octet-stream'],
      [{ a: [1, null] }, '{"a":[1,null]}', 'application/json'],
      [null, 'null', 'application/json'],
      [7, '7', 'application/json'],
      [undefined, '', undefined],
    ];
    await transaction(pool, async (tx) => {
      for (const [body] of cases) await outbox.emit(tx, 'a', body);
    });
    const found: unknown[] = [];
    for (const { envelope } of await entries()) {
      const body = (await bodyOf(outbox, envelope.id)).toString();
      found.push([body, envelope.headers['content-type']]);
    }
    expect(found).toEqual(cases.map(([, body, type]) => [body, type]));
  });

  test('a content type of the caller stays, whatever case its name has', async () => {
    const { pool, outbox, entries } = await openOutbox();
    await transaction(pool, async (tx) => {
      const headers = { 'Content-Type': 'application/xml', 'x-shop': 'north' };
      await outbox.emit(tx, 'a', '<a/>', { headers });
      await outbox.emit(
        tx,
        'a',
        { a: 1 },
        { headers: { 'content-type': 'application/vnd.a+json' } },
      );
    });
    const [xml, json] = await entries();
    expect(xml?.envelope.headers).toMatchObject({
      'content-type': 'application/xml',
      'x-shop': 'north',
    });
    expect(Object.keys(xml?.envelope.headers ?? {})).not.toContain('Content-Type');
    expect((await bodyOf(outbox, json?.envelope.id ?? '')).toString()).toBe('{"a":1}');
  });

  test('names of other headers stay as they are, in the table and in their case', async () => {
    const { pool, outbox, entries } = await openOutbox();
    const headers = { 'X-Shop': 'north', tenantId: 'a', 'x-shop': 'south' };
    await transaction(pool, (tx) => outbox.emit(tx, 'a', '', { headers }));
    const [entry] = await entries();
    expect(entry?.envelope.headers).toMatchObject(headers);
  });

  test('an encoder turns values of its content type into bytes, texts as well', async () => {
    const encode = (value: unknown) => Buffer.from(`<${JSON.stringify(value)}>`);
    const codec = { contentType: 'application/angles', encode, decode: () => undefined };
    const { pool, outbox, entries } = await openOutbox({ encoders: [codec] });
    const headers = { 'content-type': 'application/angles; v=1' };
    await transaction(pool, async (tx) => {
      for (const body of [{ a: 1 }, 'text', Buffer.from('raw')]) {
        await outbox.emit(tx, 'a', body, { headers });
      }
    });
    const bodies: string[] = [];
    for (const { envelope } of await entries()) {
      expect(envelope.headers['content-type']).toBe(headers['content-type']);
      bodies.push((await bodyOf(outbox, envelope.id)).toString());
    }
    expect(bodies).toEqual(['<{"a":1}>', '<"text">', 'raw']);
  });

  test('the body that counts is that of the call, also if its buffer is used again', async () => {
    const { pool, outbox } = await openOutbox();
    const buffer = Buffer.from('first');
    const headers = { 'x-a': '1' };
    const emitted = await transaction(pool, (tx) => {
      const emitting = outbox.emit(tx, 'a', buffer, { headers });
      buffer.fill('-');
      headers['x-a'] = '2';
      return emitting;
    });
    expect((await bodyOf(outbox, emitted.id)).toString()).toBe('first');
    expect((await outbox.spool.get(emitted.id))?.envelope.headers['x-a']).toBe('1');
  });

  test('an eta keeps a message until then: a time, a Date, or so much later', async () => {
    const { pool, outbox, entries } = await openOutbox();
    const at = Date.now() + HOUR_MS;
    await transaction(pool, async (tx) => {
      await outbox.emit(tx, 'a', 1, { eta: at });
      await outbox.emit(tx, 'a', 2, { eta: new Date(at) });
      await outbox.emit(tx, 'a', 3, { eta: '1h' });
      await outbox.emit(tx, 'a', 4, { eta: Date.now() - HOUR_MS });
    });
    const [time, date, later, past] = await entries();
    expect(time?.status).toMatchObject({ state: 'deferred', dueAt: at });
    expect(date?.status).toMatchObject({ state: 'deferred', dueAt: at });
    expect(later?.status.dueAt).toBe((later?.envelope.enqueuedAt ?? 0) + HOUR_MS);
    expect(past?.status).toMatchObject({ state: 'incoming' });
  });

  test('a message expires by its own word, else by that of the outbox, else never', async () => {
    const { pool, schema, outbox, entries } = await openOutbox({ expires: '1h' });
    const endless = createOutbox({ pool, schema });
    await transaction(pool, async (tx) => {
      await outbox.emit(tx, 'outbox');
      await outbox.emit(tx, 'own', 1, { expires: '2h' });
      await endless.emit(tx, 'never');
    });
    // By name: two outboxes may be a millisecond apart, and with them their ids.
    const spans = (await entries()).map(({ envelope: { topic, expiresAt, enqueuedAt } }) => [
      topic,
      expiresAt === undefined ? undefined : expiresAt - enqueuedAt,
    ]);
    expect(Object.fromEntries(spans)).toEqual({
      outbox: HOUR_MS,
      own: 2 * HOUR_MS,
      never: undefined,
    });
  });

  test('key, policy, dedupe key and id are those of the entry', async () => {
    const policies = { slow: fixed('1m') };
    const { pool, outbox, entries } = await openOutbox({ policies });
    await transaction(pool, (tx) =>
      outbox.emit(tx, 'a', 1, { key: 'customer-7', policy: 'slow', dedupeKey: 'd', id: 'mine' }),
    );
    const [entry] = await entries();
    expect(entry?.envelope).toMatchObject({
      id: 'mine',
      ownId: true,
      orderKey: 'customer-7',
      dedupeKey: 'd',
    });
    expect(entry?.status.policy).toBe('slow');
  });

  test('a duplicate by id or dedupe key is told, and the transaction goes on', async () => {
    const { pool, schema, outbox, entries } = await openOutbox();
    await transaction(pool, (tx) => outbox.emit(tx, 'a', 1, { id: 'first', dedupeKey: 'k' }));
    await transaction(pool, async (tx) => {
      const first = { id: 'first', duplicate: true };
      expect(await outbox.emit(tx, 'a', 2, { id: 'first' })).toEqual(first);
      expect(await outbox.emit(tx, 'a', 3, { dedupeKey: 'k' })).toEqual(first);
      const many = await outbox.emitMany(tx, [
        { routingKey: 'a', id: 'second' },
        { routingKey: 'a', id: 'second' },
        { routingKey: 'a', dedupeKey: 'k' },
      ]);
      expect(many).toEqual([
        { id: 'second', duplicate: false },
        { id: 'second', duplicate: true },
        first,
      ]);
      await tx.query(`INSERT INTO "${schema}".orders VALUES (1)`);
    });
    expect((await entries()).map(({ envelope }) => envelope.id)).toEqual(['first', 'second']);
    expect(await ordersIn(pool, schema)).toEqual([1]);
  });

  test('two transactions with one dedupe key: the second waits, and emits if the first is undone', async () => {
    const { pool, outbox, entries } = await openOutbox();
    const first = await pool.connect();
    await first.query('BEGIN');
    await outbox.emit(first, 'a', 1, { dedupeKey: 'k', id: 'one' });
    const second = transaction(pool, (tx) =>
      outbox.emit(tx, 'a', 2, { dedupeKey: 'k', id: 'two' }),
    );
    await first.query('ROLLBACK');
    first.release();
    expect(await second).toEqual({ id: 'two', duplicate: false });
    expect((await entries()).map(({ envelope }) => envelope.id)).toEqual(['two']);
  });

  test('many are emitted in their order, in as many statements as they need', async () => {
    const { pool, schema, outbox } = await openOutbox();
    const messages: EmitMessage[] = Array.from({ length: 1_205 }, (_, at) => ({
      routingKey: 'a',
      body: at,
      key: 'one',
    }));
    const emitted = await transaction(pool, (tx) => outbox.emitMany(tx, messages));
    expect(emitted).toHaveLength(1_205);
    expect(emitted.every(({ duplicate }) => !duplicate)).toBe(true);
    const { rows } = await pool.query<{ id: string }>(
      `SELECT id FROM "${schema}".entries ORDER BY seq`,
    );
    expect(rows.map(({ id }) => id)).toEqual(emitted.map(({ id }) => id));
    await transaction(pool, async (tx) => expect(await outbox.emitMany(tx, [])).toEqual([]));
  });

  test('one wrong message of many is refused before anything is written', async () => {
    const { pool, outbox, entries } = await openOutbox();
    const wrong: readonly (readonly [EmitMessage, string])[] = [
      [{ routingKey: 'no spaces' }, 'message.invalid'],
      [{ routingKey: 'a', headers: { 'bad name': 'x' } }, 'message.invalid'],
      [{ routingKey: 'a', body: Promise.resolve(1) }, 'message.invalid'],
      [{ routingKey: 'a', body: new Blob(['stream']) }, 'message.invalid'],
      [{ routingKey: 'a', body: {}, headers: { 'content-type': 'x/y' } }, 'message.invalid'],
      [{ routingKey: 'a', body: NaN }, 'message.invalid'],
      [
        { routingKey: 'a', body: NaN, headers: { 'content-type': 'application/json' } },
        'message.invalid',
      ],
      [{ routingKey: 'a', eta: 5_000 }, 'message.invalid'],
      [{ routingKey: 'a', eta: 'tomorrow' }, 'config.invalid'],
      [{ routingKey: 'a', eta: '2h', expires: '1h' }, 'message.invalid'],
      [{ routingKey: 'a', expires: 'soon' }, 'config.invalid'],
      [{ routingKey: 'a', key: '' }, 'message.invalid'],
      [{ routingKey: 'a', id: 'NOT AN ID' }, 'message.invalid'],
      [{ routingKey: 'a', dedupeKey: '' }, 'message.invalid'],
      [{ routingKey: 'a', policy: 'unknown' }, 'policy.unknown'],
      [{ routingKey: 'a', topic: 'b' } as EmitMessage, 'message.invalid'],
      [null as unknown as EmitMessage, 'message.invalid'],
    ];
    await transaction(pool, async (tx) => {
      for (const [message, code] of wrong) {
        const emitting = outbox.emitMany(tx, [{ routingKey: 'good' }, message]);
        await expect(emitting, JSON.stringify(message)).rejects.toMatchObject({ code });
      }
      const list = outbox.emitMany(tx, { routingKey: 'a' } as never);
      await expect(list).rejects.toMatchObject({ code: 'message.invalid' });
      const options = outbox.emit(tx, 'a', 1, { delay: '1h' } as never);
      await expect(options).rejects.toThrow('there is no field "delay"');
      await expect(outbox.emit(tx, 'a', 1, null as never)).rejects.toThrow('options null');
    });
    expect(await entries()).toEqual([]);
  });

  test('a body above the limit is refused with the limit', async () => {
    const { pool, outbox, entries } = await openOutbox({ maxBytes: 10 });
    await transaction(pool, async (tx) => {
      await outbox.emit(tx, 'a', 'x'.repeat(10));
      const large = outbox.emit(tx, 'a', 'x'.repeat(11));
      await expect(large).rejects.toMatchObject({
        code: 'limit.exceeded',
        message: expect.stringContaining('11 bytes, allowed are 10 ("maxBytes" of the outbox)'),
      });
    });
    expect(await entries()).toHaveLength(1);
  });

  test('a body of a whole mebibyte rides with its entry', async () => {
    const { pool, outbox } = await openOutbox();
    const body = Buffer.alloc(2 ** 20, 'x');
    const { id } = await transaction(pool, (tx) => outbox.emit(tx, 'a', body));
    expect((await bodyOf(outbox, id)).equals(body)).toBe(true);
  });

  test('the clock of the server decides when a message is due, not that of this machine', async () => {
    const clock = { ...systemClock, now: () => systemClock.now() + HOUR_MS };
    const { pool, outbox, entries } = await openOutbox({ clock });
    await transaction(pool, (tx) => outbox.emit(tx, 'a'));
    const [entry] = await entries();
    expect(entry?.status.state).toBe('incoming');
    expect(entry?.status.dueAt).toBeLessThan(Date.now() + HOUR_MS / 2);
  });

  test('an emit asks nothing but its transaction, and tells nobody', async () => {
    const { pool, outbox } = await openOutbox();
    const client = await pool.connect();
    const statements: string[] = [];
    const tx = {
      query: (text: string, values: unknown[]) => {
        statements.push(text);
        return client.query(text, values);
      },
    };
    const before = pool.totalCount;
    await client.query('BEGIN');
    for (let n = 0; n < 3; n += 1) await outbox.emit(tx, 'a', n);
    await client.query('COMMIT');
    client.release();
    expect(pool.totalCount).toBe(before);
    // The time of the server, once, and one insert for each.
    expect(statements).toHaveLength(4);
    expect(statements.join('\n')).not.toMatch(/notify|BEGIN|COMMIT|SAVEPOINT/i);
  });

  test('a database without tables is told, with what to run', async () => {
    const pool = await openPool();
    const schema = ownSchema();
    const outbox = createOutbox({ pool, schema });
    const emitting = transaction(pool, (tx) => outbox.emit(tx, 'a'));
    await expect(emitting).rejects.toMatchObject({
      code: 'store.version',
      message: expect.stringMatching(/cannot emit "a": .* run outbox\.migrate\(\)/),
    });
    const place = `its tables (schema "${schema}") are not there`;
    await expect(transaction(pool, (tx) => outbox.emit(tx, 'a'))).rejects.toThrow(place);
    await expect(once(pool, 'k', () => 1, { schema })).rejects.toThrow(
      `its tables (schema "${schema}", "inbox") are not there`,
    );
    const mail = createOutbox({ pool, schema, tables: 'mail_' });
    await expect(transaction(pool, (tx) => mail.emit(tx, 'a'))).rejects.toThrow(
      `its tables (schema "${schema}", "mail_…") are not there`,
    );
    await expect(outbox.spool.count()).rejects.toThrow(/run outbox\.migrate\(\)/);
  });

  test('a role that may only insert can emit', async () => {
    const { pool, schema, outbox, entries } = await openOutbox();
    const role = schema;
    await pool.query(`CREATE ROLE "${role}"`);
    atEnd(() => pool.query(`DROP OWNED BY "${role}"; DROP ROLE "${role}"`));
    await pool.query(`GRANT USAGE ON SCHEMA "${schema}" TO "${role}";
      GRANT INSERT, SELECT ON "${schema}".entries, "${schema}".contents TO "${role}";
      GRANT USAGE ON SEQUENCE "${schema}".entries_seq TO "${role}"`);
    await transaction(pool, async (tx) => {
      await tx.query(`SET LOCAL ROLE "${role}"`);
      await outbox.emit(tx, 'a', 1, { dedupeKey: 'k' });
      await outbox.emit(tx, 'a', 1, { dedupeKey: 'k' });
    });
    expect(await entries()).toHaveLength(1);
  });

  test('two outboxes in one database do not see each other', async () => {
    const { pool, schema, outbox, entries } = await openOutbox();
    const other = createOutbox({ pool, schema, tables: 'b_' });
    await other.migrate();
    atEnd(() => other.close());
    await transaction(pool, async (tx) => {
      await outbox.emit(tx, 'a', 1, { dedupeKey: 'k' });
      expect(await other.emit(tx, 'b', 1, { dedupeKey: 'k' })).toMatchObject({ duplicate: false });
    });
    expect((await entries()).map(({ envelope }) => envelope.topic)).toEqual(['a']);
    expect(await other.spool.count()).toMatchObject({ incoming: 1 });
  });

  test('an outbox by URL works on a pool of its own, and ends it', async () => {
    const schema = ownSchema();
    const outbox = createOutbox({ url: await serverUrl(), schema });
    await outbox.migrate();
    const { id } = await outbox.transaction((tx) => outbox.emit(tx, 'a', 1));
    expect((await outbox.spool.get(id))?.envelope.topic).toBe('a');
    await outbox.close();
    await expect(outbox.transaction(() => 1)).rejects.toThrow('it was closed');
  });

  test('the spool of an outbox steers its messages', async () => {
    const { pool, outbox } = await openOutbox();
    const { id } = await transaction(pool, (tx) => outbox.emit(tx, 'a', 1));
    await outbox.spool.operator({ by: 'ops' }).hold([id]);
    expect((await outbox.spool.get(id))?.status.state).toBe('hold');
    await outbox.spool.operator({ by: 'ops' }).remove([id], { hard: true });
    expect(await outbox.spool.get(id)).toBeUndefined();
    const policies = await outbox.spool.operator({ by: 'ops' }).policies();
    expect(policies.find(({ name }) => name === 'default')?.policy).toEqual(
      exponential({ first: '1s', max: '5m', attempts: 20 }),
    );
  });
});

test('options that do not fit together are refused by name', () => {
  const pool = { connect: () => undefined } as unknown as pg.Pool;
  const refused: readonly (readonly [unknown, RegExp])[] = [
    [{}, /needs one of "pool".*none was given/],
    [undefined, /cannot make an outbox with undefined/],
    [{ pool, url: 'postgres://a/b' }, /given were pool and url/],
    [{ pool, schem: 'x' }, /there is no option "schem"/],
    [{ pool, schema: 'Bad Name' }, /"Bad Name" as "schema"/],
    [{ pool, tables: '1' }, /"1" as "tables"/],
    ['postgres://u:pass@h/d', /cannot make an outbox with a text: allowed is/],
    [{ url: 'sqlite:./app.db' }, /by "url".*createOutbox\({ database: new Database\(file\) }\)/],
    [{ url: 'http://a' }, /"url" is not a URL like postgres/],
    [{ pool, listenUrl: 'http://a' }, /"listenUrl" is not a URL/],
    [{ pool, maxBytes: 2 ** 21 }, /"maxBytes": allowed is a whole number 1 to 1048576/],
    [{ pool, expires: 'soon' }, /"soon" as "expires"/],
    [{ pool, encoders: [{}] }, /"encoders"/],
    [{ database: {} }, /no better-sqlite3 database/],
  ];
  for (const [options, text] of refused) {
    expect(() => createOutbox(options as never), String(text)).toThrow(text);
  }
});
