/** A relay of an outbox in SQLite, beside the database of the user's that emits. */
import { createServer } from 'node:http';
import { fixed } from 'respool';
import { http } from 'respool/deliver';
import { describe, expect, onTestFinished, test } from 'vitest';
import { openSqliteOutbox } from './core-setup.ts';
import { TestSink } from './relay-setup.ts';
import { told } from './relay-ground.ts';

describe('a relay of an outbox in SQLite', () => {
  test('sends what is committed, each once, and keeps the order of keys', async () => {
    const { database, outbox } = await openSqliteOutbox();
    const sink = new TestSink();
    await using relay = outbox.relay({ to: sink });
    const delivered = told(relay, 'delivered', 21);
    await relay.start();
    const ids: string[] = [];
    const emit = database.transaction((count: number) => {
      for (let at = 0; at < count; at += 1) {
        ids.push(outbox.emit(database, 'order.new', { at }, { key: 'k' }).id);
      }
      if (count === 3) throw new Error('rolled back');
    });
    emit(20);
    outbox.wake();
    expect(() => emit(3)).toThrow('rolled back');
    ids.splice(20);
    emit(1);
    outbox.wake();
    await delivered;
    await relay.stop();
    expect(sink.ids).toEqual(ids);
    expect(await outbox.spool.count()).toMatchObject({ incoming: 0, active: 0 });
  });

  test('backs off for what the target refuses', async () => {
    const policies = { default: fixed('50ms', { attempts: 2 }) };
    const { outbox } = await openSqliteOutbox({ policies });
    const sink = new TestSink();
    sink.answer = (parcels) =>
      parcels.map(() => ({
        permanence: 'transient',
        code: 'x',
        reason: 'no',
        fingerprint: 'x',
      }));
    await using relay = outbox.relay({ to: sink });
    const bounced = told(relay, 'bounced');
    const { id } = outbox.transaction((tx) => outbox.emit(tx, 'order.new', {}));
    await relay.start();
    await bounced;
    expect((await outbox.spool.get(id))?.status).toMatchObject({ state: 'bounce', attempts: 2 });
  });

  test('refuses parts of a table, which SQLite does not have', async () => {
    const { outbox } = await openSqliteOutbox();
    const cleanUp = { partition: '1d', keep: '30d' };
    expect(() => outbox.relay({ to: new TestSink(), cleanUp })).toThrow(
      expect.objectContaining({
        code: 'config.invalid',
        message: expect.stringContaining('PostgreSQL'),
      }),
    );
  });

  test('hands messages to a route over HTTP', async () => {
    const { outbox } = await openSqliteOutbox();
    const seen = Promise.withResolvers<string>();
    const server = createServer((request, response) => {
      let text = '';
      request.on('data', (part: Buffer) => (text += part.toString()));
      request.on('end', () => {
        response.end();
        seen.resolve(`${request.method} ${request.headers['content-type']} ${text}`);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as { readonly port: number };
    const deliver = http({ url: `http://127.0.0.1:${port}/hook`, allow: ['127.0.0.1'] });
    await using relay = outbox.relay({ to: { deliver } });
    const delivered = told(relay, 'delivered');
    await relay.start();
    outbox.transaction((tx) => outbox.emit(tx, 'order.new', { orderId: 1 }));
    expect(await seen.promise).toBe('POST application/json {"orderId":1}');
    await delivered;
  });
});
