/**
 * outbox — a message that is sent if its transaction commits, a relay that sends it, and a consumer
 * whose effect happens once. DATABASE_URL names the database, RABBITMQ_URL the broker.
 */

import { randomInt } from 'node:crypto';
import pg from 'pg';
import { createOutbox, listen, once, Reject, transaction } from 'respool/outbox';
import type { RabbitDelivery } from 'respool/rabbit';

const url = process.env['RABBITMQ_URL'] ?? 'amqp://localhost';
const pool = new pg.Pool({
  connectionString: process.env['DATABASE_URL'] ?? 'postgres://localhost/postgres',
});

// Tables of the made-up shop. Every run takes another order, so it may be run again.
await pool.query('create table if not exists orders (id int primary key, customer text)');
await pool.query('create table if not exists charges (order_id int)');
const ours = randomInt(1, 2 ** 31);

const outbox = createOutbox({ pool });
await outbox.migrate();

// Made up: who listens knows orders by their numbers, and charges them.
interface Order {
  readonly orderId: number;
}
const valid = ({ orderId }: Order): boolean => Number.isInteger(orderId);
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
    const order = (await delivery.json()) as Order;
    if (!valid(order)) throw new Reject('no such order');
    // The delivery itself, not its id: one that came without an id is refused.
    const { done } = await once(pool, delivery, (tx) => charge(tx, delivery));
    console.log(`${delivery.routingKey}: ${done ? 'charged' : 'was charged before'}`);
    if (order.orderId === ours) charged.resolve();
  },
);
await listener.start();

await transaction(pool, async (tx) => {
  await tx.query('insert into orders (id, customer) values ($1, $2)', [ours, 'customer-7']);
  await outbox.emit(tx, 'order.process', { orderId: ours }, { key: 'customer-7' });
});

await using relay = outbox.relay({ to: { amqp: url, exchange: 'shop' } });
await relay.start();
await charged.promise;

const counting = 'select count(*)::int as charges from charges where order_id = $1';
const { rows } = await pool.query(counting, [ours]);
console.log(rows[0]);

await relay.stop();
await listener.stop();
await outbox.close();
await pool.end();
