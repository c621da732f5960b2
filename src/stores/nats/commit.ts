/**
 * commit — guarded writes: what was computed from the present revision happens, the rest is stale.
 *
 * Where the catalog knows the revision, the write goes out without asking for it, and the server
 * judges it by its sequence. The entry is read first where its content is not in the cache, and by
 * a writer that was wrong or knew nothing.
 */

import type { Change } from '../../ports/entry-store.ts';
import { type Content, type Facts, writeTail } from './row.ts';
import type { EntryWrites } from './entry-writes.ts';

const ROUNDS_MAX = 20;

/** Carries out one change. */
export async function commitOne(writes: EntryWrites, change: Change): Promise<'done' | 'stale'> {
  const { id, to } = change;
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    const known = round === 0 ? writes.catalog.live(id) : undefined;
    const base = fits(known, change) ? known : await readBase(writes, change);
    if (base === undefined) return 'stale';
    const { seq, key } = base;
    if (to === 'remove') {
      if (await writes.remove(id, seq, key)) return 'done';
      continue;
    }
    const content = writes.cache.get(id, seq) ?? (await writes.contentAt(id, seq));
    if (content === undefined) continue;
    const encoded = writes.encode(changed(content, change));
    const nextKey = encoded.facts.key;
    if (nextKey !== undefined && nextKey !== key) await pointKey(writes, nextKey, id);
    if ((await writes.write(encoded, seq)) === undefined) continue;
    if (key !== undefined && nextKey !== key) await letGoOfKey(writes, key, id);
    return 'done';
  }
  return 'stale';
}

interface Base {
  readonly seq: number;
  readonly key: string | undefined;
}

type Known = Pick<Facts, 'revision' | 'holder'>;

function fits<T extends Known>(value: T | undefined, change: Change): value is T {
  return value?.revision === change.revision && value.holder === change.holder;
}

/** Asks the server; undefined when the change was computed from something else. */
async function readBase(writes: EntryWrites, change: Change): Promise<Base | undefined> {
  const found = await writes.read(change.id);
  if (found.kind !== 'entry' || !fits(found.facts, change)) return undefined;
  const { seq, facts } = found;
  if (facts.isUnborn && facts.key !== undefined) {
    const holder = await writes.readKey(facts.key);
    if (holder?.id !== change.id || holder.seq < seq) return undefined;
  }
  return { seq, key: facts.key };
}

function changed(content: Content, { to, envelope, inlineBody }: Change): Content {
  if (to === 'remove') return content;
  if (envelope === undefined) return { ...content, status: to };
  const { tail, bodyAt } = content;
  const former = bodyAt < 0 ? undefined : tail.subarray(bodyAt);
  const bytes = envelope.body.place === 'inline' ? (inlineBody ?? former) : undefined;
  return { status: to, envelope, birth: content.birth, ...writeTail(envelope, bytes) };
}

/** Before the entry is written: a key that points to an entry without it means nothing. */
async function pointKey(writes: EntryWrites, key: string, id: string): Promise<void> {
  const holder = await writes.readKey(key);
  if (holder !== undefined && holder.id !== id) {
    const found = await writes.read(holder.id);
    // It belongs to another entry: that one keeps it, and the key stays where it is.
    if (found.kind === 'entry' && found.facts.key === key) return;
  }
  await writes.takeKey(key, id, holder?.seq ?? 0);
}

async function letGoOfKey(writes: EntryWrites, key: string, id: string): Promise<void> {
  const holder = await writes.readKey(key);
  if (holder?.id === id) await writes.dropKey(key, holder.seq);
}
