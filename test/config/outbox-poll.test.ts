/** `outbox.relay.poll`: how often a relay of a configuration looks when nothing calls. */
import path from 'node:path';
import Sqlite from 'better-sqlite3';
import { createSpool } from 'respool';
import { createOutbox } from 'respool/outbox';
import { memory, memoryBodies } from 'respool/stores/memory';
import { expect, onTestFinished, test, vi } from 'vitest';
import { createConfiguredRelay } from '../../src/config/open/open-outbox.ts';
import type * as SqliteRoom from '../../src/stores/sqlite/entry-store.ts';
import { load } from './setup.ts';

/** What the stores were asked, by file. */
const asked = vi.hoisted((): string[] => []);

vi.mock(import('../../src/stores/sqlite/entry-store.ts'), async (original) => {
  const room: typeof SqliteRoom = await original();
  const sqlite: typeof room.sqlite = (options, ...rest) => {
    const store = room.sqlite(options, ...rest);
    return new Proxy(store, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== 'function') return value;
        return (...given: unknown[]) => {
          asked.push(`${options.path} ${String(name)}`);
          return (value as (...args: unknown[]) => unknown).apply(target, given);
        };
      },
    });
  };
  return { ...room, sqlite };
});

async function idle(poll: string): Promise<() => number> {
  const said = { store: 'sqlite:./app.db', relay: { to: { spool: true }, poll } };
  const loaded = await load({ config: { outbox: said } });
  const file = path.join(loaded.folder, 'app.db');
  const database = new Sqlite(file);
  createOutbox({ database }).migrate();
  database.close();
  const spool = createSpool({ entries: memory(), bodies: memoryBodies() });
  const configured = await createConfiguredRelay(loaded, { spool: () => Promise.resolve(spool) });
  onTestFinished(async () => {
    await configured.relay.stop({ within: 0 });
    await configured.close();
    await spool.stop();
  });
  await configured.relay.start();
  return () => asked.filter((one) => one === `${file} claim`).length;
}

test('with nothing to send, one that looks every 20ms looks often, and one of an hour does not', async () => {
  const seldom = await idle('1h');
  const often = await idle('20ms');
  // The first looks, and those of a store that has just begun to watch its file, do not count.
  await expect.poll(often, { interval: 5 }).toBeGreaterThan(20);
  const [before, from] = [seldom(), often()];
  await expect.poll(often, { interval: 5 }).toBeGreaterThan(from + 50);
  expect(seldom()).toBeLessThanOrEqual(before + 5);
});
