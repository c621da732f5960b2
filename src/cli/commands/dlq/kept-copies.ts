/**
 * kept-copies — what can be brought back, found in the archive by ids or by queues.
 *
 * Headers are compared here, not by the store: a sealed one cannot search them. Promise: each is
 * found once, however often it is named; and the original of a letter that a replay changed only
 * by its own id in the archive, for that letter was sent, and not removed.
 */

import type { Control } from '../../../operator/operator.ts';
import { show } from '../../../core/errors.ts';
import type { Glob } from '../../../core/glob.ts';
import {
  AMQP_HEADER,
  BROKER_HEADER,
  KEPT_CODE,
  ORIGINAL_HEADER,
  REMOVED_FROM,
} from '../../../core/letter-headers.ts';
import { ID_PATTERN } from '../../../core/limits.ts';
import { KEPT_QUEUE_HEADER } from '../../../rabbit/queues/archive-copy.ts';
import type { SeenEntry } from '../../ui/message-view.ts';

/** What became of one. */
export interface Restored {
  readonly id: string;
  readonly result: 'done' | 'refused' | 'unknown';
  /** The queue that it is in again, or the state of the spool. */
  readonly to?: string;
  readonly why?: string;
}

/** One that can be brought back; read in full when its turn comes. */
export interface Kept {
  readonly id: string;
  readonly size: number;
  /** A copy of a message of a queue; which one, and the broker where it is known. */
  readonly isCopy: boolean;
  readonly queue: string;
  readonly broker: string | undefined;
}

/** What was found, and what of the asked cannot be brought back. */
export interface FoundKept {
  readonly found: readonly Kept[];
  readonly not: readonly Restored[];
}

const PAGE_MAX = 500;

/** What was removed from these queues, in the order in which it was. */
export async function keptOfQueues(
  control: Control,
  globs: readonly Glob[],
  limit: number,
): Promise<FoundKept> {
  const found: Kept[] = [];
  for await (const entry of keptCopies(control)) {
    const queue = headerOf(entry, KEPT_QUEUE_HEADER);
    if (queue === undefined || !isOfRemoval(entry)) continue;
    if (!globs.some((glob) => glob.match(queue) !== undefined)) continue;
    found.push(keptOf(entry));
    if (found.length === limit) break;
  }
  return { found, not: [] };
}

/** By the id of the entry, or by that of the letter that it is a copy of: there may be several. */
export async function keptOfIds(
  control: Control,
  ids: readonly string[],
  limit: number,
): Promise<FoundKept> {
  const own = await entriesOf(control, ids);
  const found = new Map<string, Kept>();
  for (const entry of own.values()) {
    if (isCopy(entry) || wasRemoved(entry)) found.set(entry.envelope.id, keptOf(entry));
  }
  const named = new Set(ids);
  const removed = new Set<string>();
  const changed = new Map<string, SeenEntry>();
  for await (const entry of keptCopies(control)) {
    const original = headerOf(entry, ORIGINAL_HEADER);
    if (original === undefined || !named.has(original)) continue;
    if (isOfRemoval(entry)) {
      removed.add(original);
      found.set(entry.envelope.id, keptOf(entry));
    } else if (!changed.has(original)) changed.set(original, entry);
  }
  const not = [...named]
    .filter((id) => !found.has(id) && !removed.has(id))
    .map((id) => whyNot(id, own.get(id), changed.get(id)));
  return { found: [...found.values()].slice(0, limit), not };
}

/** These entries as they are now, by id. */
export async function entriesOf(
  control: Control,
  ids: readonly string[],
): Promise<ReadonlyMap<string, SeenEntry>> {
  const found = new Map<string, SeenEntry>();
  const possible = [...new Set(ids)].filter((id) => ID_PATTERN.test(id));
  for (let from = 0; from < possible.length; from += PAGE_MAX) {
    const some = possible.slice(from, from + PAGE_MAX);
    const { entries } = await control.page({ ids: some, limit: PAGE_MAX });
    for (const entry of entries) found.set(entry.envelope.id, entry);
  }
  return found;
}

/** Whether it is a copy of a message of a queue. */
export function isCopy(entry: SeenEntry): boolean {
  return headerOf(entry, AMQP_HEADER) !== undefined;
}

/** Whether a message of the spool lies in the archive because it was removed. */
export function wasRemoved({ status: { state, ending } }: SeenEntry): boolean {
  return state === 'archived' && ending === 'removed';
}

/** Why a message of the spool is not brought back. */
export function notRemoved({ envelope, status: { state, ending } }: SeenEntry): Restored {
  const end = state === 'archived' && ending !== undefined ? `${state} as ${ending}` : state;
  return refused(envelope.id, `it was not removed, it is ${end}`);
}

export function refused(id: string, why: string): Restored {
  return { id, result: 'refused', why: `cannot restore ${show(id)}: ${why}` };
}

function whyNot(id: string, own: SeenEntry | undefined, changed: SeenEntry | undefined): Restored {
  if (changed !== undefined) {
    const why = changed.status.because?.text ?? 'changed';
    const name = show(changed.envelope.id);
    return refused(id, `it was not removed, it was ${why}; its original is ${name}: name that one`);
  }
  return own === undefined ? { id, result: 'unknown' } : notRemoved(own);
}

/** n.b. Others were kept because a replay changed the letter, and sent it. */
function isOfRemoval({ status: { because } }: SeenEntry): boolean {
  return because?.text.startsWith(REMOVED_FROM) === true;
}

function keptOf(entry: SeenEntry): Kept {
  const { id, body } = entry.envelope;
  const queue = headerOf(entry, KEPT_QUEUE_HEADER) ?? '';
  const broker = headerOf(entry, BROKER_HEADER);
  return { id, size: body.size, isCopy: isCopy(entry), queue, broker };
}

function headerOf({ envelope: { headers } }: SeenEntry, name: string): string | undefined {
  return Object.hasOwn(headers, name) ? headers[name] : undefined;
}

/** All copies of the archive, in the order in which they were kept. */
async function* keptCopies(control: Control): AsyncGenerator<SeenEntry> {
  let after: string | undefined;
  do {
    const page = await control.page({
      code: KEPT_CODE,
      state: 'archived',
      limit: PAGE_MAX,
      ...(after === undefined ? {} : { after }),
    });
    yield* page.entries;
    after = page.next;
  } while (after !== undefined);
}
