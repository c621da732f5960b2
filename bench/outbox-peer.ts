/**
 * outbox-peer — the same work with pg-transactional-outbox: its polling listener, whose handler
 * publishes with a confirm. Its table, its indexes and its function; as many at once as are in flight.
 */

import { randomUUID } from 'node:crypto';
import { connect } from 'amqplib';
import { Client } from 'pg';
import {
  DatabaseSetup,
  getDisabledLogger,
  initializeMessageStorage,
  initializePollingMessageListener,
} from 'pg-transactional-outbox';
import {
  bodyOf,
  now,
  type Place,
  type RelayOrder,
  ROUTING_KEY,
  type Writer,
} from './outbox-words.ts';

const TABLE = 'outbox';
const FUNCTION = 'next_outbox_messages';
/** Each message has a transaction of its own, so this many are worked on at once. */
const CONNECTIONS_MAX = 40;
/** How long it sleeps when it found fewer than it could take; its default is 500. */
const POLL_MS = 5;
/** Its default: one that met an error comes again after this long. */
const LOCK_MS = 5_000;

/** Stores messages as its readme does: one statement each, all in one transaction. */
export async function peerWriter({ url, schema }: Place, bodyBytes: number): Promise<Writer> {
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query(setup(schema, client.user ?? ''));
  const { settings } = settingsOf(schema, 1);
  const store = initializeMessageStorage(
    { settings, outboxOrInbox: 'outbox' },
    getDisabledLogger(),
  );
  const payload = { text: bodyOf(bodyBytes) };
  return {
    async write(count) {
      const ids = Array.from({ length: count }, () => randomUUID());
      await client.query('BEGIN');
      for (const id of ids) {
        const about = { aggregateType: 'bench', aggregateId: '1', messageType: ROUTING_KEY };
        await store({ id, ...about, payload, concurrency: 'parallel' }, client);
      }
      const at = now();
      await client.query('COMMIT');
      return { ids, at };
    },
    close: () => client.end(),
  };
}

/** Relays until it is stopped. */
export async function peerRelay(order: RelayOrder): Promise<() => Promise<void>> {
  const { url, schema, amqp, exchange, inFlight } = order;
  const connection = await connect(amqp, { noDelay: true });
  const channel = await connection.createConfirmChannel();
  const database = { connectionString: url, max: CONNECTIONS_MAX };
  const [stop] = initializePollingMessageListener(
    {
      outboxOrInbox: 'outbox',
      dbListenerConfig: database,
      dbHandlerConfig: database,
      ...settingsOf(schema, inFlight),
    },
    {
      handle: ({ id, messageType, payload }) =>
        new Promise((resolve, reject) => {
          const body = Buffer.from((payload as { text: string }).text);
          const options = { persistent: true, mandatory: true, messageId: id };
          channel.publish(exchange, messageType, body, options, (error: Error | null) => {
            if (error === null) resolve();
            else reject(error);
          });
        }),
    },
    getDisabledLogger(),
    // Its own strategy begins with many batches of one, which would be measured.
    { batchSizeStrategy: async () => inFlight },
  );
  return async () => {
    await stop();
    await connection.close();
  };
}

function settingsOf(schema: string, inFlight: number) {
  return {
    settings: {
      dbSchema: schema,
      dbTable: TABLE,
      nextMessagesFunctionSchema: schema,
      nextMessagesFunctionName: FUNCTION,
      nextMessagesBatchSize: inFlight,
      nextMessagesLockInMs: LOCK_MS,
      nextMessagesPollingIntervalInMs: POLL_MS,
      enableMaxAttemptsProtection: true,
      enablePoisonousMessageProtection: true,
    },
  };
}

function setup(schema: string, role: string): string {
  const config = {
    outboxOrInbox: 'outbox',
    database: '',
    schema,
    table: TABLE,
    listenerRole: `"${role}"`,
    nextMessagesName: FUNCTION,
  } as const;
  return [
    DatabaseSetup.dropAndCreateTable(config),
    DatabaseSetup.grantPermissions(config),
    DatabaseSetup.createPollingFunction(config),
    DatabaseSetup.setupPollingIndexes(config),
  ].join('\n');
}
