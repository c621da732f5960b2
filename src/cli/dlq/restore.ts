/**
 * restore — brings back what was removed: copies that were kept of messages of queues are published
 * into their queues again, messages of the spool go on hold.
 *
 *   kept copy ─▶ published, confirmed ─▶ removed from the archive
 *   archived as removed ─▶ hold, from where release or retry sends it
 *
 * On hold, because who undoes a removal did not ask for a delivery. Promise: a copy is given up
 * only when the broker has the message; whoever kills us in between leaves both.
 */

import type { Control } from '../../control/control.ts';
import { asError, show, textOf } from '../../core/errors.ts';
import { compileGlob, type Glob } from '../../core/glob.ts';
import { AMQP_HEADER, ORIGINAL_HEADER } from '../../core/letter-headers.ts';
import { ID_PATTERN } from '../../core/limits.ts';
import { KEPT_QUEUE_HEADER, restoreKept } from '../../rabbit/dead/kept.ts';
import { Outlet } from '../../rabbit/outlet.ts';
import type { ListFilter } from '../../spool/list.ts';
import { ask } from '../ask.ts';
import { CommandError, EXIT, type ExitCode } from '../exit-codes.ts';
import type { SeenEntry } from '../message-view.ts';
import { usageOf } from '../options.ts';
import { moveWith } from '../rabbit/moving.ts';
import { numberText, safe } from '../safe.ts';
import { type LettersContext, reachBroker } from './places.ts';
import { idsOf } from './typed.ts';

const PAGE_MAX = 500;
/** Brought back together. */
const BATCH_MAX = 100;
const BATCH_MAX_BYTES = 16 * 2 ** 20;
/** Copies that one call brings back. */
const RESTORED_MAX = 100_000;
const LIMIT = { min: 1, max: RESTORED_MAX };

/** What became of one. */
interface Restored {
  readonly id: string;
  readonly result: 'done' | 'refused' | 'unknown';
  /** The queue that it is in again, or the state of the spool. */
  readonly to?: string;
  readonly why?: string;
}

/** Brings back what was removed, by ids or by queue. */
export async function restore(context: LettersContext): Promise<ExitCode> {
  const { args, options, out } = context;
  const patterns = options.texts('queue');
  if (args.length > 0 === patterns.length > 0) {
    throw new CommandError(
      'usage.invalid',
      'say what to restore: ids, - for ids from stdin, or --queue for what was kept of a queue',
    );
  }
  const globs = patterns.map((pattern) => usageOf(() => compileGlob(pattern)));
  const ids = await idsOf(context);
  const limit = options.number('limit', LIMIT) ?? RESTORED_MAX;
  const { control } = await context.desk();
  const { found, unknown } =
    globs.length > 0
      ? { found: await keptOf(control, globs, limit), unknown: [] }
      : await namedOf(control, ids.slice(0, limit));
  if (options.flag('dryRun')) {
    if (out.json) await out.object({ action: 'restore', count: found.length, dryRun: true });
    else await out.line(`would restore ${letters(found.length)}`);
    return EXIT.done;
  }
  if (globs.length > 0 && found.length > 0) {
    await ask(context, `restore ${letters(found.length)}?`);
  }
  if (found.length > 0) {
    const about = globs.length > 0 ? { queues: patterns } : { ids };
    await control.recordAction('dlq.restore', { ...about, count: found.length });
  }
  const results: Restored[] = unknown.map((id) => ({ id, result: 'unknown' }));
  const put = putter(context);
  await moveWith(context, found.length, async (signal, onProgress) => {
    let moved = 0;
    for (const batch of batchesOf(found)) {
      if (signal.aborted) return;
      results.push(...(await restoreBatch(control, batch, put)));
      moved += batch.length;
      onProgress({ queue: '', moved, skipped: 0, total: found.length });
    }
  });
  return tell(context, results);
}

/** So many, and so many bytes of bodies, as may be in memory at once. */
function* batchesOf(entries: readonly SeenEntry[]): Generator<readonly SeenEntry[]> {
  let batch: SeenEntry[] = [];
  let bytes = 0;
  for (const entry of entries) {
    const { size } = entry.envelope.body;
    if (batch.length >= BATCH_MAX || (batch.length > 0 && bytes + size > BATCH_MAX_BYTES)) {
      yield batch;
      batch = [];
      bytes = 0;
    }
    batch.push(entry);
    bytes += size;
  }
  if (batch.length > 0) yield batch;
}

/** A message on its way back into its queue; the broker is reached at the first. */
type Put = (copy: Parameters<typeof restoreKept>[0]) => Promise<void>;

function putter(context: LettersContext): Put {
  let outlet: Promise<Outlet> | undefined;
  const open = async (): Promise<Outlet> => {
    const { connection } = await reachBroker(context);
    const opened = new Outlet(connection.publishing, context.io.clock);
    context.atEnd(() => opened.close());
    return opened;
  };
  return async (copy) => restoreKept(copy, await (outlet ??= open()));
}

async function restoreBatch(
  control: Control,
  batch: readonly SeenEntry[],
  put: Put,
): Promise<readonly Restored[]> {
  const isCopy = ({ envelope }: SeenEntry): boolean => Object.hasOwn(envelope.headers, AMQP_HEADER);
  const copies = batch.filter(isCopy);
  const own = batch.filter((entry) => !isCopy(entry));
  return [...(await putBack(control, copies, put)), ...(await holdAll(control, own))];
}

