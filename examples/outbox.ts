/**
 * outbox — a message that is sent if its transaction commits, a relay that sends it, and a consumer
 * whose effect happens once. POSTGRES_URL names the database, RABBITMQ_URL the broker.
 */

import pg from 'pg';
import { createOutbox, listen, once, Reject, transaction } from 'respool/outbox';
import type { RabbitDelivery } from 'respool/rabbit';

const url = process.env['RABBITMQ_URL'] ?? 'amqp://localhost';
const pool = new pg.Pool({
  connectionString: process.env['POSTGRES_URL'] ?? 'postgres://localhost/postgres',
});

// Tables of the made-up shop.
await pool.query('create table if not exists orders (id int primary key, customer text)');
await pool.query('create table if not exists charges (order_id int)');

const outbox = createOutbox({ pool });
await outbox.migrate();

// Made up: who listens knows order 1, and charges it.
interface Order {
  readonly orderId: number;
}
const valid = ({ orderId }: Order): boolean => orderId === 1;
const charged = Promise.withResolvers<void>();
const charge = async (tx: pg.PoolClient, delivery: RabbitDelivery): Promise<void> => {
  const { orderId } = (await delivery.json()) as Order;
  await tx.query('insert into charges (order_id) values ($1)', [orderId]);
};

// Listens before anything is sent: an exchange keeps nothing for queues that come later.
await using listener = listen(
  'order.*',
  { url, exchange: 'shop', queue: 'billing', retryDelays: ['2s', '5s', '15s'] },
  async (delivery) => {
    if (!valid((await delivery.json()) as Order)) throw new Reject('no such order');
    const { done } = await once(pool, delivery.id, (tx) => charge(tx, delivery));
    console.log(`${delivery.routingKey}: ${done ? 'charged' : 'was charged before'}`);
    charged.resolve();
  },
);
await listener.start();

await transaction(pool, async (tx) => {
  await tx.query('insert into orders (id, customer) values ($1, $2)', [1, 'customer-7']);
  await outbox.emit(tx, 'order.process', { orderId: 1 }, { key: 'customer-7' });
});

await using relay = outbox.relay({ to: { amqp: url, exchange: 'shop' } });
await relay.start();
await charged.promise;

const { rows } = await pool.query('select count(*)::int as charges from charges');
console.log(rows[0]);

await relay.stop();
await listener.stop();
await outbox.close();
await pool.end();
