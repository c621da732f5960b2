/**
 * insert — new entries, each once, even with dedupe keys or if a process dies in between.
 *
 * NATS writes one key at a time. So an entry with a dedupe key is written as *unborn*, and right
 * behind it, without waiting, the key that points to it. It lives when its key points to it with a
 * higher sequence than its own; all who follow the stream reach the same answer.
 *
 *   died after the entry: it is not there for anyone, and is swept out later
 *   died after the key:   it is there, and the caller that asks again learns it
 *   a key that points to no entry, or to one without this key: was left behind, may be taken over
 *   an unborn entry in the way of its own repetition: is helped to its key first, not overwritten
 *
 * The first later step of an entry (a claim, say) makes it live permanently.
 */

import type { Entry } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Duplicate } from '../../ports/entry-store.ts';
import { type EncodedEntry, type FoundEntry, type EntryWrites, MOVED_ON } from './entry-writes.ts';
import { drawInsertMark } from './entry-writes.ts';
import { writeTail } from './row.ts';
import { PENDING_INSERT_KEPT_MS } from './tombstones.ts';

/** Maximum number of lost races; in each round another process won. */
const ROUNDS_MAX = 100;

type Inserted = 'stored' | Duplicate;

/** A new entry as it will be written. */
interface Draft {
  readonly id: string;
  readonly encoded: EncodedEntry;
  readonly key: string | undefined;
}

/** Makes an entry ready to be written; refuses one that does not fit. */
export function draftOf(writes: EntryWrites, { envelope, status, inlineBody }: Entry): Draft {
  const isInline = envelope.body.place === 'inline';
  const { tail, bodyAt } = writeTail(envelope, isInline ? inlineBody : undefined);
  const encoded = writes.encodeNew(
    { envelope, status, tail, bodyAt, birth: drawInsertMark() },
    envelope.dedupeKey !== undefined,
  );
  return { id: envelope.id, encoded, key: encoded.facts.key };
}

/** Writes all of them; on an error, those that were written are taken back as far as possible. */
export async function insertAll(
  writes: EntryWrites,
  drafts: readonly Draft[],
): Promise<readonly Inserted[]> {
  const written: { readonly draft: Draft; readonly seq: number }[] = [];
  const note = (draft: Draft, seq: number): void => void written.push({ draft, seq });
  const results = await Promise.allSettled(
    oneAtATime(drafts, namesOf, (draft) => create(writes, draft, note)),
  );
  const failed = results.find((result) => result.status === 'rejected');
  if (failed === undefined) {
    return results.map((result) => (result as PromiseFulfilledResult<Inserted>).value);
  }
  await Promise.allSettled(
    written.map(({ draft, seq }) => writes.remove(draft.id, seq, draft.key)),
  );
  throw failed.reason;
}

type Note = (draft: Draft, seq: number) => void;

function namesOf({ id, key }: Draft): readonly string[] {
  return key === undefined ? [`e${id}`] : [`e${id}`, `d${key}`];
}

async function create(writes: EntryWrites, draft: Draft, note: Note): Promise<Inserted> {
  const { id, encoded, key } = draft;
  const startedAt = writes.clock.monotonic();
  let expected = 0;
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    // Both are sent before the first answer is awaited; the server takes them in this order.
    const entryWrite = writes.create(encoded, expected);
    const keyWrite =
      key === undefined || round > 0 ? undefined : writes.takeKey(key, id, 0).catch(laterOn);
    const [seq, keySeq] = [await entryWrite, await keyWrite];
    if (seq === MOVED_ON) return movedOn(writes, draft, startedAt);
    if (seq !== undefined) {
      note(draft, seq);
      if (key === undefined) return 'stored';
      if (keySeq instanceof Error) throw keySeq;
      return settleKey(writes, { id, key, seq, startedAt }, keySeq);
    }
    if (typeof keySeq === 'number' && key !== undefined) await giveBackKey(writes, draft, keySeq);
    const found = await writes.read(id);
    const isThere =
      found.kind === 'damaged' || (found.kind === 'entry' && (await isAlive(writes, found)));
    if (isThere) return { duplicateOf: id };
    expected = found.kind === 'none' ? 0 : found.seq;
  }
  throw tooManyRounds(id);
}

/** Our first attempt arrived, and others have gone on with it: stored, unless its key was not. */
async function movedOn(writes: EntryWrites, draft: Draft, startedAt: number): Promise<Inserted> {
  const { id, key, encoded } = draft;
  if (key === undefined) return 'stored';
  const found = await writes.read(id);
  const isOurs = found.kind === 'entry' && found.facts.birth === encoded.facts.birth;
  if (isOurs && found.facts.isUnborn) {
    return settleKey(writes, { id, key, seq: found.seq, startedAt }, undefined);
  }
  const holder = isOurs ? undefined : await writes.readKey(key);
  const isOthers = holder !== undefined && holder.id !== id;
  if (isOthers && (await holdsKey(writes, holder.id, key))) return { duplicateOf: holder.id };
  return 'stored';
}

