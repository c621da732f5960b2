/** A feed is through when the server has nothing more to send, not when it waits for us. */

import { expect, test } from 'vitest';
import type { NatsMessage } from '../../../src/stores/nats/connection.ts';
import { openFeed } from '../../../src/stores/nats/feed.ts';
import type { Stream } from '../../../src/stores/nats/stream.ts';
import { systemClock } from '../../time.ts';

/** A feed of a stream of ten messages whose server sends what the test says. */
async function setup() {
  let send: (message: NatsMessage) => void = () => {};
  const answered: string[] = [];
  const connection = {
    subscribe: (_: string, { callback }: { callback: (e: null, m: NatsMessage) => void }) => {
      send = (message) => callback(null, message);
      return { unsubscribe: () => {} };
    },
    publish: (subject: string) => void answered.push(subject),
  };
  const line = {
    connection,
    clock: systemClock,
    isConnected: false,
    makeInbox: () => 'inbox',
    onChange: () => () => {},
  };
  const stream = {
    name: 'S',
    line,
    info: () => Promise.resolve({ state: { last_seq: 10 } }),
    api: () => Promise.resolve({ name: 'c', num_pending: 10 }),
  };
  const told: string[] = [];
  const feed = await openFeed(stream as unknown as Stream, {
    filter: '>',
    from: 1,
    headersOnly: true,
    onMessage: ({ seq }) => void told.push(`message ${seq}`),
    onCaughtUp: () => void told.push('caught up'),
    onBroken: () => void told.push('broken'),
  });
  const beat = (fields: Readonly<Record<string, string>>): void => {
    const headers = { code: 100, description: '', get: (name: string) => fields[name] ?? '' };
    send({ subject: 'inbox', data: new Uint8Array(), headers: { ...headers, set: () => {} } });
  };
  const message = (seq: number): void => {
    const reply = `$JS.ACK.S.c.1.${seq}.${seq}.1700000000000000000.${10 - seq}`;
    send({ subject: 's', data: new Uint8Array(), reply });
  };
  return { feed, told, answered, beat, message };
}

test('a heartbeat of a server that waits for our answer does not end the list', async () => {
  const { feed, told, answered, beat, message } = await setup();
  message(1);
  beat({ 'Nats-Last-Consumer': '1', 'Nats-Last-Stream': '1', 'Nats-Consumer-Stalled': 'go-on' });
  expect(answered).toEqual(['go-on']);
  expect(told).toEqual(['message 1']);
  for (let seq = 2; seq <= 10; seq += 1) message(seq);
  expect(told.at(-1)).toBe('caught up');
  feed.stop();
});

test('a heartbeat of a server that has nothing to send ends it, whatever was counted', async () => {
  const { feed, told, beat, message } = await setup();
  message(1);
  beat({ 'Nats-Last-Consumer': '1', 'Nats-Last-Stream': '10' });
  expect(told).toEqual(['message 1', 'caught up']);
  feed.stop();
});

test('a heartbeat that tells of a message we never got breaks it', async () => {
  const { told, beat, message } = await setup();
  message(1);
  beat({ 'Nats-Last-Consumer': '2', 'Nats-Last-Stream': '2' });
  expect(told).toEqual(['message 1', 'broken']);
});
