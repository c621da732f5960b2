/** setup — an outbox of one test, and an exchange with a queue that counts. */
import { randomBytes } from 'node:crypto';
import { connect } from 'amqplib';
import pg from 'pg';
import { createOutbox, type Outbox } from 'respool/outbox';
import { query } from '../../nodes/ground.ts';

/** A name that no other test uses, good for a schema and for an exchange. */
export function freshName(): string {
  return `outbox_${randomBytes(6).toString('hex')}`;
}

/** An outbox with a pool of its own; the schema goes with it. */
export interface Ground extends AsyncDisposable {
  readonly url: string;
  readonly schema: string;
  readonly pool: pg.Pool;
  readonly outbox: Outbox<pg.PoolClient>;
  /** Asks beside the outbox; rows as arrays. */
  query(sql: string): Promise<readonly unknown[][]>;
}

/** Makes the tables in a schema that was not there. */
export async function outboxOn(url: string): Promise<Ground> {
  const schema = freshName();
  const pool = new pg.Pool({ connectionString: url });
  const outbox = createOutbox({ pool, schema });
  await outbox.migrate();
  return {
    url,
    schema,
    pool,
    outbox,
    query: (sql) => query(url, sql),
    async [Symbol.asyncDispose]() {
      await outbox.close();
      await pool.end();
      await query(url, `DROP SCHEMA IF EXISTS "${schema}" CASCADE`);
    },
  };
}

/** A topic exchange, and what came to a queue that is bound to it. */
export interface Exchange extends AsyncDisposable {
  readonly name: string;
  readonly ids: readonly string[];
}

/** Makes it; whatever has another routing key is unroutable. */
export async function exchangeOn(amqp: string, bindingKey: string): Promise<Exchange> {
  const name = freshName();
  const connection = await connect(amqp);
  const channel = await connection.createChannel();
  await channel.assertExchange(name, 'topic', { durable: false });
  const { queue } = await channel.assertQueue('', { exclusive: true });
  await channel.bindQueue(queue, name, bindingKey);
  const ids: string[] = [];
  await channel.consume(queue, (message) => ids.push(message?.properties.messageId ?? ''), {
    noAck: true,
  });
  return {
    name,
    ids,
    async [Symbol.asyncDispose]() {
      await channel.deleteExchange(name);
      await connection.close();
    },
  };
}