/** Into their queues in the order in which they were removed; given up when the broker has them. */
async function putBack(
  control: Control,
  copies: readonly SeenEntry[],
  put: Put,
): Promise<readonly Restored[]> {
  const bodies = await Promise.all(copies.map(({ envelope }) => bodyOf(control, envelope.id)));
  const sent = await Promise.all(
    copies.map(async ({ envelope: { id, headers } }, at): Promise<Restored> => {
      const to = headers[KEPT_QUEUE_HEADER] ?? '';
      const body = bodies[at];
      if (body instanceof Error) return refused(id, body);
      try {
        await put({ headers, body: body ?? new Uint8Array() });
        return { id, result: 'done', to };
      } catch (error) {
        return refused(id, error);
      }
    }),
  );
  const ids = sent.filter(({ result }) => result === 'done').map(({ id }) => id);
  if (ids.length === 0) return sent;
  const removed = await control.remove(ids, { hard: true, reason: 'restored to its queue' });
  const kept = new Map(removed.map((one) => [one.id, one]));
  return sent.map((one) => {
    const { result, why } = kept.get(one.id) ?? {};
    if (result !== 'refused') return one;
    const text = `${show(one.id)} is in its queue again, and its copy cannot be removed: `;
    return { ...one, result, why: text + (why ?? '') };
  });
}

function refused(id: string, error: unknown): Restored {
  return { id, result: 'refused', why: `cannot restore ${show(id)}: ${textOf(error)}` };
}

async function holdAll(
  control: Control,
  entries: readonly SeenEntry[],
): Promise<readonly Restored[]> {
  const isRemoved = ({ status: { state, ending } }: SeenEntry): boolean =>
    state === 'archived' && ending === 'removed';
  const others = entries.filter((entry) => !isRemoved(entry));
  const not = others.map(({ envelope, status }) =>
    refused(envelope.id, `it was not removed, it is ${endOf(status)}`),
  );
  const ids = entries.filter(isRemoved).map(({ envelope }) => envelope.id);
  if (ids.length === 0) return not;
  const held = await control.hold(ids, 'restored by an operator');
  return [...held.map((one) => (one.result === 'done' ? { ...one, to: 'hold' } : one)), ...not];
}

function endOf({ state, ending }: SeenEntry['status']): string {
  return state === 'archived' && ending !== undefined ? `${state} as ${ending}` : state;
}

/** One that cannot be read does not keep the others away. */
async function bodyOf(control: Control, id: string): Promise<Uint8Array | Error> {
  const pieces: Uint8Array[] = [];
  try {
    for await (const piece of await control.body(id)) pieces.push(piece);
    return Buffer.concat(pieces);
  } catch (error) {
    return asError(error);
  }
}

/** The copies of messages of these queues, in the order in which they were removed. */
async function keptOf(
  control: Control,
  globs: readonly Glob[],
  limit: number,
): Promise<readonly SeenEntry[]> {
  const found: SeenEntry[] = [];
  for await (const entry of archived(control, { header: { name: KEPT_QUEUE_HEADER } })) {
    const queue = entry.envelope.headers[KEPT_QUEUE_HEADER] ?? '';
    if (!globs.some((glob) => glob.match(queue) !== undefined)) continue;
    found.push(entry);
    if (found.length === limit) break;
  }
  return found;
}

/** By the id of the entry, or by that of the message of a queue that it is a copy of. */
async function namedOf(
  control: Control,
  ids: readonly string[],
): Promise<{ readonly found: readonly SeenEntry[]; readonly unknown: readonly string[] }> {
  const found: SeenEntry[] = [];
  const unknown: string[] = [];
  for (const id of ids) {
    const entry = ID_PATTERN.test(id) ? await control.get(id) : undefined;
    const copies = entry === undefined ? await copiesOf(control, id) : [entry];
    found.push(...copies);
    if (copies.length === 0) unknown.push(id);
  }
  return { found, unknown };
}

async function copiesOf(control: Control, id: string): Promise<readonly SeenEntry[]> {
  const copies: SeenEntry[] = [];
  const header = { name: ORIGINAL_HEADER, value: id };
  for await (const entry of archived(control, { header })) copies.push(entry);
  return copies;
}

async function* archived(control: Control, filter: ListFilter): AsyncGenerator<SeenEntry> {
  let after: string | undefined;
  do {
    const page = await control.page({
      ...filter,
      state: 'archived',
      limit: PAGE_MAX,
      ...(after === undefined ? {} : { after }),
    });
    yield* page.entries;
    after = page.next;
  } while (after !== undefined);
}

async function tell({ out }: LettersContext, results: readonly Restored[]): Promise<ExitCode> {
  const count = (what: Restored['result']): number =>
    results.filter(({ result }) => result === what).length;
  const [done, refused, unknown] = [count('done'), count('refused'), count('unknown')];
  if (out.json) for (const one of results) await out.object(one);
  else {
    for (const { id, result, why } of results) {
      if (result === 'unknown') out.note(`there is no letter "${safe(id)}" in the archive`);
      if (result === 'refused') out.note(safe(why ?? `refused: ${id}`));
    }
    const parts = [`restored ${numberText(done)}`];
    if (refused > 0) parts.push(`refused ${numberText(refused)}`);
    if (unknown > 0) parts.push(`unknown ${numberText(unknown)}`);
    await out.line(
      results.length === 0 ? 'nothing was kept there; nothing to do' : parts.join(', '),
    );
  }
  return refused + unknown > 0 ? EXIT.refused : EXIT.done;
}

function letters(count: number): string {
  return count === 1 ? '1 letter' : `${numberText(count)} letters`;
}
