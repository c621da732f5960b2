/** What stores on servers say when they open reaches whoever opens a configuration. */
import { describe, expect, test } from 'vitest';
import { createConfiguredSpool } from '../../src/config/open/open-spool.ts';
import { storesOf } from '../../src/config/open/stores.ts';
import { skipReason } from '../services/index.ts';
import { usePlaces } from '../spool/places.ts';
import { load } from './setup.ts';

const places = usePlaces();

function recorder() {
  const lines: string[] = [];
  const log = (_: object, text: string) => void lines.push(text);
  return { lines, logger: { debug: log, info: log, warn: log, error: log } };
}

const isPromise = (line: string): boolean => /^NATS \S+: what is acknowledged/.test(line);

describe.skipIf(skipReason('nats') !== undefined)('stores on NATS', () => {
  test.each(['logger', 'storeLogger'] as const)(
    'tell %s what they promise when they open',
    async (name) => {
      const { lines, logger } = recorder();
      const loaded = await load({ config: { store: places.address('nats', 'entries') } });
      const { spool } = await createConfiguredSpool(loaded, { [name]: logger });
      await spool.enqueue({ topic: 'a' });
      await spool.stop();
      expect(lines.filter(isPromise)).toHaveLength(2);
      // Only a logger of the spool hears of its messages.
      expect(lines.some((line) => !isPromise(line))).toBe(name === 'logger');
    },
  );

  test('tell a logger of their own, where a program gave them one', async () => {
    const [ours, theirs] = [recorder(), recorder()];
    const [url = '', bucket = ''] = places.address('nats', 'entries').split('?bucket=');
    const store = { nats: { url, bucket, logger: theirs.logger } };
    const { entries } = await storesOf({ store }, '/nowhere', ours.logger);
    await entries.open();
    await entries.close();
    expect(theirs.lines.filter(isPromise)).toHaveLength(1);
    expect(ours.lines).toEqual([]);
  });
});
