/**
 * brokers — the consumers of a configuration by the broker they are at, with everything that has to
 * be there; and how to reach it. Nothing is connected here.
 */

import { readFile } from 'node:fs/promises';
import { RespoolError, show, textOf } from '../../core/errors.ts';
import { shownUrl, type TlsOptions } from '../../rabbit/connection/connection.ts';
import { managementUrlOf, vhostOf } from '../../rabbit/management/http.ts';
import { mergeTopologies, type QueuePlan, type Topology } from '../../rabbit/topology/model.ts';
import type { EffectiveConsumer } from './consumers.ts';
import type { RabbitConfig } from '../schema/define-config.ts';

/** A broker, and what is consumed there. */
export interface Broker {
  readonly url: string;
  /** As it may be shown. */
  readonly address: string;
  readonly managementUrl: string;
  /** Otherwise it is where the management API most likely is. */
  readonly isManagementNamed: boolean;
  readonly vhost: string;
  readonly consumers: readonly EffectiveConsumer[];
  readonly plans: readonly QueuePlan[];
  /** What all consumers need together. */
  readonly topology: Topology;
}

/** The brokers of these consumers, in their order. */
export function brokersOf(
  consumers: readonly EffectiveConsumer[],
  rabbit: RabbitConfig,
): readonly Broker[] {
  const byUrl = new Map<string, EffectiveConsumer[]>();
  for (const consumer of consumers) {
    const there = byUrl.get(consumer.url) ?? [];
    byUrl.set(consumer.url, [...there, consumer]);
  }
  return [...byUrl].map(([url, there]) => brokerAt(url, there, rabbit));
}

/** A broker with these consumers, or with none. */
export function brokerAt(
  url: string,
  consumers: readonly EffectiveConsumer[],
  rabbit: RabbitConfig,
): Broker {
  const plans = consumers.map(({ plan }) => plan);
  // The management API that was named is that of the broker that was named.
  const isNamed = rabbit.url === undefined || rabbit.url === url;
  const { managementUrl } = isNamed ? rabbit : {};
  return {
    url,
    address: shownUrl(url),
    managementUrl:
      managementUrl === undefined ? managementUrlOf(url) : withUser(managementUrl, url),
    isManagementNamed: managementUrl !== undefined,
    vhost: vhostOf(url),
    consumers,
    plans,
    topology: mergeTopologies(plans),
  };
}

/** The management API uses the consumer's account, unless the URL names another. */
function withUser(managementUrl: string, url: string): string {
  const [asked, broker] = [URL.parse(managementUrl), URL.parse(url)];
  // n.b. What is no URL is refused where it is used.
  if (asked === null || broker === null || broker.username === '') return managementUrl;
  if (asked.username !== '') return managementUrl;
  asked.username = broker.username;
  asked.password = broker.password;
  return asked.href;
}

/** The files of TLS as they are; undefined where nothing was named. */
export async function tlsOfRabbit({ tls }: RabbitConfig): Promise<TlsOptions | undefined> {
  if (tls === undefined) return undefined;
  const { ca, key, cert, ...rest } = tls;
  const named = Object.entries({ ca, key, cert }).filter(([, file]) => file !== undefined);
  const files = await Promise.all(
    named.map(async ([name, file = '']) => [name, await contentOf(file, name)]),
  );
  return { ...rest, ...Object.fromEntries(files) };
}

async function contentOf(file: string, name: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(file)} as "rabbit.tls.${name}": ${textOf(error)}`,
    );
  }
}
