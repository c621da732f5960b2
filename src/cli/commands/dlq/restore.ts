/**
 * restore — brings back what was removed: copies that were kept of messages of queues are published
 * into their queues again, messages of the spool go on hold.
 *
 *   kept copy ─▶ published, confirmed ─▶ removed from the archive
 *   archived as removed ─▶ hold, from where retry sends it; release makes a bounce a bounce
 *
 * On hold, because undoing a removal does not ask for a delivery. Promise: a copy is given up
 * only when the broker has the message; a kill before that leaves both. What was removed
 * at another broker is left in the archive, unless told otherwise.
 */

import type { Broker } from '../../../config/load/brokers.ts';
import { asError, isRespoolError, RespoolError, show, textOf } from '../../../core/errors.ts';
import { compileGlob, type Glob } from '../../../core/glob.ts';
import {
  AMQP_HEADER,
  BROKER_HEADER,
  KEPT_COPY_CODE,
  ORIGINAL_HEADER,
  REMOVED_REASON_PREFIX,
} from '../../../core/reserved-headers.ts';
import { ID_PATTERN } from '../../../core/limits.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { Operator } from '../../../spool/operator/operator.ts';
import type { AmqpConnection } from '../../../rabbit/connection/amqp.ts';
import { ConfirmPublisher } from '../../../rabbit/publish/confirm-publisher.ts';
import { ARCHIVED_QUEUE_HEADER, restoreArchived } from '../../../rabbit/queues/letter-copy.ts';
import { lockQueue } from '../../../rabbit/queues/lock.ts';
import { CommandError, EXIT, type ExitCode } from '../../exit-codes.ts';
import { usageOf } from '../../options.ts';
import { ask } from '../../ui/confirm.ts';
import type { SeenEntry } from '../../ui/message-view.ts';
import { moveWith } from '../../ui/progress.ts';
import { brokerFor, type LettersContext, reachBroker } from './letter-places.ts';
import { recordWithIds, spoolIdsOf } from './typed-ids.ts';

/** Letters that are brought back together, and bytes of their bodies; one may be longer. */
const BATCH_MAX = 100;
const BATCH_MAX_BYTES = 16 * 2 ** 20;
/** Copies that one call brings back. Also in docs/reference/dead-letters.md. */
const RESTORED_MAX = 100_000;
const LIMIT = { min: 1, max: RESTORED_MAX };
/** Not the lock of the queue itself: a sweep or a replay may go on beside a restore. */
const LOCK_PREFIX = 'restore.';

/** Brings back what was removed, by ids or by queue. */
export async function restore(context: LettersContext): Promise<ExitCode> {
  const { args, options, out } = context;
  const patterns = options.texts('queue');
  if (args.length > 0 === patterns.length > 0) {
    throw new CommandError(
      'usage.invalid',
      'say what to restore: either ids, - for ids from stdin, or --queue for letters ' +
        'removed from a queue',
    );
  }
  const globs = patterns.map((pattern) => usageOf(() => compileGlob(pattern)));
  const limit = options.number('limit', LIMIT) ?? RESTORED_MAX;
  const ids = (await spoolIdsOf(context)).slice(0, limit);
  const { operator } = await context.session();
  const { found, not } =
    globs.length > 0
      ? await archivedOfQueues(operator, globs, limit)
      : await archivedByIds(operator, ids, limit);
  if (options.flag('dryRun')) {
    if (out.json) await out.object({ action: 'restore', count: found.length, dryRun: true });
    else await out.line(`would restore ${letters(found.length)}`);
    return EXIT.done;
  }
  if (globs.length > 0 && found.length > 0) {
    await ask(context, `restore ${letters(found.length)}?`);
  }
  const put = await putter(context, found);
  if (found.length > 0) {
    const about = globs.length > 0 ? { queues: patterns } : { ids };
    await recordWithIds(operator, 'dlq.restore', { ...about, count: found.length });
  }
  const results: Restored[] = [...not];
  await moveWith(context, found.length, async (signal, onProgress) => {
    let moved = 0;
    for (const batch of batchesOf(found)) {
      if (signal.aborted) return;
      results.push(...(await restoreBatch(operator, batch, put)));
      moved += batch.length;
      onProgress({ queue: '', moved, skipped: 0, total: found.length });
    }
  });
  return tell(context, results);
}

