/** open-consumers — from a configuration to consumers. Nothing is connected or started yet. */

import { assert } from '../../core/errors.ts';
import { describePolicy } from '../../core/policy.ts';
import type { Clock } from '../../ports/clock.ts';
import { needAmqplib } from '../../rabbit/connection/connection.ts';
import { type Consumer, createConsumer } from '../../rabbit/consume/consumer.ts';
import { tlsOfRabbit } from '../load/brokers.ts';
import { brokerOf } from '../load/consumer-view.ts';
import { type EffectiveConsumer, optionsOf } from '../load/consumers.ts';
import { checkHandlers, tracingOf } from './handlers.ts';
import type { LoadedConfig } from '../load/load-config.ts';
import { describeHandler } from '../load/routes.ts';

/** A consumer as it may be shown. */
export interface ConsumerInfo {
  readonly queue: string;
  /** Its broker, without user and password. */
  readonly broker: string;
  /** What its handler says about itself, without secrets. */
  readonly deliver: Readonly<Record<string, unknown>>;
  /** The policy's name, or the policy in one line. */
  readonly policy: string;
  readonly prefetch: number;
  readonly concurrency: number;
}

/** A consumer made from a configuration. */
export interface ConfiguredConsumer {
  readonly consumer: Consumer;
  readonly info: ConsumerInfo;
}

/** Which consumers are made, and how. */
interface ConsumersOptions {
  /** Default: all. */
  readonly consumers?: readonly EffectiveConsumer[];
  readonly clock?: Clock;
}

/** Makes the consumers; what they and their handlers miss is said here. */
export async function createConfiguredConsumers(
  loaded: LoadedConfig,
  { consumers = loaded.config.consumers, clock }: ConsumersOptions = {},
): Promise<readonly ConfiguredConsumer[]> {
  const { config } = loaded;
  checkHandlers('consumers', config.consumers);
  await needAmqplib();
  const tls = await tlsOfRabbit(config.rabbit);
  const tracing = await tracingOf(config);
  return consumers.map((effective) => {
    const { deliver } = effective;
    assert(deliver !== undefined, `the consumer of "${effective.queue}" has no handler`);
    const options = {
      ...optionsOf(effective, config),
      middleware: config.middleware ?? [],
      ...(tls === undefined ? {} : { tls }),
      ...(clock === undefined ? {} : { clock }),
      ...tracing,
    };
    return {
      consumer: createConsumer(options, deliver),
      info: infoOf(effective, loaded),
    };
  });
}

function infoOf(effective: EffectiveConsumer, loaded: LoadedConfig): ConsumerInfo {
  const { queue, deliver, policy, policyName, prefetch, concurrency } = effective;
  const told = deliver === undefined ? {} : describeHandler(deliver);
  return {
    queue,
    broker: brokerOf(effective),
    deliver: loaded.redact(told) as Record<string, unknown>,
    policy: policyName ?? (policy === undefined ? 'default' : describePolicy(policy)),
    prefetch,
    concurrency,
  };
}
