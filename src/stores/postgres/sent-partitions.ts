/**
 * sent-partitions — what was delivered, in a table with a part for each span of time; and
 * reading it, page by page.
 *
 *   archived as delivered ─commit─▶ sent, the part of its time ─keep is over─▶ the part is dropped
 *
 * A part that is dropped costs the server nothing, however much is in it; rows that are deleted one
 * by one have to be vacuumed. Partitions are created ahead by each open store with the option
 * `sent`. A message without a partition goes to the default one, so no write fails because a
 * partition is missing.
 */

import type { Millis } from '../../core/duration.ts';
import type { Envelope } from '../../core/entry.ts';
import { RespoolError, show, textOf } from '../../core/errors.ts';
import { checkNames } from '../../core/limits.ts';
import type { Clock } from '../../ports/clock.ts';
import { Values } from './row.ts';
import { allOf, patternSql } from './conditions.ts';
import { codeOf } from './errors.ts';
import type { CheckedOptions, Names } from './options.ts';
import { LOCK_WAIT } from './schema.ts';
import { type QueryRequest, BEGIN_SQL, NOW_SQL, type Server } from './connection.ts';

/** This many parts are there beyond the present one. Also in docs/reference/stores/postgres.md. */
const PARTS_AHEAD = 2;
/**
 * Looked after at least this often, and twice for each part. Also in
 * docs/reference/stores/postgres.md.
 */
const TEND_MAX_MS = 3_600_000;
/** Anyone who commits waits behind us while we wait for a lock, so we do not wait for long. */
const TEND_LOCK_WAIT = '500ms';
/** What stays in the default part for too long is removed in batches of this size. */
const BITE_ROWS = 1_000;
const BITES_MAX = 10;

/**
 * Maximum number of messages in a page, as in cli/commands/outbox/sent-messages.ts. Also in
 * docs/reference/stores/postgres.md.
 */
const PAGE_MAX = 500;

/** Which sent messages to read; all given conditions hold together. */
export interface SentQuery {
  readonly id?: string;
  /** A topic or pattern. */
  readonly topic?: string;
  /** The `next` of the page before. */
  readonly after?: string;
  /** 1 to 500. */
  readonly limit: number;
}

/** A message that was delivered. */
export interface SentMessage {
  readonly sentAt: Millis;
  readonly envelope: Envelope;
  /** As it was stored; absent where it lay in a body store. */
  readonly body?: Uint8Array;
}

/** Sent messages, those that went first at the top. */
export interface SentPage {
  readonly messages: readonly SentMessage[];
  readonly next?: string;
}

/** A part, by the times it holds: from the first up to the second. */
interface Part {
  readonly name: string;
  readonly from: Millis;
  readonly to: Millis;
}

/** Looks after the parts while a store is open. */
export class SentPartitions {
  readonly #server: Server;
  readonly #options: CheckedOptions;
  readonly #clock: Clock;
  #cancel: (() => void) | undefined;
  #tending: Promise<void> = Promise.resolve();
  #isOpen = false;

  constructor(server: Server, options: CheckedOptions, clock: Clock) {
    this.#server = server;
    this.#options = options;
    this.#clock = clock;
  }

  async open(): Promise<void> {
    if (this.#options.sent === undefined) return;
    this.#isOpen = true;
    await this.#tend(LOCK_WAIT);
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    this.#cancel?.();
    await this.#tending;
  }

  /** Never fails: without a part of its own a message goes to the default one. */
  async #tend(lockWait: string): Promise<void> {
    const { sent, names, logger } = this.#options;
    if (sent === undefined) return;
    const now = this.#clock.now();
    try {
      await this.#server.run('make room for sent messages', (ask) =>
        makeParts(ask, names, { now, partMs: sent.partMs, lockWait }),
      );
      await this.#server.run('drop old sent messages', async (ask) => {
        // A machine whose clock is ahead must not drop what is still to be kept.
        const [[serverNow] = []] = await ask(NOW_SQL);
        const before = Math.min(now, Number(serverNow)) - sent.keepMs;
        await dropParts(ask, names, { before, lockWait: TEND_LOCK_WAIT });
      });
    } catch (error) {
      logger?.warn(
        { store: 'postgres', schema: names.schema, reason: textOf(error) },
        'parts of the table of sent messages could not be made or dropped; it is tried again. ' +
          'The role has to own the table, and may have to create tables in its schema',
      );
    }
    if (!this.#isOpen) return;
    const pauseMs = Math.min(TEND_MAX_MS, Math.ceil(sent.partMs / 2));
    this.#cancel = this.#clock.after(pauseMs, () => {
      this.#tending = this.#tend(TEND_LOCK_WAIT);
    });
  }
}

