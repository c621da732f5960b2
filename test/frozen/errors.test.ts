/** Every code of an error can be met, and the sample text of each is that of the snapshot. */
import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { connect } from 'amqplib';
import {
  createSpool,
  ERROR_CODES,
  exponential,
  isRespoolError,
  type Spool,
  type SpoolOptions,
} from 'respool';
import { createConsumer, createPublisher, perAttempt } from 'respool/rabbit';
import { memoryBodies } from 'respool/stores/memory';
import { sqlite } from 'respool/stores/sqlite';
import { createTestSpool, sampleEntry } from 'respool/testkit';
import { decrypt, encrypt, type Transform } from 'respool/transforms';
import { expect, onTestFinished, test } from 'vitest';
import { importPeer } from '../../src/system/peer.ts';
import { readPage, tableUnder } from '../docs/pages.ts';
import { withService } from '../services/index.ts';
import { openStore as openNats } from '../stores/nats/setup.ts';
import { makeFolder, openFile, openStore } from '../stores/sqlite/setup.ts';

/** What fails, or the text itself where nothing is thrown. */
type Sample = (url: string) => unknown;

const TOPIC = 'mail.send';
const KEY = Buffer.alloc(32, 'key').toString('hex');

/** A body that is written by a spool with some transforms and read by one with others. */
async function readElsewhere(
  write: readonly Transform[],
  read: readonly Transform[],
  between: (folder: string) => Promise<void> = async () => undefined,
): Promise<void> {
  const folder = await makeFolder();
  const makeSpool = (transforms: readonly Transform[]): Spool =>
    createSpool({
      entries: sqlite({ path: path.join(folder, 'app.db') }),
      bodies: memoryBodies(),
      unhandled: 'leave',
      transforms,
    });
  await using first = makeSpool(write);
  await first.enqueue({ id: 'm1', topic: TOPIC, body: 'text' });
  await first.stop();
  await between(folder);
  await using second = makeSpool(read);
  await drain(await second.body('m1'));
}

async function drain(stream: AsyncIterable<unknown>): Promise<void> {
  const parts = stream[Symbol.asyncIterator]();
  while ((await parts.next()).done !== true);
}

async function testSpool(options: SpoolOptions = {}): Promise<Spool> {
  const { spool } = await createTestSpool({ unhandled: 'leave', ...options });
  onTestFinished(() => spool.stop());
  return spool;
}

const SAMPLES: Readonly<Record<string, Sample>> = {
  'store.unavailable': () => sqlite({ path: '/srv/store' }).insert([]),
  'store.corrupt': async () => {
    const file = path.join(await makeFolder(), 'app.db');
    await writeFile(file, Buffer.alloc(8_192, 'not a database '));
    await openStore({ path: file });
  },
  'store.version': async () => {
    const file = path.join(await makeFolder(), 'app.db');
    await (await openStore({ path: file })).close();
    (await openFile(file)).exec("UPDATE meta SET value = 99 WHERE key = 'version'");
    await openStore({ path: file });
  },
  'body.missing': async () => {
    const bodies = memoryBodies();
    await bodies.open();
    await drain(bodies.get('nowhere'));
  },
  'body.corrupt': () =>
    readElsewhere([], [], async (folder) => {
      const file = path.join(folder, 'app.db');
      (await openFile(file)).exec("UPDATE contents SET body = CAST('texd' AS BLOB)");
    }),
  'move.refused': async () => {
    const spool = await testSpool();
    await spool.enqueue({ id: 'm1', topic: TOPIC });
    await spool.operator({ by: 'ops' }).move('m1', { from: 'hold', to: 'incoming' });
  },
  'message.unknown': async () => (await testSpool()).body('m1'),
  'message.duplicate': async () => {
    const bodies = memoryBodies();
    await bodies.open();
    for (const text of ['one', 'two']) await bodies.put('ref1', Readable.from([Buffer.from(text)]));
  },
  'message.invalid': async () => (await testSpool()).enqueue({ topic: 'no spaces' }),
  'policy.unknown': async () =>
    (await testSpool()).operator({ by: 'ops' }).setPolicy(['m1'], 'gentle'),
  'policy.invalid': () => exponential({ first: '1s', attempts: 0 }),
  'handler.missing': async () => {
    const { spool, clock } = await createTestSpool();
    onTestFinished(() => spool.stop());
    spool.handle('other', () => undefined);
    spool.on('handler-missing', () => undefined);
    const held = new Promise<string>((resolve) => {
      spool.on('held', ({ because }) => resolve(because.text));
    });
    await spool.enqueue({ id: 'm1', topic: TOPIC });
    await clock.advance('2m');
    return await held;
  },
  'config.invalid': () => createSpool({ concurrency: 0 }),
  'peer.missing': () => importPeer('respool-no-such-package', 'the nonsense store'),
  'key.unavailable': () =>
    readElsewhere(
      [encrypt({ keys: { k1: KEY }, primary: 'k1' })],
      [decrypt({ keys: { k2: KEY } })],
    ),
  'transform.missing': () => readElsewhere([encrypt({ keys: { k1: KEY }, primary: 'k1' })], []),
  'limit.exceeded': async () => {
    const spool = await testSpool({ limits: { bodyBytes: 10 } });
    await spool.enqueue({ topic: TOPIC, body: 'x'.repeat(11) });
  },
  'engine.stopping': async () => {
    const spool = await testSpool();
    await spool.stop();
    await spool.enqueue({ topic: TOPIC });
  },
  'broker.unavailable': async () => {
    const url = 'amqp://guest:secret@127.0.0.1:1';
    await using consumer = createConsumer({ url, queue: 'orders' }, () => undefined);
    await consumer.start();
  },
};