/** Batches with limited copies and body bytes, to bound memory. */
function* batchesOf(all: readonly ArchivedCopy[]): Generator<readonly ArchivedCopy[]> {
  let batch: ArchivedCopy[] = [];
  let bytes = 0;
  for (const kept of all) {
    if (batch.length >= BATCH_MAX || (batch.length > 0 && bytes + kept.size > BATCH_MAX_BYTES)) {
      yield batch;
      batch = [];
      bytes = 0;
    }
    batch.push(kept);
    bytes += kept.size;
  }
  if (batch.length > 0) yield batch;
}

/** A message on its way back into its queue. */
type Put = (copy: Parameters<typeof restoreArchived>[0]) => Promise<void>;

/** Where copies of one queue go, or why they cannot. */
type QueuePublisher = ConfirmPublisher | RespoolError;

/**
 * Reaches every broker that is needed, before anything is done, and takes the queues for itself:
 * two restores at once would publish the same copies. What blocks one queue is reported with each
 * of its copies.
 */
async function putter(context: LettersContext, copies: readonly ArchivedCopy[]): Promise<Put> {
  const isAny = context.options.flag('anyBroker');
  const reached = new Map<Broker['url'], ReachedBroker>();
  const publishers = new Map<string, QueuePublisher>();
  for (const { isCopy: isOfQueue, broker, queue } of copies) {
    const name = queueAt(queue, broker);
    if (!isOfQueue || publishers.has(name)) continue;
    publishers.set(
      name,
      await publisherFor(context, reached, { queue, broker: isAny ? undefined : broker }),
    );
  }
  return async (copy) => {
    const { [ARCHIVED_QUEUE_HEADER]: queue = '', [BROKER_HEADER]: broker } = copy.headers;
    const publisher = publishers.get(queueAt(queue, broker));
    if (publisher === undefined) throw refusal('it was changed meanwhile; run it again');
    if (publisher instanceof RespoolError) throw publisher;
    await restoreArchived(copy, publisher);
  };
}

function queueAt(queue: string, broker: string | undefined): string {
  return JSON.stringify([queue, broker]);
}

/** A broker that was reached. */
interface ReachedBroker {
  readonly publisher: ConfirmPublisher;
  readonly amqp: AmqpConnection;
  /** Queues that are ours already. */
  readonly queues: Set<string>;
}

async function publisherFor(
  context: LettersContext,
  reached: Map<Broker['url'], ReachedBroker>,
  { queue, broker }: Pick<ArchivedCopy, 'queue' | 'broker'>,
): Promise<QueuePublisher> {
  const there = await brokerFor(context, broker).catch((error: unknown) => {
    if (isRespoolError(error, 'move.refused')) return error;
    throw error;
  });
  if (there instanceof RespoolError) return there;
  const at = reached.get(there.url) ?? (await openPublisher(context, there));
  reached.set(there.url, at);
  if (at.queues.has(queue)) return at.publisher;
  const lock = await lockQueue(at.amqp, `${LOCK_PREFIX}${queue}`);
  if (lock === 'elsewhere') {
    return refusal('another restore puts letters into its queue; wait until that one is done');
  }
  context.atEnd(() => lock.release());
  at.queues.add(queue);
  return at.publisher;
}

async function openPublisher(context: LettersContext, broker: Broker): Promise<ReachedBroker> {
  const { connection, amqp } = await reachBroker(context, broker);
  const publisher = new ConfirmPublisher(connection.publishing, context.io.clock);
  context.atEnd(() => publisher.close());
  return { publisher, amqp, queues: new Set() };
}

function refusal(text: string): RespoolError {
  return new RespoolError('move.refused', text);
}

/** Reads it again: another process may have been faster. */
async function restoreBatch(
  operator: Operator,
  batch: readonly ArchivedCopy[],
  put: Put,
): Promise<readonly Restored[]> {
  const ids = batch.map(({ id }) => id);
  const entries = await entriesOf(operator, ids);
  const gone = ids.filter((id) => !entries.has(id));
  const there = ids.flatMap((id) => entries.get(id) ?? []);
  return [
    ...gone.map((id): Restored => ({ id, result: 'unknown' })),
    ...(await putBack(operator, there.filter(isCopy), put)),
    ...(await holdAll(
      operator,
      there.filter((entry) => !isCopy(entry)),
    )),
  ];
}

