/** A queue of a real broker as a source, by the suite (R149). */
import { randomBytes } from 'node:crypto';
import { connect } from 'amqplib';
import { fixed } from 'respool';
import { type MessagePlace, sourceSuite, type SourceUnderTest } from 'respool/testkit';
import { applyTopology, createConnection, perDelay, type QueueRole } from 'respool/rabbit';
import { consumerSettings } from '../../src/rabbit/consume/options.ts';
import { RabbitSource } from '../../src/rabbit/consume/source.ts';
import { withService } from '../services/index.ts';
import { runSuite } from '../suite.ts';
import { systemClock } from '../time.ts';

const DELAY_MS = 200;
/** How often a queue is looked at before a place is taken for missed. */
const LOOKS_MAX = 2_000;

withService('rabbitmq', (url) => {
  const make = async (type: 'quorum' | 'classic'): Promise<SourceUnderTest> => {
    const name = `source-${randomBytes(4).toString('hex')}`;
    const exchange = `${name}.exchange`;
    const hands = await connect(url());
    const channel = await hands.createConfirmChannel();
    await channel.assertExchange(exchange, 'topic', { durable: true });
    const settings = consumerSettings({
      url: url(),
      queue: name,
      bindings: [{ exchange, key: '#' }],
      policy: fixed(DELAY_MS, { attempts: 10 }),
      // Everything of its own: it is deleted at the end.
      topology: perDelay({ by: 'queue' }),
      type,
    });
    const connection = createConnection({ url: url() });
    const { plan, wire, subscription, maxLost } = settings;
    const source = new RabbitSource({
      connection,
      plan,
      wire,
      clock: systemClock,
      subscribe: subscription,
      maxLost,
      bufferedMaxMs: 60_000,
      makeId: () => name,
      prepare: async (amqp) => void (await applyTopology(amqp, plan.topology)),
      onTrouble: () => undefined,
    });
    await source.open();
    const queuesOf = (role: QueueRole): string[] =>
      plan.topology.queues.filter((queue) => queue.role === role).map((queue) => queue.name);
    const depth = async (role: QueueRole): Promise<number> => {
      let sum = 0;
      for (const queue of queuesOf(role)) sum += (await channel.checkQueue(queue)).messageCount;
      return sum;
    };
    const isAt = async (place: MessagePlace): Promise<boolean> => {
      if (place === 'dead') return (await depth('dead')) > 0;
      if (place === 'held') return (await depth('parked')) > 0;
      const waiting = (await depth('wait')) + (await depth('main'));
      return place === 'waiting' ? waiting > 0 : waiting === 0;
    };
    return {
      source,
      put: async (messages) => {
        for (const { id, topic, headers, body } of messages) {
          const properties = { messageId: id, headers, persistent: true };
          channel.publish(exchange, topic, Buffer.from(body), properties);
        }
        await channel.waitForConfirms();
      },
      pass: (ms) => new Promise((resolve) => systemClock.after(ms, resolve)),
      reaches: async (_, place) => {
        for (let looks = 0; looks < LOOKS_MAX; looks += 1) if (await isAt(place)) return;
        throw new Error(`the message is not ${place}`);
      },
      loseClaims: async () => {
        await connection.consuming.current?.close();
      },
      dispose: async () => {
        await source.cease();
        await source.close();
        await connection.close();
        for (const queue of plan.topology.queues) await channel.deleteQueue(queue.name);
        for (const one of plan.topology.exchanges) await channel.deleteExchange(one.name);
        await channel.deleteExchange(exchange);
        await hands.close();
      },
    };
  };
  for (const type of ['quorum', 'classic'] as const) {
    runSuite(
      `a ${type} queue as a source`,
      sourceSuite(() => make(type), {
        canLose: true,
        picksTopics: false,
        keepsOrder: true,
        canExtend: false,
        delayMs: DELAY_MS,
      }),
    );
  }
});
