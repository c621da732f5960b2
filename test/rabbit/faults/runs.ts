/**
 * runs — what is done to a flow: its processes are killed, its broker crashes, its connections are
 * cut, its bindings are removed. Each run has a ledger and ends with a verdict.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { FaultProxy, type Spoil } from '../../nodes/proxy.ts';
import type { PrivateServer } from '../../services/index.ts';
import { Flow, type FlowOptions, type FlowResult } from './flow.ts';
import { byHand } from './setup.ts';

/** Where a broker is, and its management. */
export type Broker = Pick<PrivateServer, 'url' | 'managementUrl'>;

interface RunOptions {
  readonly consumers: number;
  readonly seed: number;
}

/** A fault begins after so many words to the ledger. */
const WORDS = [10, 100] as const;
const SILENCE_MAX_MS = 3_000;
/** Up to RabbitMQ 4.0 a restart can keep what waits for its timer of three minutes. */
const LATE_MAX_MS = 240_000;
/**
 * RabbitMQ 3.10.8 forgets a quorum queue that was declared right before it is killed, confirmed
 * messages included: tried with 0 s (gone) and 2, 6 and 12 s (there). That is no fault of ours.
 */
export const YOUNG_MS = 4_000;
/** Ends of connections that both sides notice soon. */
export const CUTS: readonly Spoil[] = ['reset', 'cut-up', 'end', 'cut-down', 'half'];
/** Those, and silence, which only a heartbeat notices. */
export const ALL_CUTS: readonly Spoil[] = [...CUTS, 'hold', 'hold-up', 'hold-down', 'vanish'];

/** Consumers are killed with SIGKILL at random moments. */
export function kills(
  broker: Broker,
  { kills: count, ...options }: RunOptions & { readonly kills: number },
): Promise<FlowResult> {
  return withFlow(flowOn(broker, broker.url, options), async (flow) => {
    while (flow.kills < count) {
      await load(flow);
      await sleep(flow.chance.between(0, 15));
      const child = flow.children[flow.chance.between(0, flow.children.length - 1)];
      if (child !== undefined) await flow.kill(child);
    }
    await flow.resumed('kills');
    return flow.finish();
  });
}

/** The broker is killed, and comes back with its data. */
export function restarts(
  server: PrivateServer,
  options: RunOptions & { readonly restarts: number; readonly waitsForLate: boolean },
): Promise<FlowResult> {
  return withFlow(flowOn(server, server.url, options), async (flow) => {
    await sleep(YOUNG_MS);
    for (let count = 0; count < options.restarts; count += 1) {
      await load(flow);
      await server.kill();
      flow.forks += options.consumers;
      await server.restart();
      await flow.resumed('a restart of the broker');
    }
    return options.waitsForLate
      ? flow.finish({ withinMs: LATE_MAX_MS })
      : flow.finish({ withinMs: 3_000, mayLie: true });
  });
}

/** Connections of consumers and producer are spoiled on their way to the broker. */
export async function cuts(
  broker: Broker,
  options: RunOptions & { readonly cuts: number; readonly spoils: readonly Spoil[] },
): Promise<FlowResult> {
  await using proxy = await FaultProxy.start(broker.url);
  return await withFlow(flowOn(broker, `${proxy.url}?heartbeat=2`, options), async (flow) => {
    for (let count = 0; count < options.cuts; count += 1) {
      const how = options.spoils[count % options.spoils.length] ?? 'reset';
      await load(flow);
      const before = proxy.spoiled;
      proxy.spoil(how, flow.chance.between(0, 100) / 100);
      flow.forks += options.consumers;
      await sleep(flow.chance.between(20, 300));
      proxy.recover();
      if (proxy.spoiled === before) flow.complaints.push(`no connection was met by "${how}"`);
      await flow.resumed(how);
    }
    proxy.dropVanished();
    return flow.finish();
  });
}

/** The exchange of retries is deleted, and its wait queue unbound, while messages flow. */
export function removals(
  broker: Broker,
  options: RunOptions & { readonly removals: number },
): Promise<FlowResult> {
  return withFlow(flowOn(broker, broker.url, options), async (flow) => {
    const { bindings, queues } = flow.plan.topology;
    const waits = new Set(queues.filter(({ role }) => role === 'wait').map(({ name }) => name));
    const ways = bindings.filter(({ queue }) => waits.has(queue));
    for (let count = 0; count < options.removals; count += 1) {
      await load(flow);
      // n.b. The channel of all retries ends, and with it what was on its way.
      flow.forks += options.consumers;
      await byHand(broker.url, async (channel) => {
        for (const { queue, exchange, key, arguments: args } of ways) {
          if (count % 2 === 0) await channel.deleteExchange(exchange);
          else await channel.unbindQueue(queue, exchange, key, args);
        }
      });
      await flow.resumed('a removal');
    }
    return flow.finish();
  });
}

function flowOn(broker: Broker, url: string, { consumers, seed }: RunOptions): FlowOptions {
  const { url: straightUrl, managementUrl = '' } = broker;
  return { url, straightUrl, managementUrl, consumers, seed };
}

async function withFlow(
  options: FlowOptions,
  run: (flow: Flow) => Promise<FlowResult>,
): Promise<FlowResult> {
  const flow = new Flow(options);
  try {
    await flow.start();
    flow.producer.start();
    return await run(flow);
  } finally {
    await flow.close();
  }
}

async function load({ ledger, chance }: Flow): Promise<void> {
  await Promise.race([ledger.heard(chance.between(...WORDS)), sleep(SILENCE_MAX_MS)]);
}