/** Publishes them in their order; a copy is given up when the broker has its message. */
async function putBack(
  operator: Operator,
  copies: readonly SeenEntry[],
  put: Put,
): Promise<readonly Restored[]> {
  const bodies = await Promise.all(copies.map(({ envelope }) => bodyOf(operator, envelope.id)));
  const sent = await Promise.all(
    copies.map(async ({ envelope: { id, headers } }, at): Promise<Restored> => {
      const to = headers[ARCHIVED_QUEUE_HEADER] ?? '';
      const body = bodies[at];
      if (body instanceof Error) return refusalOutcome(id, textOf(body));
      try {
        await put({ headers, body: body ?? new Uint8Array() });
        return { id, result: 'done', to };
      } catch (error) {
        return refusalOutcome(id, textOf(error));
      }
    }),
  );
  const ids = sent.filter(({ result }) => result === 'done').map(({ id }) => id);
  if (ids.length === 0) return sent;
  const removed = await operator.remove(ids, { hard: true, reason: 'restored to its queue' });
  const kept = new Map(removed.map((one) => [one.id, one]));
  return sent.map((one) => {
    const { result, why } = kept.get(one.id) ?? {};
    if (result !== 'refused') return one;
    const text = `${show(one.id)} is in its queue again, and its copy cannot be removed: `;
    return { ...one, result, why: text + (why ?? '') };
  });
}

async function holdAll(
  operator: Operator,
  entries: readonly SeenEntry[],
): Promise<readonly Restored[]> {
  const not = entries.filter((entry) => !wasRemoved(entry)).map(notRemoved);
  const ids = entries.filter(wasRemoved).map(({ envelope }) => envelope.id);
  if (ids.length === 0) return not;
  const held = await operator.hold(ids, { reason: 'restored by an operator' });
  return [...held.map((one) => (one.result === 'done' ? { ...one, to: 'hold' } : one)), ...not];
}

/** One that cannot be read does not keep the others away. */
async function bodyOf(operator: Operator, id: string): Promise<Uint8Array | Error> {
  const pieces: Uint8Array[] = [];
  try {
    for await (const piece of await operator.body(id)) pieces.push(piece);
    return Buffer.concat(pieces);
  } catch (error) {
    return asError(error);
  }
}

async function tell({ out }: LettersContext, results: readonly Restored[]): Promise<ExitCode> {
  const count = (what: Restored['result']): number =>
    results.filter(({ result }) => result === what).length;
  const [done, not, unknown] = [count('done'), count('refused'), count('unknown')];
  if (out.json) for (const one of results) await out.object(one);
  else {
    for (const { id, result, why } of results) {
      if (result === 'unknown') out.note(`there is no letter "${safe(id)}" in the archive`);
      if (result === 'refused') out.note(safe(why ?? `refused: ${id}`));
    }
    const parts = [`restored ${numberText(done)}`];
    if (not > 0) parts.push(`refused ${numberText(not)}`);
    if (unknown > 0) parts.push(`unknown ${numberText(unknown)}`);
    await out.line(
      results.length === 0 ? 'nothing was kept there; nothing to do' : parts.join(', '),
    );
  }
  return not + unknown > 0 ? EXIT.refused : EXIT.done;
}

function letters(count: number): string {
  return count === 1 ? '1 letter' : `${numberText(count)} letters`;
}

// What can be brought back, found in the archive by ids or by queues.
//
// Headers are compared here, not by the store: a sealed one cannot search them. Promise: each is
// found once, however often it is named; and the original of a letter that a replay changed only
// by its own id in the archive, for that letter was sent, and not removed.

/** What became of one. */
interface Restored {
  readonly id: string;
  readonly result: 'done' | 'refused' | 'unknown';
  /** The queue that it is in again, or the state of the spool. */
  readonly to?: string;
  readonly why?: string;
}

/** One that can be brought back; read in full when its turn comes. */
interface ArchivedCopy {
  readonly id: string;
  readonly size: number;
  /** A copy of a message of a queue; which one, and the broker where it is known. */
  readonly isCopy: boolean;
  readonly queue: string;
  readonly broker: string | undefined;
}

/** What was found, and what of the asked cannot be brought back. */
interface FoundArchivedCopy {
  readonly found: readonly ArchivedCopy[];
  readonly not: readonly Restored[];
}

const PAGE_MAX = 500;

/** What was removed from these queues, in the order in which it was. */
async function archivedOfQueues(
  operator: Operator,
  globs: readonly Glob[],
  limit: number,
): Promise<FoundArchivedCopy> {
  const found: ArchivedCopy[] = [];
  for await (const entry of keptCopies(operator)) {
    const queue = headerOf(entry, ARCHIVED_QUEUE_HEADER);
    if (queue === undefined || !isOfRemoval(entry)) continue;
    if (!globs.some((glob) => glob.match(queue) !== undefined)) continue;
    found.push(keptOf(entry));
    if (found.length === limit) break;
  }
  return { found, not: [] };
}

