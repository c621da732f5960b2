/** Several outboxes in one database, and roles that may do no more than they have to. */
import pg from 'pg';
import { expect, test } from 'vitest';
import type { OutgoingMessage, Sink } from 'respool';
import { createOutbox, type Outbox } from 'respool/outbox';
import { query } from '../nodes/ground.ts';
import { withService } from '../services/index.ts';
import { freshName, outboxOn } from './faults/setup.ts';

withService('postgres', (database) => {
  test('two outboxes in one database do not see each other', async () => {
    await using first = await outboxOn(database());
    await using second = await outboxOn(database());
    await expectApart(first.outbox, second.outbox);
  });

  test('two outboxes in one schema with other tables do not see each other', async () => {
    await using ground = await outboxOn(database());
    const { pool, schema, outbox } = ground;
    const other = createOutbox({ pool, schema, tables: 'mail_' });
    await other.migrate();
    await expectApart(outbox, other);
    await other.close();
  });

  test('a role that may only write emits, and another that may not create tables relays', async () => {
    await using ground = await outboxOn(database());
    const { url, schema } = ground;
    const [writer, relayer] = [freshName(), freshName()];
    await query(
      url,
      `CREATE ROLE ${writer} LOGIN PASSWORD 'secret'; CREATE ROLE ${relayer} LOGIN PASSWORD 'secret';
GRANT USAGE ON SCHEMA "${schema}" TO ${writer}, ${relayer};
GRANT INSERT, SELECT ON "${schema}".entries, "${schema}".contents TO ${writer};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA "${schema}" TO ${writer};
GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA "${schema}" TO ${relayer};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "${schema}" TO ${relayer};`,
    );
    try {
      await using writing = outboxAs(url, writer, schema);
      const { id } = await writing.outbox.transaction((tx) =>
        writing.outbox.emit(tx, 'shop.paid', { order: 1 }, { dedupeKey: 'order-1' }),
      );
      const again = await writing.outbox.transaction((tx) =>
        writing.outbox.emit(tx, 'shop.paid', { order: 1 }, { dedupeKey: 'order-1' }),
      );
      expect(again).toEqual({ id, duplicate: true });
      await using relaying = outboxAs(url, relayer, schema);
      const sink = collector();
      await using relay = relaying.outbox.relay({ to: sink });
      await relay.start();
      await expect.poll(() => sink.ids).toEqual([id]);
      await relay.stop();
      // Neither of them can do more than that.
      await expect(writing.pool.query(`DELETE FROM "${schema}".entries`)).rejects.toThrow('denied');
      await expect(relaying.pool.query(`DROP TABLE "${schema}".entries`)).rejects.toThrow('owner');
    } finally {
      await query(url, `DROP OWNED BY ${writer}, ${relayer}; DROP ROLE ${writer}, ${relayer};`);
    }
  });
});

/** What one of them is given comes out of its own relay, and of no other. */
async function expectApart(
  first: Outbox<pg.PoolClient>,
  second: Outbox<pg.PoolClient>,
): Promise<void> {
  const sinks = [collector(), collector()] as const;
  const ids: string[][] = [[], []];
  await using relayOfFirst = first.relay({ to: sinks[0] });
  await using relayOfSecond = second.relay({ to: sinks[1] });
  await relayOfFirst.start();
  await relayOfSecond.start();
  for (let count = 0; count < 5; count += 1) {
    for (const [at, outbox] of [first, second].entries()) {
      const { id } = await outbox.transaction((tx) => outbox.emit(tx, 'shop.paid', { count }));
      ids[at]?.push(id);
    }
  }
  await expect.poll(() => sinks[0].ids.length + sinks[1].ids.length).toBeGreaterThanOrEqual(10);
  await relayOfFirst.stop();
  await relayOfSecond.stop();
  expect(sinks[0].ids.toSorted()).toEqual(ids[0]?.toSorted());
  expect(sinks[1].ids.toSorted()).toEqual(ids[1]?.toSorted());
  expect(await first.spool.count()).toEqual(await second.spool.count());
}

/** Takes everything. */
function collector(): Sink & { readonly ids: readonly string[] } {
  const ids: string[] = [];
  return {
    name: 'collector',
    ids,
    send: (parcels: readonly OutgoingMessage[]) => {
      ids.push(...parcels.map(({ id }) => id));
      return Promise.resolve(parcels.map(() => 'confirmed' as const));
    },
    close: () => Promise.resolve(),
  };
}

interface Seat extends AsyncDisposable {
  readonly pool: pg.Pool;
  readonly outbox: Outbox<pg.PoolClient>;
}

function outboxAs(url: string, role: string, schema: string): Seat {
  const own = new URL(url);
  own.username = role;
  own.password = 'secret';
  const pool = new pg.Pool({ connectionString: own.href });
  const outbox = createOutbox({ pool, schema });
  return {
    pool,
    outbox,
    async [Symbol.asyncDispose]() {
      await outbox.close();
      await pool.end();
    },
  };
}
