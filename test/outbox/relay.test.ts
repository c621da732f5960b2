/** Relays between a real PostgreSQL and a real RabbitMQ (R158–R165). */
import { describe, expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { ground, idsOf, told } from './relay-ground.ts';
import { confirmed, TestSink } from './relay-setup.ts';

withService('postgres', () => {
  withService('rabbitmq', () => {
    describe('a relay', () => {
      test('sends what is committed under the id of its emit, confirmed, and leaves nothing', async () => {
        const { outbox, broker, pool, relay, states } = await ground();
        const { id } = await outbox.transaction(async (tx) =>
          outbox.emit(tx, 'q.order', { orderId: 1 }, { headers: { tenant: 'a', 'X-Shop': 'n' } }),
        );
        await expect(
          outbox.transaction(async (tx) => {
            await outbox.emit(tx, 'q.order', { orderId: 2 });
            throw new Error('rolled back');
          }),
        ).rejects.toThrow('rolled back');
        const one = relay();
        const delivered = told(one, 'delivered');
        await one.start();
        const [message] = await broker.arrived(1);
        expect(message?.fields.routingKey).toBe('q.order');
        expect(message?.properties).toMatchObject({
          messageId: id,
          contentType: 'application/json',
          deliveryMode: 2,
          headers: { tenant: 'a', 'X-Shop': 'n' },
        });
        expect(message?.content.toString()).toBe('{"orderId":1}');
        await delivered;
        await one.stop();
        expect(await states()).toEqual({});
        expect(broker.messages).toHaveLength(1);
        expect(pool.idleCount).toBe(pool.totalCount);
      });

      test('takes what no queue takes for a failure: it backs off, and holds nobody up', async () => {
        const { outbox, broker, emit, relay, states } = await ground();
        const [lost = ''] = await emit(1, { routingKey: 'nowhere' });
        const ids = await emit(50);
        const one = relay();
        const deferred = told(one, 'deferred', 2);
        await one.start();
        expect(idsOf(await broker.arrived(50)).toSorted()).toEqual(ids.toSorted());
        await deferred;
        const entry = await outbox.spool.get(lost);
        const [first, second] = entry?.status.history ?? [];
        expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThanOrEqual(1_000);
        expect(entry?.status).toMatchObject({
          state: 'deferred',
          attempts: 2,
          lastFailure: { code: 'broker.unroutable', permanence: 'transient' },
        });
        expect(one.load.target).toBe('closed');
        // A queue is bound at last.
        const channel = await broker.connection.createChannel();
        await channel.bindQueue(broker.queue, broker.exchange, 'nowhere');
        await outbox.spool.operator({ by: 'ops' }).retry([lost]);
        expect(idsOf(await broker.arrived(51))).toContain(lost);
        await one.stop();
        expect(await states()).toEqual({});
      });

      test('bounces what is not sent before it expires, with the reason', async () => {
        const { outbox, broker, emit, relay } = await ground();
        const [late = ''] = await emit(1, { expires: '1ms' });
        const [fine = ''] = await emit(1, { expires: '1h' });
        const one = relay();
        const bounced = told(one, 'bounced');
        await one.start();
        await bounced;
        expect((await outbox.spool.get(late))?.status).toMatchObject({
          state: 'bounce',
          ending: 'expired',
          because: { code: 'expired' },
        });
        expect(idsOf(await broker.arrived(1))).toEqual([fine]);
        await one.stop();
      });

      test('keeps the order of each key, over several relays', async () => {
        const { broker, emit, relay } = await ground();
        const count = 300;
        const ids = await emit(count, { key: (at) => `k${at % 7}` });
        const relays = [relay({ batch: 10 }), relay({ batch: 10 }), relay({ batch: 10 })];
        for (const one of relays) await one.start();
        const sent = idsOf(await broker.arrived(count));
        for (let key = 0; key < 7; key += 1) {
          const ofKey = ids.filter((_, at) => at % 7 === key);
          const mine = new Set(ofKey);
          expect(sent.filter((id) => mine.has(id))).toEqual(ofKey);
        }
        await Promise.all(relays.map((one) => one.stop()));
      });

      test('may be one of many: each message is sent once', async () => {
        const { broker, emit, relay, states } = await ground();
        const ids = await emit(3_000);
        const relays = [relay(), relay(), relay()];
        await Promise.all(relays.map((one) => one.start()));
        await broker.arrived(3_000);
        await Promise.all(relays.map((one) => one.stop()));
        expect(idsOf(broker.messages).toSorted()).toEqual(ids.toSorted());
        expect(await states()).toEqual({});
      });

      test('keeps the order of emits in what it takes', async () => {
        const { broker, emit, relay } = await ground();
        const ids = await emit(400);
        const one = relay();
        await one.start();
        expect(idsOf(await broker.arrived(400))).toEqual(ids);
        await one.stop();
      });

      test('stops cleanly under load: what is on its way is confirmed and settled, nothing is sent twice', async () => {
        const { broker, emit, relay, states } = await ground();
        const ids = await emit(2_000);
        const first = relay({ batch: 50, concurrency: 200 });
        await first.start();
        await broker.arrived(200);
        await first.stop();
        expect(first.load).toMatchObject({ running: 0, waiting: 0, settling: 0 });
        const { active = 0, incoming = 0 } = await states();
        const sentBefore = broker.messages.length;
        expect(active).toBe(0);
        expect(sentBefore).toBeLessThan(2_000);
        expect(incoming).toBe(2_000 - sentBefore);
        const second = relay();
        await second.start();
        await broker.arrived(2_000);
        await second.stop();
        expect(idsOf(broker.messages).toSorted()).toEqual(ids.toSorted());
      });

      test('holds no lock and no transaction while messages are on their way', async () => {
        const { emit, relay, pool, schema } = await ground();
        const sink = new TestSink();
        const asked = Promise.withResolvers<void>();
        const answer = Promise.withResolvers<void>();
        sink.answer = async (parcels) => {
          asked.resolve();
          await answer.promise;
          return confirmed(parcels);
        };
        await emit(20);
        const one = relay({ to: sink });
        const delivered = told(one, 'delivered', 20);
        await one.start();
        await asked.promise;
        const locks = async (): Promise<number> => {
          const { rows } = await pool.query<{ count: number }>(
            `SELECT count(*)::int FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
              JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1`,
            [schema],
          );
          return rows[0]?.count ?? 0;
        };
        await expect.poll(locks).toBe(0);
        expect(sink.sends).toHaveLength(1);
        answer.resolve();
        await delivered;
        await one.stop();
      });

      test('says how tables are made that are not there', async () => {
        const { outbox, pool, schema, relay } = await ground();
        await pool.query(`DROP SCHEMA "${schema}" CASCADE`);
        await expect(relay().start()).rejects.toThrow(/outbox\.migrate\(\)/);
        await outbox.migrate();
      });

      test('moves what was sent to a table in parts, if cleanUp says so', async () => {
        const { broker, emit, relay, pool, schema } = await ground();
        const ids = await emit(20);
        const one = relay({ cleanUp: { partition: '1d', keep: '30d' } });
        await one.start();
        await broker.arrived(20);
        await one.stop();
        const idsIn = async (table: string): Promise<unknown[]> => {
          const { rows } = await pool.query<{ id: string }>(
            `SELECT id FROM "${schema}".${table} ORDER BY id`,
          );
          return rows.map(({ id }) => id);
        };
        expect(await idsIn('sent')).toEqual(ids.toSorted());
        expect(await idsIn('entries')).toEqual([]);
      });

      test.each([
        ['2h', 'archived'],
        ['never', 'archived'],
        ['at once', undefined],
      ] as const)('with cleanUp %s leaves %s', async (cleanUp, left) => {
        const { broker, emit, relay, states } = await ground();
        await emit(20);
        const one = relay({ cleanUp });
        await one.start();
        await broker.arrived(20);
        await one.stop();
        expect(await states()).toEqual(left === undefined ? {} : { [left]: 20 });
      });
    });
  });
});