const OF_NATS: Readonly<Record<string, Sample>> = {
  'store.full': async (url) => {
    const store = await openNats({ url, maxBytes: 2 ** 20 });
    for (let at = 0; at < 1_000; at += 1) {
      await store.insert([sampleEntry(`m${at}`, { bytes: new Uint8Array(8_192) })]);
    }
  },
};

const OF_RABBITMQ: Readonly<Record<string, Sample>> = {
  'broker.unroutable': async (url) => {
    await using publisher = createPublisher({ url });
    await publisher.publish({ key: 'no-such-queue' });
  },
  'broker.unconfirmed': async (url) => {
    const queue = await ownQueue(url, { 'x-max-length': 0, 'x-overflow': 'reject-publish' });
    await using publisher = createPublisher({ url });
    await publisher.publish({ key: queue, id: 'm1' });
  },
  'topology.mismatch': async (url) => {
    const queue = await ownQueue(url, { 'x-max-length': 5 });
    const topology = perAttempt();
    await using consumer = createConsumer(
      { url, queue, topology, type: 'classic' },
      () => undefined,
    );
    await consumer.start();
  },
};

/** A durable classic queue that is gone after the test. */
async function ownQueue(url: string, queueArguments: object): Promise<string> {
  const queue = `frozen-${randomUUID()}`;
  const connection = await connect(url);
  const channel = await connection.createChannel();
  await channel.assertQueue(queue, { durable: true, arguments: queueArguments });
  onTestFinished(async () => {
    await channel.deleteQueue(queue);
    await connection.close();
  });
  return queue;
}

/** The text, without what is another in each run. */
async function textOf(code: string, sample: Sample, url: string): Promise<string> {
  let text: unknown;
  try {
    text = await sample(url);
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    expect(error.code, error.message).toBe(code);
    text = error.message;
  }
  expect(text).toBeTypeOf('string');
  return String(text)
    .replaceAll(/"[^" ]*respool-sqlite-[^"/]*/g, '"/folder')
    .replaceAll(/(?:frozen|test)-[0-9a-f-]{12,}/g, '<name>')
    .replaceAll(/\b\d{6}\b/g, '<bytes>');
}

test.each(Object.entries(SAMPLES))('%s', async (code, sample) => {
  expect(await textOf(code, sample, '')).toMatchSnapshot();
});

withService('nats', (url) => {
  test.each(Object.entries(OF_NATS))('%s', async (code, sample) => {
    expect(await textOf(code, sample, url())).toMatchSnapshot();
  });
});

withService('rabbitmq', (url) => {
  test.each(Object.entries(OF_RABBITMQ))('%s', async (code, sample) => {
    expect(await textOf(code, sample, url())).toMatchSnapshot();
  });
});

test('every code has a sample', () => {
  const samples = Object.keys({ ...SAMPLES, ...OF_NATS, ...OF_RABBITMQ });
  expect(samples.toSorted()).toEqual(ERROR_CODES.toSorted());
});

test('the codes that a message can carry', async () => {
  const rows = tableUnder(readPage('docs/reference/errors.md'), 'Codes on messages');
  const lines = rows.map(([codes = '', where = '']) => `${codes}: ${where}`);
  expect(lines.join('\n')).toMatchSnapshot();
});
