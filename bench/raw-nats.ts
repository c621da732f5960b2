/**
 * raw-nats — a KV bucket and an object store through the packages that everybody uses, with as many
 * calls on their way as there are callers.
 */

import { Kvm } from '@nats-io/kv';
import { Objm } from '@nats-io/obj';
import { connect } from '@nats-io/transport-node';
import { bytes, type Load } from './ours.ts';
import { dropBuckets, newName } from './places.ts';
import type { RawBodies, RawEntries } from './raw.ts';

/** What an entry weighs in our bucket besides its inline body: envelope, status and facts. */
const FRAME_BYTES = 600;
/** As the spool has it by default. */
const INLINE_BYTES: number = 16 * 1_024;

interface Keyed {
  readonly key: string;
  readonly revision: number;
}

/** One key per message: create, update with its revision, purge. */
export async function rawNatsEntries(url: string, load: Load): Promise<RawEntries> {
  const bucket = newName();
  const connection = await connect({ servers: url });
  const kv = await new Kvm(connection).create(bucket, { history: 1 });
  const isInline = load.bodyBytes <= (load.inlineBytes ?? INLINE_BYTES);
  const value = bytes(FRAME_BYTES + (isInline ? load.bodyBytes : 0));
  let made = 0;
  return {
    isSingle: true,
    insert: (count) =>
      all(Array.from({ length: count }), async () => {
        made += 1;
        const key = `e.${made % 16}.${made}`;
        return { key, revision: await kv.create(key, value) };
      }),
    claim: (inserted) =>
      all(inserted as readonly Keyed[], async ({ key, revision }) => ({
        key,
        revision: await kv.update(key, value, revision),
      })),
    async remove(claimed) {
      await all(claimed as readonly Keyed[], ({ key, revision }) =>
        kv.purge(key, { previousSeq: revision }),
      );
    },
    async close() {
      await connection.close();
      await dropBuckets(url, bucket);
    },
  };
}

/** Objects: put, get, delete. */
export async function rawNatsBodies(url: string, load: Load): Promise<RawBodies> {
  const bucket = newName();
  const connection = await connect({ servers: url });
  const objects = await new Objm(connection).create(bucket, {});
  const body = bytes(load.bodyBytes);
  return {
    async put(refs) {
      await all(refs, (ref) => objects.putBlob({ name: ref }, body));
    },
    async read(refs) {
      await all(refs, (ref) => objects.getBlob(ref));
    },
    async remove(refs) {
      await all(refs, (ref) => objects.delete(ref));
    },
    async close() {
      await connection.close();
      await dropBuckets(url, bucket);
    },
  };
}

function all<Item, Result>(
  items: readonly Item[],
  act: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  return Promise.all(items.map((item) => act(item)));
}