/** By the id of the entry, or by that of the letter that it is a copy of: there may be several. */
async function archivedByIds(
  operator: Operator,
  ids: readonly string[],
  limit: number,
): Promise<FoundArchivedCopy> {
  const own = await entriesOf(operator, ids);
  const found = new Map<string, ArchivedCopy>();
  for (const entry of own.values()) {
    if (isCopy(entry) || wasRemoved(entry)) found.set(entry.envelope.id, keptOf(entry));
  }
  const named = new Set(ids);
  const removed = new Set<string>();
  const changed = new Map<string, SeenEntry>();
  for await (const entry of keptCopies(operator)) {
    const original = headerOf(entry, ORIGINAL_HEADER);
    if (original === undefined || !named.has(original)) continue;
    if (isOfRemoval(entry)) {
      removed.add(original);
      found.set(entry.envelope.id, keptOf(entry));
    } else if (!changed.has(original)) changed.set(original, entry);
  }
  const not = [...named]
    .filter((id) => !found.has(id) && !removed.has(id))
    .map((id) => notRestored(id, own.get(id), changed.get(id)));
  return { found: [...found.values()].slice(0, limit), not };
}

/** These entries as they are now, by id. */
async function entriesOf(
  operator: Operator,
  ids: readonly string[],
): Promise<ReadonlyMap<string, SeenEntry>> {
  const found = new Map<string, SeenEntry>();
  const possible = [...new Set(ids)].filter((id) => ID_PATTERN.test(id));
  for (let from = 0; from < possible.length; from += PAGE_MAX) {
    const some = possible.slice(from, from + PAGE_MAX);
    const { entries } = await operator.page({ ids: some, limit: PAGE_MAX });
    for (const entry of entries) found.set(entry.envelope.id, entry);
  }
  return found;
}

/** Whether it is a copy of a message of a queue. */
function isCopy(entry: SeenEntry): boolean {
  return headerOf(entry, AMQP_HEADER) !== undefined;
}

/** Whether a message of the spool is in the archive because it was removed. */
function wasRemoved({ status: { state, ending } }: SeenEntry): boolean {
  return state === 'archived' && ending === 'removed';
}

/** Why a message of the spool is not brought back. */
function notRemoved({ envelope, status: { state, ending } }: SeenEntry): Restored {
  const end = state === 'archived' && ending !== undefined ? `${state} as ${ending}` : state;
  return refusalOutcome(envelope.id, `it was not removed, it is ${end}`);
}

function refusalOutcome(id: string, why: string): Restored {
  return { id, result: 'refused', why: `cannot restore ${show(id)}: ${why}` };
}

function notRestored(
  id: string,
  own: SeenEntry | undefined,
  changed: SeenEntry | undefined,
): Restored {
  if (changed !== undefined) {
    const why = changed.status.because?.text ?? 'changed';
    const name = show(changed.envelope.id);
    return refusalOutcome(
      id,
      `it was not removed, it was ${why}; its original is ${name}: name that one`,
    );
  }
  return own === undefined ? { id, result: 'unknown' } : notRemoved(own);
}

/** n.b. Others were kept because a replay changed the letter, and sent it. */
function isOfRemoval({ status: { because } }: SeenEntry): boolean {
  return because?.text.startsWith(REMOVED_REASON_PREFIX) === true;
}

function keptOf(entry: SeenEntry): ArchivedCopy {
  const { id, body } = entry.envelope;
  const queue = headerOf(entry, ARCHIVED_QUEUE_HEADER) ?? '';
  const broker = headerOf(entry, BROKER_HEADER);
  return { id, size: body.size, isCopy: isCopy(entry), queue, broker };
}

function headerOf({ envelope: { headers } }: SeenEntry, name: string): string | undefined {
  return Object.hasOwn(headers, name) ? headers[name] : undefined;
}

/** All copies of the archive, in the order in which they were kept. */
async function* keptCopies(operator: Operator): AsyncGenerator<SeenEntry> {
  let after: string | undefined;
  do {
    const page = await operator.page({
      code: KEPT_COPY_CODE,
      state: 'archived',
      limit: PAGE_MAX,
      ...(after === undefined ? {} : { after }),
    });
    yield* page.entries;
    after = page.next;
  } while (after !== undefined);
}
