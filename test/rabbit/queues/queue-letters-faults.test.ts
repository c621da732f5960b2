/** Connections that end in the middle: nothing is lost, and what nobody can tell is called so. */

import type { Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import type { AmqpConnection, RabbitConnection } from 'respool/rabbit';
import { connectAmqp } from '../../../src/rabbit/connection/connection.ts';
import { ReconnectingConnection } from '../../../src/rabbit/connection/reconnecting-connection.ts';
import { service, withService } from '../../services/index.ts';
import {
  bodiesOf,
  lettersOf,
  named,
  REMOVE,
  SEND,
  settleAll,
  setup,
} from './queue-letters-ground.ts';
import type { AmqpConfirmChannel } from '../amqp.ts';
import { systemClock, systemDice } from '../../time.ts';

withService('rabbitmq', () => {
  test('a connection that ends between confirm and ack leaves the message, and it says unsure', async () => {
    const ground = await setup();
    await ground.put(named(3));
    const { connection, onConfirm } = await faulty();
    const door = ground.open({ connection });
    onConfirm.before = () => cut(connection.consuming);
    const settled: unknown[] = [];
    const loop = (async () => {
      for await (const taken of door.take({ isWanted: () => true })) {
        settled.push(await door.settle(taken, SEND));
      }
    })();
    await expect(loop).rejects.toMatchObject({ code: 'broker.unavailable' });
    expect(settled).toEqual([{ kind: 'unsure', reason: expect.stringMatching(/it was sent/) }]);
    onConfirm.before = undefined;
    expect(bodiesOf(await ground.lying(ground.home, 1))).toEqual(['m00000']);
    expect(bodiesOf(await ground.lying(ground.queue, 3))).toEqual(named(3));
    // The same door goes on when the broker is back.
    expect(await settleAll(door, REMOVE)).toHaveLength(3);
  });

  test('a connection that ends after the last ack is told when the loop ends', async () => {
    const ground = await setup();
    await ground.put(named(3));
    const { connection } = await faulty();
    const door = ground.open({ connection });
    const settled: unknown[] = [];
    const loop = (async () => {
      for await (const taken of door.take({ isWanted: () => true })) {
        settled.push(await door.settle(taken, REMOVE));
        if (settled.length < 3) continue;
        await cut(connection.consuming);
        break;
      }
    })();
    await expect(loop).rejects.toMatchObject({
      code: 'broker.unavailable',
      message: expect.stringContaining('the last ones may be there twice'),
    });
    expect(settled).toEqual([{ kind: 'done' }, { kind: 'done' }, { kind: 'done' }]);
  });

  test('a connection that ends before the confirm leaves the message, and it says unsure', async () => {
    const ground = await setup();
    await ground.put(named(3));
    const { connection, onConfirm } = await faulty();
    const door = ground.open({ connection });
    onConfirm.before = async () => {
      onConfirm.before = undefined;
      await cut(connection.publishing);
      return 'lost';
    };
    const settled = await settleAll(door, SEND);
    expect(settled.map(({ kind }) => kind)).toEqual(['unsure', 'done', 'done']);
    expect(bodiesOf(await ground.lying(ground.queue, 1))).toEqual(['m00000']);
  });

  test('what is settled after the connection was lost is not sent', async () => {
    const ground = await setup();
    await ground.put(named(3));
    const { connection } = await faulty();
    const door = ground.open({ connection });
    const settled: unknown[] = [];
    const loop = (async () => {
      for await (const taken of door.take({ isWanted: () => true })) {
        await cut(connection.consuming);
        settled.push(await door.settle(taken, SEND));
      }
    })();
    await expect(loop).rejects.toMatchObject({ code: 'broker.unavailable' });
    expect(settled).toMatchObject([{ kind: 'failed', code: 'broker.unavailable' }]);
    expect(await ground.hands.depth(ground.home)).toBe(0);
    expect(bodiesOf(await ground.lying(ground.queue, 3))).toEqual(named(3));
  });

  test('a look whose connection ends says so, and the next one sees everything', async () => {
    const ground = await setup();
    await ground.put(named(500));
    const { connection } = await faulty();
    const door = ground.open({ connection });
    const loop = (async () => {
      for await (const { letter } of door.look()) {
        if (letter.id === 'm00100') await cut(connection.consuming);
      }
    })();
    await expect(loop).rejects.toMatchObject({ code: 'broker.unavailable' });
    await ground.lying(ground.queue, 500);
    expect((await lettersOf(door)).map(({ id }) => id)).toEqual(named(500));
  });
});

interface OnConfirm {
  /** Runs before a confirm is told; `lost`: it never is. */
  before: (() => Promise<'lost' | void>) | undefined;
}

/** Two connections of which the one that publishes tells its confirms when the test wants it. */
async function faulty(): Promise<{
  readonly connection: RabbitConnection;
  readonly onConfirm: OnConfirm;
}> {
  const url = await service('rabbitmq');
  const onConfirm: OnConfirm = { before: undefined };
  const connectionFor = (open: () => Promise<AmqpConnection>): ReconnectingConnection =>
    new ReconnectingConnection({ clock: systemClock, dice: systemDice, isOwned: true, open });
  const consuming = connectionFor(() => connectAmqp(url));
  const publishing = connectionFor(async () => held(await connectAmqp(url), onConfirm));
  const close = async (): Promise<void> => {
    await Promise.all([consuming.close(), publishing.close()]);
  };
  const connection: RabbitConnection = {
    consuming,
    publishing,
    isConnected: true,
    close,
    [Symbol.asyncDispose]: close,
  };
  onTestFinished(close);
  return { connection, onConfirm };
}

function held(connection: AmqpConnection, onConfirm: OnConfirm): AmqpConnection {
  const create = connection.createConfirmChannel.bind(connection);
  connection.createConfirmChannel = async () => heldChannel(await create(), onConfirm);
  return connection;
}

function heldChannel(channel: AmqpConfirmChannel, onConfirm: OnConfirm): AmqpConfirmChannel {
  const publish = channel.publish.bind(channel);
  channel.publish = (exchange, key, content, options, tell) =>
    publish(exchange, key, content, options, (error) => {
      void (async () => {
        if ((await onConfirm.before?.()) !== 'lost') tell(error);
      })();
    });
  return channel;
}

/** Ends the socket of a connection, and waits until it knows. */
function cut(reconnecting: ReconnectingConnection): Promise<void> {
  return new Promise((resolve) => {
    const undo = reconnecting.on(({ kind }) => {
      if (kind !== 'down') return;
      undo();
      resolve();
    });
    // n.b. Without an error nobody is told before the heartbeat is missed.
    const socket = reconnecting.current?.connection?.stream as Socket | undefined;
    socket?.destroy(new Error('cut by the test'));
  });
}
