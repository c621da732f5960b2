/** The due time that a `deferred` event tells is the stored one, on every store. */
import { createSpool, type EntryStore, type EventOf, exponential } from 'respool';
import { expect, test } from 'vitest';
import { sqlite } from 'respool/stores/sqlite';
import { postgres } from 'respool/stores/postgres';
import { nats } from 'respool/stores/nats';
import { memory, memoryBodies } from 'respool/stores/memory';
import { filesystem } from 'respool/stores/filesystem';
import { ENTRIES, usePlaces } from './places.ts';

const places = usePlaces();
const MESSAGES = 300;

/** The folder, schema or bucket of a fresh address. */
function fresh(kind: string): string {
  const address = places.address(kind, 'entries');
  return (
    /^(?:file|sqlite):(.+)/.exec(address)?.[1] ?? /(?:schema|bucket)=(\w+)/.exec(address)?.[1] ?? ''
  );
}

const MAKE: Readonly<Record<string, () => EntryStore>> = {
  memory: () => memory(),
  filesystem: () => filesystem({ path: fresh('filesystem') }),
  sqlite: () => sqlite({ path: fresh('sqlite') }),
  postgres: () => postgres({ url: places.server('postgres'), schema: fresh('postgres') }),
  nats: () => nats({ url: places.server('nats'), bucket: fresh('nats') }),
};

test.each(ENTRIES)('on %s, with many attempts at once', async (kind) => {
  const lines: { level: string; fields: Record<string, unknown> }[] = [];
  const note = (level: string) => (fields: object) =>
    void lines.push({ level, fields: fields as Record<string, unknown> });
  const spool = createSpool({
    entries: MAKE[kind]?.() as EntryStore,
    bodies: memoryBodies(),
    concurrency: 50,
    policies: { default: exponential({ first: '1h', jitter: 0.5 }) },
    logger: { debug: note('debug'), info: note('info'), warn: note('warn'), error: note('error') },
  });
  const told = new Map<string, number>();
  const all = new Promise<void>((resolve) => {
    spool.on('deferred', ({ id, dueAt }: EventOf<'deferred'>) => {
      told.set(id, dueAt);
      if (told.size === MESSAGES) resolve();
    });
  });
  spool.handle('a', async () => {
    await new Promise(setImmediate);
    throw new Error('not yet');
  });
  try {
    await spool.start();
    await Promise.all(
      Array.from({ length: MESSAGES }, (_, at) => {
        // Some are handed over with their insert, some wait; some are not put off past their expiry.
        const expires = at % 3 === 0 ? { expires: '30m' as const } : {};
        return spool.enqueue({ topic: 'a', id: `m-${at}`, ...expires });
      }),
    );
    await all;
    const stored = new Map<string, number | null>();
    for await (const { envelope, status } of spool.list()) stored.set(envelope.id, status.dueAt);
    expect(stored.size).toBe(MESSAGES);
    const differ = [...told].filter(([id, dueAt]) => stored.get(id) !== dueAt);
    expect(differ).toEqual([]);
    const logged = lines.filter(({ fields }) => fields['kind'] === 'deferred');
    expect(logged).toHaveLength(MESSAGES);
    for (const { fields } of logged) expect(fields['dueAt']).toBe(stored.get(String(fields['id'])));
  } finally {
    await spool.stop();
  }
});
