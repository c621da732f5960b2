/** Buckets that would forget messages are refused, and no text shows a password. */

import { expect, test } from 'vitest';
import { nats, natsBodies } from 'respool/stores/nats';
import { withService } from '../../services/index.ts';
import { atEnd, bucketName, openStore, plainConnection, removeBucket } from './setup.ts';

test.each([
  'nats://ada:hush@127.0.0.1:1',
  'nats://ada:no@hush@127.0.0.1:1',
  'nats://ada:no/hush@127.0.0.1:1',
  'nats://ada:no,hush@127.0.0.1:1',
  'hush@127.0.0.1:1',
  'nats://127.0.0.1:1,nats://ada:hush@127.0.0.1:2',
])('an address that is not reached is shown without its secret: %s', async (url) => {
  const error: unknown = await nats({ url })
    .open()
    .catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: 'store.unavailable' });
  expect(String(error)).toContain('***@127.0.0.1');
  expect(String(error)).not.toContain('hush');
});

withService('nats', (url) => {
  test('a monitoring address with a user is refused, and of others the log shows host and path', async () => {
    const withUser = { url: url(), monitoringUrl: 'http://ada:hush@127.0.0.1:1' };
    expect(() => nats(withUser)).toThrow(/monitoringUrl/);
    expect(() => nats(withUser)).not.toThrow(/hush/);
    const lines: string[] = [];
    const note = (fields: object, text: string) => void lines.push(JSON.stringify(fields) + text);
    const logger = { debug: note, info: note, warn: note, error: note };
    await openStore({ url: url(), monitoringUrl: 'http://127.0.0.1:1/?token=hush', logger });
    expect(lines.join()).toContain('http://127.0.0.1:1/varz');
    expect(lines.join()).not.toContain('hush');
  });

  test.each([
    [{ max_age: 60_000_000_000 }, /max_age/],
    [{ max_msgs: 10, discard: 'old' }, /oldest/],
    [{ max_bytes: 2 ** 20, discard: 'old' }, /oldest/],
    [{ retention: 'interest' }, /retention "interest"/],
  ] as const)(
    'a bucket that takes messages away by itself is refused: %j',
    async (config, reason) => {
      const bucket = bucketName();
      atEnd(() => removeBucket(url(), bucket));
      const connection = await plainConnection(url());
      for (const [name, subject] of [
        [`KV_${bucket}`, `$KV.${bucket}.>`],
        [`OBJ_${bucket}`, `$O.${bucket}.>`],
      ] as const) {
        const stream = { name, subjects: [subject], ...config };
        await connection.request(`$JS.API.STREAM.CREATE.${name}`, JSON.stringify(stream));
      }
      for (const store of [nats({ url: url(), bucket }), natsBodies({ url: url(), bucket })]) {
        await expect(store.open()).rejects.toThrow(reason);
      }
    },
  );

  test('a bucket of bodies that keeps so many messages per subject is refused', async () => {
    const bucket = bucketName();
    atEnd(() => removeBucket(url(), bucket));
    const connection = await plainConnection(url());
    const name = `OBJ_${bucket}`;
    const config = { name, subjects: [`$O.${bucket}.>`], discard: 'new', allow_rollup_hdrs: true };
    const stream = JSON.stringify({ ...config, max_msgs_per_subject: 1 });
    await connection.request(`$JS.API.STREAM.CREATE.${name}`, stream);
    await expect(natsBodies({ url: url(), bucket }).open()).rejects.toThrow(
      'its max_msgs_per_subject is 1, not -1',
    );
  });
});
