/**
 * broker-metrics — the consumers and the relay of a configuration, watched. The management API is
 * asked only where the configuration names it: a guess would fail at every scrape.
 */

import { brokerAt, tlsOfRabbit } from '../../../config/load/brokers.ts';
import type { EffectiveConsumer } from '../../../config/load/consumers.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import type { ConfiguredConsumer } from '../../../config/open/open-consumers.ts';
import type { OpenRelay } from '../../../config/open/open-outbox.ts';
import type { Metrics } from '../../../observe/metrics/metrics.ts';
import { createManagement, type Management } from '../../../rabbit/admin/management/index.ts';

type Config = LoadedConfig['config'];

/** Watches them all, in the order of the configuration; `atEnd` is told what ends with it. */
export async function watchConsumers(
  metrics: Pick<Metrics, 'watchConsumer'>,
  config: Config,
  made: readonly ConfiguredConsumer[],
  atEnd: (close: () => Promise<void>) => void,
): Promise<void> {
  const tls = await tlsOfRabbit(config.rabbit);
  // One client for all consumers of a broker: they share connections and answers.
  const clients = new Map<string, Management>();
  const clientOf = (effective: EffectiveConsumer): Management | undefined => {
    const { isManagementNamed, managementUrl, vhost, url } = brokerAt(
      effective.url,
      [effective],
      config.rabbit,
    );
    if (!isManagementNamed) return undefined;
    const secured = tls === undefined ? {} : { tls };
    const client = clients.get(url) ?? createManagement({ url: managementUrl, vhost, ...secured });
    if (!clients.has(url)) atEnd(() => client.close());
    clients.set(url, client);
    return client;
  };
  for (const [at, { consumer }] of made.entries()) {
    const effective = config.consumers[at];
    const management = effective === undefined ? undefined : clientOf(effective);
    metrics.watchConsumer(consumer, {
      exchange: effective?.bindings[0]?.exchange ?? '',
      ...(management === undefined ? {} : { management }),
    });
  }
}

/** Watches it, with what waits in its outbox. */
export function watchRelay(
  metrics: Pick<Metrics, 'watchRelay'>,
  { outbox: effective }: Config,
  { relay, outbox }: OpenRelay,
): void {
  const target = effective?.relay?.target;
  const exchange = target?.kind === 'amqp' ? target.exchange : '';
  const stop = metrics.watchRelay(relay, outbox, { exchange });
  // A scrape while the service stops must not open the outbox again.
  relay.on('engine-stopped', stop);
}