/** One process at a time; the second one finds it done. */
async function begin(ask: QueryRequest, names: Names, lockWait: string): Promise<void> {
  await ask(BEGIN_SQL);
  await ask("SELECT set_config('lock_timeout', $1, true)", [lockWait]);
  await ask('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [`${names.lockKey}:sent`]);
}

async function makeParts(
  ask: QueryRequest,
  names: Names,
  want: { readonly now: Millis; readonly partMs: number; readonly lockWait: string },
): Promise<void> {
  const { partMs, now } = want;
  const missing = missingParts(await partsOf(ask, names), now, partMs);
  if (missing.length === 0) return;
  await begin(ask, names, want.lockWait);
  // Asked again: another process may have been first.
  for (const { from, to } of missingParts(await partsOf(ask, names), now, partMs)) {
    // What is in the default part already stays there, and so does what comes beside it.
    const [[isTaken] = []] = await ask(
      `SELECT EXISTS (SELECT FROM ${names.table.sent_default}
  WHERE sent_at >= $1::int8 AND sent_at < $2::int8)`,
      [from, to],
    );
    if (isTaken !== true) await ask(partSql(names, { from, to }));
  }
  await ask('COMMIT');
}

/** n.b. Attached, not made as a part: that would stop all who commit. */
function partSql({ quotedSchema, index, table }: Names, { from, to }: Omit<Part, 'name'>): string {
  const part = `${quotedSchema}.${index(`sent_${from}`)}`;
  return `CREATE TABLE ${part} (LIKE ${table.sent} INCLUDING ALL);
ALTER TABLE ${table.sent} ATTACH PARTITION ${part} FOR VALUES FROM (${from}) TO (${to});`;
}

/** Spans without a part, from the present one on; where the width was changed, what is between. */
function missingParts(parts: readonly Part[], now: Millis, partMs: number): Omit<Part, 'name'>[] {
  const missing: Omit<Part, 'name'>[] = [];
  const end = now - (now % partMs) + (1 + PARTS_AHEAD) * partMs;
  let from = now - (now % partMs);
  while (from < end) {
    const start = from;
    const here = parts.find((part) => part.from <= start && start < part.to);
    if (here !== undefined) {
      from = here.to;
      continue;
    }
    const next = start - (start % partMs) + partMs;
    const to = Math.min(next, ...parts.flatMap((part) => (part.from > start ? part.from : [])));
    missing.push({ from: start, to });
    from = to;
  }
  return missing;
}

async function dropParts(
  ask: QueryRequest,
  names: Names,
  { before, lockWait }: { readonly before: Millis; readonly lockWait: string },
): Promise<void> {
  const isOld = ({ to }: Part): boolean => to <= before;
  if ((await partsOf(ask, names)).some(isOld)) {
    try {
      await begin(ask, names, lockWait);
      for (const { name } of (await partsOf(ask, names)).filter(isOld)) {
        await ask(`DROP TABLE ${name}`);
      }
      await ask('COMMIT');
    } catch (error) {
      // Another session reads there. Commits must not wait behind us again: try next time.
      if (codeOf(error) !== '55P03') throw error;
      await ask('ROLLBACK');
    }
  }
  const rest = names.table.sent_default;
  for (let bite = 0; bite < BITES_MAX; bite += 1) {
    const removed = await ask(
      `DELETE FROM ${rest} WHERE ctid = ANY(ARRAY(
  SELECT ctid FROM ${rest} WHERE sent_at < $1::int8 LIMIT ${BITE_ROWS})) RETURNING 1`,
      [before],
    );
    if (removed.length < BITE_ROWS) return;
  }
}

const BOUNDS = /FROM \('(-?\d+)'\) TO \('(-?\d+)'\)/;

/** All parts but the default one. */
async function partsOf(ask: QueryRequest, { table }: Names): Promise<Part[]> {
  const rows = await ask(
    `SELECT i.inhrelid::regclass::text, pg_get_expr(c.relpartbound, c.oid)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = $1::regclass`,
    [table.sent],
  );
  return rows.flatMap(([name, bounds]) => {
    const [, from, to] = BOUNDS.exec(String(bounds)) ?? [];
    if (from === undefined || to === undefined) return [];
    return [{ name: String(name), from: Number(from), to: Number(to) }];
  });
}

/** Reads what was sent. */
export async function sentPage(
  ask: QueryRequest,
  names: Names,
  query: SentQuery,
): Promise<SentPage> {
  const { id, topic, after, limit } = query;
  const { bind, list } = new Values();
  const conditions: string[] = [];
  if (id !== undefined) conditions.push(`id = ${bind(id, 'text')}`);
  if (topic !== undefined) conditions.push(patternSql('topic', topic, bind));
  if (after !== undefined) {
    const [sentAt, last] = readPlace(after);
    conditions.push(`(sent_at, id) > (${bind(sentAt, 'int8')}, ${bind(last, 'text')})`);
  }
  const rows = await ask(
    `SELECT sent_at, id, envelope, body FROM ${names.table.sent} WHERE ${allOf(conditions)}
ORDER BY sent_at, id LIMIT ${limit + 1}`,
    list,
  );
  const page = rows.slice(0, limit);
  const messages = page.map(([sentAt, , envelope, body]) => ({
    sentAt: Number(sentAt),
    envelope: JSON.parse(String(envelope)) as Envelope,
    ...(body === null ? {} : { body: Uint8Array.from(body as Uint8Array) }),
  }));
  const end = page.at(-1);
  if (rows.length <= limit || end === undefined) return { messages };
  return { messages, next: writePlace(Number(end[0]), String(end[1])) };
}

/** Refuses a question that cannot be answered. */
export function checkSentQuery(query: SentQuery): SentQuery {
  checkNames('a page of sent messages', query, ['id', 'topic', 'after', 'limit']);
  const { limit, after } = query;
  if (!Number.isInteger(limit) || limit < 1 || limit > PAGE_MAX) {
    throw new RespoolError(
      'limit.exceeded',
      `cannot read ${show(limit)} sent messages: a page holds 1 to ${PAGE_MAX}; ask for the next ` +
        'page after it',
    );
  }
  if (after !== undefined) readPlace(after);
  return query;
}

function writePlace(sentAt: Millis, id: string): string {
  return Buffer.from(JSON.stringify([sentAt, id])).toString('base64url');
}

function readPlace(text: string): readonly [Millis, string] {
  try {
    const [sentAt, id] = JSON.parse(Buffer.from(text, 'base64url').toString()) as unknown[];
    if (Number.isSafeInteger(sentAt) && typeof id === 'string') return [Number(sentAt), id];
  } catch {
    // Refused below, with what was given.
  }
  throw new RespoolError(
    'config.invalid',
    `cannot read sent messages after ${show(text)}: it is not the "next" of a page`,
  );
}
