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
import { show, textOf } from '../../core/errors.ts';
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
    for (const entry of found) {
      if (signal.aborted) return;
      results.push(await restoreOne(control, entry, put));
      onProgress({ queue: '', moved: results.length, skipped: 0, total: found.length });
    }
  });
  return tell(context, results);
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

async function restoreOne(control: Control, entry: SeenEntry, put: Put): Promise<Restored> {
  const { id, headers } = entry.envelope;
  if (!Object.hasOwn(headers, AMQP_HEADER)) return holdOne(control, entry);
  const to = headers[KEPT_QUEUE_HEADER] ?? '';
  try {
    await put({ headers, body: await bodyOf(control, id) });
  } catch (error) {
    return { id, result: 'refused', why: `cannot restore ${show(id)}: ${textOf(error)}` };
  }
  const [removed] = await control.remove([id], { hard: true, reason: `restored to ${show(to)}` });
  if (removed?.result !== 'refused') return { id, result: 'done', to };
  const why = `${show(id)} is in ${show(to)} again, and its copy could not be removed: `;
  return { id, result: 'refused', to, why: why + (removed.why ?? '') };
}

async function holdOne(control: Control, { envelope, status }: SeenEntry): Promise<Restored> {
  const { id } = envelope;
  if (status.state !== 'archived' || status.ending !== 'removed') {
    const why = `cannot restore ${show(id)}: it was not removed, it is ${endOf(status)}`;
    return { id, result: 'refused', why };
  }
  const [held] = await control.hold([id], 'restored by an operator');
  if (held === undefined || held.result === 'done') return { id, result: 'done', to: 'hold' };
  return { id, result: held.result, ...(held.why === undefined ? {} : { why: held.why }) };
}

function endOf({ state, ending }: SeenEntry['status']): string {
  return state === 'archived' && ending !== undefined ? `${state} as ${ending}` : state;
}

async function bodyOf(control: Control, id: string): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  for await (const piece of await control.body(id)) pieces.push(piece);
  return Buffer.concat(pieces);
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
