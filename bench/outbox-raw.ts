/**
 * outbox-raw — the honest rival of a relay: the tables, indexes and row bytes of our own outbox, and
 * a bare loop over them. Claim a batch with SKIP LOCKED, publish it with confirms, delete it.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from 'amqplib';
import { Client } from 'pg';
import { createOutbox } from 'respool/outbox';
import {
  bodyOf,
  now,
  type Place,
  type RelayOrder,
  ROUTING_KEY,
  type Writer,
} from './outbox-words.ts';
import { inserter, type Row } from './raw-postgres.ts';

/** How long the loop sleeps when it found nothing. */
const IDLE_MS = 2;

/** Inserts copies of a row that our outbox wrote. */
export async function rawWriter({ url, schema }: Place, bodyBytes: number): Promise<Writer> {
  const client = await connected(url);
  const { entry, content } = await template(client, { url, schema }, bodyBytes);
  const insert = inserter(client, schema, entry, content);
  return {
    async write(count) {
      await client.query('BEGIN');
      const ids = await insert(count);
      const at = now();
      await client.query('COMMIT');
      return { ids, at };
    },
    close: () => client.end(),
  };
}

/** Relays until it is stopped. */
export async function rawRelay(order: RelayOrder): Promise<() => Promise<void>> {
  const { url, schema, amqp, exchange, inFlight } = order;
  const client = await connected(url);
  // As ours: a lost claim or a lost delete costs a duplicate, not a message.
  await client.query('SET synchronous_commit = off');
  const connection = await connect(amqp, { noDelay: true });
  const channel = await connection.createConfirmChannel();
  const { claim, remove } = statements(schema);
  const publish = ([id, topic, envelope, body]: readonly unknown[]): Promise<void> =>
    new Promise((resolve, reject) => {
      const { headers, enqueuedAt } = JSON.parse(envelope as string);
      const options = {
        persistent: true,
        mandatory: true,
        messageId: id as string,
        headers,
        contentType: 'text/plain',
        timestamp: Math.floor(enqueuedAt / 1_000),
      };
      channel.publish(exchange, topic as string, body as Buffer, options, (error: Error | null) => {
        if (error === null) resolve();
        else reject(error);
      });
    });
  const leading = { isStopping: false };
  const loop = async (): Promise<void> => {
    while (!leading.isStopping) {
      const at = Date.now();
      const values = [at, inFlight, at + 60_000];
      const query = { name: 'claim', text: claim, values, rowMode: 'array' as const };
      const { rows } = await client.query<unknown[]>(query);
      if (rows.length === 0) {
        await sleep(IDLE_MS);
        continue;
      }
      await Promise.all(rows.map(publish));
      await client.query({ name: 'remove', text: remove, values: [rows.map(([id]) => id)] });
    }
  };
  const looping = loop();
  return async () => {
    leading.isStopping = true;
    await looping;
    await connection.close();
    await client.end();
  };
}

function statements(schema: string): { claim: string; remove: string } {
  return {
    claim: `WITH c AS MATERIALIZED (
  SELECT ctid AS at, seq FROM "${schema}".entries
  WHERE slot = 0 AND slot < 10 AND priority = 5 AND due_at <= $1
  ORDER BY due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE "${schema}".entries e SET slot = 2, claimed_from = 0, holder = 'bench0000000/1',
  due_at = $3, revision = revision + 1, attempts = attempts + 1, updated_at = $1
FROM c LEFT JOIN "${schema}".contents k ON k.seq = c.seq WHERE e.ctid = c.at
RETURNING e.id, e.topic, k.envelope, k.body`,
    remove: `WITH gone AS (
  DELETE FROM "${schema}".entries WHERE id = ANY($1::text[]) RETURNING seq
)
DELETE FROM "${schema}".contents k USING gone WHERE k.seq = gone.seq`,
  };
}

/** Our tables, and the rows of one message that our outbox wrote there. */
async function template(
  client: Client,
  { url, schema }: Pick<Place, 'url' | 'schema'>,
  bodyBytes: number,
): Promise<{ entry: Row; content: Row }> {
  const outbox = createOutbox({ url, schema });
  await outbox.migrate();
  await outbox.transaction((tx) => outbox.emit(tx, ROUTING_KEY, bodyOf(bodyBytes)));
  await outbox.close();
  const { rows: entries } = await client.query<Row>(`SELECT * FROM "${schema}".entries`);
  const { rows: contents } = await client.query<Row>(`SELECT * FROM "${schema}".contents`);
  await client.query(`TRUNCATE "${schema}".entries, "${schema}".contents`);
  const [entry, content] = [entries[0], contents[0]];
  if (entry === undefined || content === undefined) throw new Error('there is no message to copy');
  return { entry, content };
}

async function connected(url: string): Promise<Client> {
  const client = new Client({ connectionString: url });
  await client.connect();
  return client;
}
