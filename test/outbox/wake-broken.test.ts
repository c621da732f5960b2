/** A connection that breaks while relays are told of a commit. */
import { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
import { createOutbox } from 'respool/outbox';

test('a connection that breaks while relays are told is given up, and ends no process', async () => {
  const released: unknown[] = [];
  const listeners: number[] = [];
  const broken = new Error('read ECONNRESET');
  const connect = (): Promise<EventEmitter> => {
    const client = new EventEmitter();
    return Promise.resolve(
      Object.assign(client, {
        // As pg does it: the event, in no call of anybody's, and the answer.
        query: () => {
          listeners.push(client.listenerCount('error'));
          return Promise.reject(broken);
        },
        release: (error?: unknown) => released.push(error),
      }),
    );
  };
  const outbox = createOutbox({ pool: { connect } as never });
  await outbox.wake();
  expect(listeners).toEqual([1]);
  expect(released).toEqual([broken]);
  await outbox.close();
});