/** A rejection that is looked at only when the entry was written. */
function laterOn(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** We took the key for an id that was there already: right only if that entry has this key. */
async function giveBackKey(writes: EntryWrites, { id, key }: Draft, keySeq: number): Promise<void> {
  const found = await writes.read(id);
  const isHeld = found.kind === 'entry' && found.facts.key === key;
  if (isHeld || key === undefined) return;
  // Looked at again: a server that lost it may have given its sequence to another message.
  const holder = await writes.readKey(key);
  if (holder?.seq === keySeq) await writes.dropKey(key, keySeq);
}

/** Whether an entry that was read is there for others; helps one that waits for its key. */
async function isAlive(
  writes: EntryWrites,
  match: FoundEntry & { kind: 'entry' },
): Promise<boolean> {
  const { facts, seq, content } = match;
  if (!facts.isUnborn || facts.key === undefined) return true;
  const { id } = content.envelope;
  const { key } = facts;
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    const holder = await writes.readKey(key);
    const isOthers = holder !== undefined && holder.id !== id;
    if (isOthers && (await holdsKey(writes, holder.id, key))) return false;
    if (holder === undefined || isOthers || holder.seq < seq) {
      const keySeq = await writes.takeKey(key, id, holder?.seq ?? 0);
      if (keySeq === undefined) continue;
    }
    // Permanent: it must not be swept from here on. If it moved on, it was live, or removed.
    const isKept = (await writes.write(writes.encode(content), seq)) !== undefined;
    if (isKept) return true;
    const again = await writes.read(id);
    if (again.kind !== 'entry') return false;
    if (!again.facts.isUnborn) return true;
    return isAlive(writes, again);
  }
  throw tooManyRounds(id);
}

interface Birth {
  readonly id: string;
  readonly key: string;
  readonly seq: number;
  readonly startedAt: number;
}

/** The entry is written; now its key has to point to it, or to the first one. */
async function settleKey(
  writes: EntryWrites,
  birth: Birth,
  first: number | undefined,
): Promise<Inserted> {
  const { id, key, seq } = birth;
  let keySeq = first;
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    if (keySeq !== undefined && keySeq > seq) return born(writes, birth);
    const holder = await writes.readKey(key);
    if (holder?.id === id && holder.seq > seq) return born(writes, birth);
    if (holder !== undefined && holder.id !== id && (await holdsKey(writes, holder.id, key))) {
      await writes.remove(id, seq, undefined);
      return { duplicateOf: holder.id };
    }
    keySeq = await writes.takeKey(key, id, holder?.seq ?? 0);
  }
  throw tooManyRounds(id);
}

/** Whether an entry is there that has this key; one that waits for it is helped first. */
async function holdsKey(writes: EntryWrites, id: string, key: string): Promise<boolean> {
  const found = await writes.read(id);
  if (found.kind === 'damaged') return true;
  if (found.kind !== 'entry' || found.facts.key !== key) return false;
  if (!found.facts.isUnborn) return true;
  const holder = await writes.readKey(key);
  if (holder?.id !== id) return false;
  return holder.seq > found.seq || (await writes.takeKey(key, id, holder.seq)) !== undefined;
}

/** Reports `stored`; one that took very long makes sure that it was not swept out meanwhile. */
async function born(writes: EntryWrites, { id, seq, startedAt }: Birth): Promise<Inserted> {
  if (writes.clock.monotonic() - startedAt < PENDING_INSERT_KEPT_MS / 2) return 'stored';
  const found = await writes.read(id);
  if (found.kind === 'entry' && found.seq > seq) return 'stored';
  const isKept =
    found.kind === 'entry' &&
    (await writes.write(writes.encode(found.content), found.seq)) !== undefined;
  if (isKept) return 'stored';
  throw new RespoolError(
    'store.unavailable',
    `cannot say whether message "${id}" was stored: it took too long; it can be sent again`,
  );
}

function tooManyRounds(id: string): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `cannot store message "${id}": others change it or its dedupe key all the time; try again`,
  );
}

// All at once, but for what concerns the same thing: there the first of a call is first.

/** Acts on all items; one that shares a name with an earlier one waits until that is through. */
export function oneAtATime<Item, Result>(
  items: readonly Item[],
  namesOf: (item: Item) => readonly string[],
  act: (item: Item) => Promise<Result>,
): Promise<Result>[] {
  const lastOf = new Map<string, Promise<unknown>>();
  return items.map((item) => {
    const names = namesOf(item);
    const before = names.flatMap((name) => lastOf.get(name) ?? []);
    const done = before.length === 0 ? act(item) : Promise.allSettled(before).then(() => act(item));
    for (const name of names) lastOf.set(name, done);
    return done;
  });
}
