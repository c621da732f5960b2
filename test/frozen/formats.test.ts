/**
 * Spools that commit 1242914 has left, opened and drained by the code of today: every message comes
 * with its body, headers and attempts, every record is read, and what was held, bounced or removed
 * goes on when an operator says so. test/fixtures/frozen/write.mjs tells how they were made.
 */
import { createHash } from 'node:crypto';
import path from 'node:path';
import pg from 'pg';
import {
  createSpool,
  type Delivery,
  type Entry,
  ladder,
  noRetry,
  type Spool,
  type SpoolEvent,
} from 'respool';
import {
  createSpoolLetters,
  listReplays,
  notesOf,
  reportReplay,
  runReplay,
} from 'respool/dead-letters';
import { parseCondition } from 'respool/observe';
import { createAlerts } from '../../src/observe/alerts/evaluate.ts';
import { createMeasures } from '../../src/observe/alerts/measures.ts';
import { createOutbox, type Outbox, once as onceIn, type SqliteOutbox } from 'respool/outbox';
import { once } from 'respool/stores/sqlite';
import { compress, encrypt } from 'respool/transforms';
import { describe, expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { serverUrl } from '../stores/postgres/setup.ts';
import { openFile } from '../stores/sqlite/setup.ts';
import * as old from './old-spools.ts';
import { internalsOf } from '../../src/spool/internals.ts';
import { systemClock } from '../time.ts';

/** What the code of then said of its spool. */
interface Expected {
  readonly messages: readonly (Pick<Entry, 'envelope' | 'status'> & {
    /** Of the body, or why it cannot be read. */
    readonly sha256: string;
  })[];
  readonly counts: Readonly<Record<string, number>>;
  readonly audit: readonly object[];
  readonly pauses: readonly object[];
  readonly replays: readonly { readonly id: string; readonly state: string }[];
  readonly reports: readonly { readonly id: string; readonly lines: readonly object[] }[];
  readonly notes: readonly object[];
  readonly log: readonly object[];
  readonly map: readonly object[];
}

/** A message at a handler. */
interface Arrival extends Pick<Delivery, 'headers' | 'attempt' | 'notes'> {
  readonly sha256: string;
  readonly lastCode: string | undefined;
}

/** Not sent before somebody resumes it, or releases the one before it. */
const WAITS_FOR_OPERATOR = new Set(['paused', 'order-c2']);
/** Was delivered, and its body let go then. */
const LET_GO = new Set(['gzip-done', 'zstd-done']);

describe.each([
  ['sqlite', () => old.oldSqlite()],
  ['sealed', () => old.oldSqlite('sealed')],
  ['filesystem', old.oldFilesystem],
] as const)('a spool of then in %s', (kind, restore) => {
  test('is read and drained', async () => drained(kind, await restore()));
});

withService('postgres', () => {
  test('a spool of then in PostgreSQL is read and drained', async () => {
    await drained('postgres', await old.oldPostgres());
  });

  test('an outbox of then in PostgreSQL is sent on, and its inbox remembers', async () => {
    const { place: schema } = await old.oldPostgres();
    await using stack = new AsyncDisposableStack();
    const pool = new pg.Pool({ connectionString: await serverUrl() });
    stack.defer(() => pool.end());
    await using outbox = createOutbox({ pool, schema, tables: 'outbox_' });
    await outbox.migrate();
    await sentOn(outbox);
    const inbox = { schema, table: 'outbox_inbox', scope: 'cards' };
    expect(await onceIn(pool, 'charge-2', () => 'again', inbox)).toEqual({ done: false });
  });
});

withService('nats', () => {
  test('a spool of then in NATS is read and drained', async () => {
    await drained('nats', await old.oldNats());
  });
});

test('an outbox of then in SQLite is sent on, its inbox and `once` remember', async () => {
  const { place } = await old.oldSqlite();
  const database = await openFile(path.join(place, 'app.db'));
  await using outbox = createOutbox({ database });
  outbox.migrate();
  await sentOn(outbox);
  const again = onceIn(database, 'charge-2', () => 'again', { scope: 'cards' });
  expect(again).toEqual({ done: false });
  const first = once(database, 'charge-1', () => ({ charged: false }), { scope: 'cards' });
  expect(first).toEqual({ charged: true });
});

async function drained(kind: string, { stores }: old.OldSpool): Promise<void> {
  const expected = await old.expectedOf<Expected>(kind);
  await using spool = createSpool({
    ...stores(),
    transforms: [compress('zstd'), encrypt({ keys: old.KEYS, primary: 'k2' })],
    policies: { default: noRetry(), soon: ladder(['1ms', '1ms']), late: ladder(['3000d']) },
    retention: { delivered: { archive: '3650d' } },
    unhandled: 'leave',
  });
  await using stack = new AsyncDisposableStack();
  await messagesAreAsExpected(spool, expected);
  await recordsAreAsExpected(spool, expected);
  await duplicatesAreKnown(spool);
  const arrivals = new Arrivals(spool);
  await whatIsDueArrives(spool, arrivals, expected);
  const alerts = alertsOf(spool, stack);
  await alerts.round();
  await whatIsReleasedArrives(spool, arrivals, expected);
  // It had fired then, and is known to have; now that nothing is held it begins to end.
  const state = async (): Promise<unknown> => {
    await alerts.round();
    return (await spool.operator({ by: 'ops' }).records.get('alert.state', 'stuck'))?.value;
  };
  await expect.poll(state).toMatchObject({ phase: 'clearing', episode: 1 });
  expect(alerts.told).toEqual([]);
}

async function messagesAreAsExpected(spool: Spool, expected: Expected): Promise<void> {
  for (const { envelope, status, sha256 } of expected.messages) {
    const { id } = envelope;
    expect(await spool.get(id), id).toMatchObject({ envelope, status });
    expect(await digestOf(spool, id), id).toBe(sha256);
  }
  expect(await spool.count()).toEqual(expected.counts);
  expect(await spool.get('removed-hard')).toBeUndefined();
}

async function digestOf(spool: Spool, id: string): Promise<string> {
  const hash = createHash('sha256');
  try {
    for await (const bytes of await spool.body(id)) hash.update(bytes);
  } catch (error) {
    return (error as { readonly code: string }).code;
  }
  return hash.digest('hex');
}

async function recordsAreAsExpected(spool: Spool, expected: Expected): Promise<void> {
  const desk = spool.operator({ by: 'bob' });
  expect(await spool.operator({ by: 'ops' }).audit(0, 1_000)).toEqual(expected.audit);
  expect(await spool.operator({ by: 'ops' }).pauses()).toEqual(expected.pauses);
  expect(await listReplays(desk)).toEqual(expected.replays);
  for (const { id, lines } of expected.reports) {
    const found: object[] = [];
    for await (const line of reportReplay(desk, id)) found.push(line);
    expect(found).toEqual(lines);
  }
  expect([...(await notesOf(desk)).values()]).toEqual(expected.notes);
  expect(await spool.operator({ by: 'ops' }).records.read('dlq.sample', 0, 10)).toEqual(
    expected.log,
  );
  expect(await spool.operator({ by: 'ops' }).records.list('alert.sample')).toEqual(expected.map);
}

async function duplicatesAreKnown(spool: Spool): Promise<void> {
  const again = async (message: object): Promise<unknown> =>
    spool.enqueue({ topic: 'again', ...message });
  expect(await again({ dedupeKey: 'order-4711' })).toMatchObject(duplicateOf('wait-key'));
  expect(await again({ dedupeKey: 'gzip-paid' })).toMatchObject(duplicateOf('gzip-done'));
  expect(await again({ id: 'done-small' })).toMatchObject(duplicateOf('done-small'));
}

function duplicateOf(id: string): object {
  return { id, duplicate: true };
}

async function whatIsDueArrives(
  spool: Spool,
  arrivals: Arrivals,
  { messages }: Expected,
): Promise<void> {
  const now = internalsOf(spool).now();
  const isDue = ({ envelope, status }: Expected['messages'][number]): boolean => {
    if (WAITS_FOR_OPERATOR.has(envelope.id)) return false;
    const isWaiting = status.state === 'incoming' || status.state === 'active';
    return isWaiting || (status.state === 'deferred' && (status.dueAt ?? now) < now);
  };
  const due = messages.filter(isDue);
  expect(due.length).toBeGreaterThanOrEqual(12);
  await spool.start();
  await arrivals.until(due.map(({ envelope }) => envelope.id));
  for (const { envelope, status, sha256 } of due) {
    expect(arrivals.of(envelope.id), envelope.id).toEqual({
      sha256,
      headers: envelope.headers,
      attempt: status.attempts + 1,
      notes: status.notes,
      // The attempt of the process that was killed is known to have been lost.
      lastCode: status.state === 'active' ? 'holder.lost' : status.lastFailure?.code,
    });
  }
  for (const key of ['order-a', 'order-b']) {
    const order = arrivals.order.filter((id) => id.startsWith(key));
    expect(order).toEqual(order.toSorted());
  }
  await arrivals.untilTold(['bounce-operator', 'bounce-expired']);
  for (const id of WAITS_FOR_OPERATOR) expect(arrivals.of(id), id).toBeUndefined();
}

/** A held one goes on where it was; what had ended begins anew. */
async function whatIsReleasedArrives(
  spool: Spool,
  arrivals: Arrivals,
  expected: Expected,
): Promise<void> {
  const left = expected.messages.filter(
    ({ envelope: { id } }) => arrivals.of(id) === undefined && !LET_GO.has(id),
  );
  const idsIn = (...states: string[]): string[] =>
    left.filter(({ status }) => states.includes(status.state)).map(({ envelope }) => envelope.id);
  const desk = spool.operator({ by: 'bob' });
  const planned = expected.replays.filter(({ state }) => state === 'planned');
  expect(planned).toHaveLength(1);
  const letters = createSpoolLetters(desk, { kinds: ['dead'] });
  for (const { id } of planned) {
    expect(await runReplay(desk, letters, id)).toMatchObject({ state: 'done' });
  }
  await letters.close();
  await spool.operator({ by: 'ops' }).resume('paused.#');
  const held = idsIn('hold');
  expect(await spool.operator({ by: 'ops' }).release(held)).toEqual(
    held.map((id) => ({ id, result: 'done' })),
  );
  const others = idsIn('deferred', 'bounce', 'archived').filter((id) => id !== 'replay-3');
  expect(await spool.operator({ by: 'ops' }).retry(others)).toEqual(
    others.map((id) => ({ id, result: 'done' })),
  );
  await arrivals.until(left.map(({ envelope }) => envelope.id));
  for (const { envelope, status, sha256 } of left) {
    const isGoingOn = ['incoming', 'hold', 'deferred'].includes(status.state);
    expect(arrivals.of(envelope.id), envelope.id).toMatchObject({
      sha256,
      headers: envelope.headers,
      attempt: isGoingOn ? status.attempts + 1 : 1,
      notes: status.notes,
    });
  }
  expect(arrivals.of('replay-3')?.headers['respool-replay']).toBe(planned[0]?.id);
  await expect
    .poll(() => spool.count())
    .toEqual({
      incoming: 0,
      active: 0,
      deferred: 0,
      hold: 0,
      bounce: 0,
      archived: expected.messages.length,
    });
}

/** Everything that handlers were given. */
class Arrivals {
  readonly order: string[] = [];
  readonly #all = new Map<string, Arrival>();
  readonly #told = new Set<string>();

  constructor(spool: Spool) {
    spool.handle('#', async (delivery) => {
      const { id, headers, attempt, notes, lastFailure } = delivery;
      const sha256 = createHash('sha256')
        .update(await delivery.body())
        .digest('hex');
      this.order.push(id);
      this.#all.set(id, { sha256, headers, attempt, notes, lastCode: lastFailure?.code });
    });
    spool.onBounce('#', ({ id }) => {
      this.#told.add(id);
    });
  }

  of(id: string): Arrival | undefined {
    return this.#all.get(id);
  }

  /** Waits until all have come; else says which have not. */
  async until(ids: readonly string[]): Promise<void> {
    await expect.poll(() => ids.filter((id) => !this.#all.has(id))).toEqual([]);
  }

  async untilTold(ids: readonly string[]): Promise<void> {
    await expect.poll(() => ids.filter((id) => !this.#told.has(id))).toEqual([]);
  }
}

/** The rule that had fired, looked at by another process. */
function alertsOf(spool: Spool, stack: AsyncDisposableStack) {
  const rules = [{ name: 'stuck', when: parseCondition('count held > 0'), to: [], actions: [] }];
  const wanted = rules.map(({ when }) => when.measure);
  const measures = createMeasures({ spool: internalsOf(spool), clock: systemClock, wanted });
  const told: SpoolEvent[] = [];
  const alerts = createAlerts({
    rules,
    everyMs: 15_000,
    clock: systemClock,
    now: () => internalsOf(spool).now(),
    name: 'two',
    records: spool.operator({ by: 'ops' }).records,
    enqueue: (message) => spool.enqueue(message),
    measures,
    receivers: new Map(),
    act: () => Promise.resolve(),
    tell: (event) => void told.push(event),
  });
  stack.defer(async () => {
    await alerts.stop();
    measures.close();
  });
  return { round: () => alerts.round(), told };
}

/** Two of three are due; they come with their bodies and headers. */
async function sentOn(outbox: Pick<Outbox | SqliteOutbox, 'relay' | 'spool'>): Promise<void> {
  const sent = new Map<string, { topic: string; text: string; headers: object }>();
  const both = Promise.withResolvers<void>();
  await using relay = outbox.relay({
    to: {
      deliver: async (delivery) => {
        const { id, topic, headers } = delivery;
        sent.set(id, { topic, headers, text: await delivery.text() });
        if (sent.size === 2) both.resolve();
      },
    },
  });
  await relay.start();
  await both.promise;
  await relay.stop();
  expect(sent.get('emit-1')).toMatchObject({ topic: 'order.created', text: '{"order":1}' });
  expect(sent.get('emit-2')).toMatchObject({
    topic: 'order.paid',
    text: 'paid',
    headers: { tenant: 'acme' },
  });
  expect(await outbox.spool.get('emit-3')).toMatchObject({
    envelope: { topic: 'order.late', eta: Date.UTC(2035, 0, 1) },
    status: { state: 'deferred' },
  });
}
