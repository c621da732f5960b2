/** rabbit-broker — names of one test at the real broker, gone after it; and messages to put there. */
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { createManagement, type Properties } from 'respool/rabbit';
import { service } from '../services/index.ts';
import { setup, type Shell } from './setup.ts';
import { type AmqpConfirmChannel, connectAmqp } from '../rabbit/amqp.ts';

/** A shell with a configuration, and a broker with names of its own. */
export interface RabbitShell extends Shell {
  readonly url: string;
  readonly managementUrl: string;
  /** Begins every name of the test. */
  readonly prefix: string;
  readonly channel: AmqpConfirmChannel;
  /** Puts messages into a queue, confirmed. */
  readonly put: (queue: string, bodies: readonly string[], more?: Properties) => Promise<void>;
  readonly depth: (queue: string) => Promise<number>;
  /** Writes the configuration; the broker is in it. */
  readonly configure: (config: object) => Promise<void>;
}

export async function rabbitShell(): Promise<RabbitShell> {
  const shell = await setup();
  const url = await service('rabbitmq');
  const managementUrl = await service('rabbitmq-management');
  const prefix = `cli-${randomBytes(4).toString('hex')}`;
  const connection = await connectAmqp(url);
  const channel = await connection.createConfirmChannel();
  onTestFinished(async () => {
    await removeAll(managementUrl, prefix, channel);
    await connection.close();
  });
  const put: RabbitShell['put'] = async (queue, bodies, more = {}) => {
    await Promise.all(
      bodies.map(
        (body) =>
          new Promise<void>((resolve, reject) => {
            const done = (error: unknown): void => {
              if (error === null || error === undefined) resolve();
              else reject(new Error('not confirmed', { cause: error }));
            };
            const options = { persistent: true, ...more };
            channel.publish('', queue, Buffer.from(body), options, done);
          }),
      ),
    );
  };
  return {
    ...shell,
    url,
    managementUrl,
    prefix,
    channel,
    put,
    depth: async (queue) => (await channel.checkQueue(queue)).messageCount,
    configure: (config) => {
      const whole = { rabbit: { url, managementUrl }, ...config };
      return writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(whole));
    },
  };
}

async function removeAll(
  managementUrl: string,
  prefix: string,
  channel: AmqpConfirmChannel,
): Promise<void> {
  await using management = createManagement({ url: managementUrl });
  const queues = await management.queues({ pattern: `^${prefix}` });
  for (const { name } of queues) await channel.deleteQueue(name);
  for (const { name } of await management.exchanges()) {
    if (name.startsWith(prefix)) await channel.deleteExchange(name);
  }
}
