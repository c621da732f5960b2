/**
 * service — the life of `respool serve`, from the configuration to the exit code.
 *
 *   open the store → listen → deliver ─signal─▶ take nothing new → drain → close → 0
 *                                      └─second signal─▶ end at once
 *
 * Listening comes before delivering: when the port is taken, nothing has been delivered yet.
 *
 * Beside the spool it runs what the configuration has: consumers, a relay, rules for dead letters
 * and alerts. They start after the spool; alerts, rules and the relay stop before it, since they
 * write to it.
 */

import { logLevelOf, createServeLog, type ServeLog } from './serve-log.ts';
import { type ServiceEnd, listenForTheEnd } from '../../lifetime.ts';
import path from 'node:path';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import { closeHandlers } from '../../../config/open/handlers.ts';
import {
  type ConfiguredSpool,
  createConfiguredSpool,
  type RouteInfo,
} from '../../../config/open/open-spool.ts';
import { durationMs } from '../../../core/duration.ts';
import { textOf } from '../../../core/errors.ts';
import { topicMatches } from '../../../core/topic.ts';
import { isNoticeTopic } from '../../../observe/alerts/notice.ts';
import { withRedaction } from '../../../observe/logs/pretty.ts';
import { jsonLine, safe } from '../../../observe/logs/safe-text.ts';
import { DiskMeter, forecastOf, ThroughputMeter } from '../../../spool/operator/throughput.ts';
import { createServiceOperator, serializeEvent } from '../../../spool/operator/spool-operator.ts';
import type { Clock } from '../../../ports/clock.ts';
import type { Logger } from '../../../ports/logger.ts';
import { internalsOf, type SpoolInternals } from '../../../spool/internals.ts';
import type { Spool } from '../../../spool/spool.ts';
import { readVersion } from '../../../system/version.ts';
import { createService } from '../../../web/server/service.ts';
import { EXIT, type ExitCode } from '../../exit-codes.ts';
import type { CommandContext } from '../../spec.ts';
import type { AlertsService, PreparedAlerts } from '../alerts/alerts-service.ts';
import type { RulesService } from '../dlq/replay/rules.ts';
import type { RelayService } from '../outbox/relay.ts';
import type { ConsumersService } from '../rabbit/consume.ts';
import { freeBytesAt } from '../alerts/external-measures.ts';
import { brokerAt, tlsOfRabbit } from '../../../config/load/brokers.ts';
import type { EffectiveConsumer } from '../../../config/load/consumers.ts';
import type { ConfiguredConsumer } from '../../../config/open/open-consumers.ts';
import type { OpenRelay } from '../../../config/open/open-outbox.ts';
import type { AlertState } from '../../../observe/alerts/state.ts';
import type { Metrics } from '../../../observe/metrics/metrics.ts';
import type { WatchOptions } from '../../../observe/metrics/options.ts';
import type { WatchedAlert } from '../../../observe/metrics/types.ts';
import { createManagement, type Management } from '../../../rabbit/management/management.ts';

type Service = ReturnType<typeof createService>;

/** Everything that runs. */
interface Running {
  readonly configured: ConfiguredSpool;
  readonly service: Service;
  readonly log: ServeLog;
  readonly loaded: LoadedConfig;
  /** undefined: they are off. */
  readonly metrics: ServeMetrics | undefined;
  /** undefined: there are none. */
  readonly consumers: ConsumersService | undefined;
  /** undefined: there is none. */
  readonly relay: RelayService | undefined;
  /** undefined: there are none. */
  readonly rules: RulesService | undefined;
  /** undefined: there are none. */
  readonly alerts: AlertsService | undefined;
}

/** Serves until SIGTERM or SIGINT, or until an uncaught error. */
export async function serveUntilSignal(
  context: CommandContext,
  flags: Readonly<Record<string, unknown>>,
): Promise<ExitCode> {
  const ending = listenForTheEnd(context);
  const loaded = await context.config({ flags, routes: true });
  const { config, hide } = loaded;
  const log = createServeLog(context.io, context.out, {
    format: config.log.format,
    level: logLevelOf(context, config.log.level),
    hide,
    redact: config.log.redact,
  });
  const alerting = await prepareAlerts(context, { loaded, log });
  const configured = await createConfiguredSpool(loaded, {
    storeLogger: storeLoggerOf(log, config.log.redact),
    prepare: alerting?.register,
  });
  context.atEnd(() => configured.close());
  const { spool } = configured;
  const internals = internalsOf(spool);
  // Whatever ends the start half-way: what is open by then is closed.
  context.atEnd(() => spool.stop({ within: 0 }));
  spool.on('*', (event) => log.event(serializeEvent(event)));
  warnOfStrays(configured, log);
  const metrics = await startMetrics(context, loaded, spool);
  const startConsumers = await prepareConsumers(context, { loaded, log, metrics });
  const startRelay = await prepareRelay(context, { configured, loaded, log, metrics });
  // Opens the store; a store that another process owns is refused here.
  await internals.open();
  let isReady = false;
  let consumers: ConsumersService | undefined = undefined;
  let relay: RelayService | undefined = undefined;
  let storeId: string | undefined = undefined;
  const meter = new ThroughputMeter(internals);
  const disk = diskMeterOf(context, configured);
  metrics?.watchMeters({ meter, disk });
  const service = createService({
    operator: (by) => createServiceOperator(internals, { by, meter, disk }),
    settings: config.serve,
    bodyMaxBytes: config.limits?.bodyBytes ?? BODY_MAX_BYTES_DEFAULT,
    clock: context.io.clock,
    logger: loggerOf(log, config.log.redact),
    isReady: () => isReady,
    storeId: () => storeId,
    consumers: () => consumers?.health(),
    relay: () => relay?.health(),
    metrics: metrics && (() => metrics.text()),
    version: readVersion(),
  });
  context.atEnd(() => service.stop(0));
  const { url } = await service.listen();
  await spool.start();
  storeId = await internals.announce(url);
  consumers = startConsumers?.();
  relay = startRelay?.();
  const rules = await startRules(context, { configured, loaded, log });
  const alerts = alerting?.start({ configured, consumers, relay });
  context.atEnd(() => alerts?.stop(0));
  isReady = true;
  const running = { configured, service, log, loaded, metrics, consumers, relay, rules, alerts };
  welcome(running, url, context.io.cwd);
  const end = await ending;
  isReady = false;
  await wind(running, end, context.io.clock);
  return end.kind === 'error' ? EXIT.refused : EXIT.done;
}

/** Looks at the disk of the store, if it is on one here. */
function diskMeterOf(
  { io, atEnd }: CommandContext,
  { place }: ConfiguredSpool,
): DiskMeter | undefined {
  const { path: folder } = place;
  if (folder === undefined) return undefined;
  const meter = new DiskMeter(() => freeBytesAt(folder), io.clock);
  atEnd(() => meter.stop());
  return meter;
}

/** The alerts of the configuration, if there are any. */
async function prepareAlerts(
  context: CommandContext,
  parts: Pick<Running, 'loaded' | 'log'>,
): Promise<PreparedAlerts | undefined> {
  const { rules, to } = parts.loaded.config.alerts;
  // With receivers alone, rules that were taken out while they fired are ended.
  if (rules.length === 0 && Object.keys(to).length === 0) return undefined;
  return (await import('../alerts/alerts-service.ts')).prepareAlerts(context, parts);
}

/** The start of the consumers of the configuration, if there are any. */
async function prepareConsumers(
  { io, atEnd }: CommandContext,
  { loaded, log, metrics }: Pick<Running, 'loaded' | 'log' | 'metrics'>,
): Promise<(() => ConsumersService) | undefined> {
  const { consumers } = loaded.config;
  if (consumers.length === 0) return undefined;
  atEnd(() => closeHandlers(consumers));
  const { createConfiguredConsumers } = await import('../../../config/open/open-consumers.ts');
  const { startConsumers } = await import('../rabbit/consume.ts');
  const { clock } = io;
  const made = await createConfiguredConsumers(loaded, { clock });
  await metrics?.watchConsumers(made);
  return () => {
    const life = startConsumers(made, { clock, log, isBesideSpool: true });
    // Whatever ends it half-way; after an orderly stop there is nothing left to do.
    atEnd(() => life.stop(0));
    return life;
  };
}

/** The start of the relay of the configuration, if it has one. */
async function prepareRelay(
  { io, atEnd }: CommandContext,
  { configured, loaded, log, metrics }: Pick<Running, 'configured' | 'loaded' | 'log' | 'metrics'>,
): Promise<(() => RelayService) | undefined> {
  if (loaded.config.outbox?.relay === undefined) return undefined;
  const { createConfiguredRelay } = await import('../../../config/open/open-outbox.ts');
  const { startRelay } = await import('../outbox/relay.ts');
  const { clock } = io;
  const spool = (): Promise<Spool> => Promise.resolve(configured.spool);
  const made = await createConfiguredRelay(loaded, { spool });
  metrics?.watchRelay(made);
  return () => {
    const life = startRelay(made, { clock, log, isVerbose: true, isBesideSpool: true });
    // As for consumers.
    atEnd(() => life.stop(0));
    return life;
  };
}

/** Starts the rules for dead letters, if the configuration has some. */
async function startRules(
  context: CommandContext,
  { configured, loaded, log }: Pick<Running, 'configured' | 'loaded' | 'log'>,
): Promise<RulesService | undefined> {
  if (loaded.config.deadLetters.rules.length === 0) return undefined;
  const { startRules: start } = await import('../dlq/replay/rules.ts');
  const life = await start(context, { loaded, spool: configured.spool, log });
  // As for consumers.
  context.atEnd(() => life.stop(0));
  return life;
}

/** As `limits.bodyBytes` of spool/options.ts. */
const BODY_MAX_BYTES_DEFAULT = 64 * 2 ** 20;

async function wind(running: Running, end: ServiceEnd, clock: Clock): Promise<void> {
  const { configured, service, log, loaded, consumers, relay, rules, alerts } = running;
  const { stopWithin } = loaded.config.serve;
  if (end.kind === 'error') {
    log.say('error', `stopping after an uncaught error: ${textOf(end.error)}`);
  } else {
    log.say('info', `stopping after ${end.signal}, within ${String(stopWithin)}`, {
      signal: end.signal,
    });
  }
  // One deadline for all of it: after that the supervisor kills the process.
  const withinMs = durationMs(stopWithin, 'serve.stopWithin');
  const endsAt = clock.monotonic() + withinMs;
  const leftMs = (): number => Math.max(0, endsAt - clock.monotonic());
  service.beginStop();
  // Short posts that have begun are taken before the spool closes; a client that stalls must not
  // use up the time of the deliveries.
  await service.drain(withinMs / 4);
  // Before the spool, whose records they write.
  await alerts?.stop(leftMs() / 4);
  await rules?.stop(leftMs() / 2);
  // Before the spool: a relay may send into it.
  await relay?.stop(leftMs() / 2);
  await Promise.all([configured.spool.stop({ within: leftMs() }), consumers?.stop(leftMs())]);
  await service.stop(leftMs());
  log.say('info', 'stopped');
}

function welcome({ configured, log, loaded }: Running, url: string, cwd: string): void {
  const { place, routes } = configured;
  // A store of files has its entries one folder below the one that was named.
  const named = place.kind === 'file' ? place.path?.replace(/\/entries$/, '') : place.path;
  const given = place.address ?? place.kind;
  const where = named === undefined ? given : `${place.kind}:${near(named, cwd)}`;
  log.say('info', `listening on ${url}, store ${where}`, { url, store: where });
  const { consumers, outbox } = loaded.config;
  if (routes.length === 0 && consumers.length === 0 && outbox?.relay === undefined) {
    log.say('warn', 'nothing is delivered: there are no routes; respool init makes an example');
  }
  for (const route of routes) log.say('info', routeText(route), { route });
  const topic = routes.find(({ lane }) => lane === 'delivery')?.topic ?? 'hello';
  const example = topic.replaceAll('*', 'new').replaceAll('#', 'new');
  const auth = needsToken(loaded) ? ` -H "authorization: Bearer $RESPOOL_TOKEN"` : '';
  log.say('info', `post with: curl${auth} -d '{"hello":1}' ${url}/v1/topics/${example}/messages`);
}

/** A topic with a typing error would otherwise wait without a word. */
function warnOfStrays({ spool, routes }: ConfiguredSpool, log: ServeLog): void {
  const reported = new Set<string>();
  const patterns = routes.filter(({ lane }) => lane === 'delivery').map(({ topic }) => topic);
  spool.on('accepted', ({ topic }) => {
    if (reported.size >= STRAYS_MAX || reported.has(topic)) return;
    if (isNoticeTopic(topic) || patterns.some((one) => topicMatches(one, topic))) return;
    reported.add(topic);
    log.say('warn', `no route delivers the topic ${safe(topic)}: its messages wait, and are held`, {
      topic,
    });
  });
}

/** Maximum number of topics without a route that are reported. */
const STRAYS_MAX = 100;

function routeText({ lane, topic, deliver, policy, concurrency }: RouteInfo): string {
  const { kind = 'handler', url, urls, command, handler } = deliver;
  const to = [url ?? urls ?? command ?? handler].flat().map(shown).join(' ');
  const verb = lane === 'notice' ? 'announces bounces of' : 'delivers';
  return `${verb} ${topic} by ${shown(kind)} ${to} (policy ${policy}, ${concurrency} at once)`;
}

function shown(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** Relative to here, where it is below; a path that leads far away is clearer in full. */
function near(file: string, cwd: string): string {
  const way = path.relative(cwd, file);
  return way.startsWith('..') || path.isAbsolute(way) ? file : `./${way}`;
}

function needsToken({ config }: LoadedConfig): boolean {
  return config.serve.token !== undefined || config.serve.tokens.length > 0;
}

// Loggers whose lines go to the log of the service.

/** What the service itself says matters when something is refused or fails. */
function loggerOf(log: ServeLog, names: readonly string[]): Logger {
  // Hidden before it becomes a text, in which a name tells nothing any more.
  return withRedaction(
    {
      debug: () => undefined,
      info: () => undefined,
      warn: (fields, text) => log.say('warn', `${text} ${jsonLine(fields)}`, fields),
      error: (fields, text) => log.say('error', `${text} ${jsonLine(fields)}`, fields),
    },
    { names },
  );
}

/** What stores say of their servers comes once, when they open. */
function storeLoggerOf(log: ServeLog, names: readonly string[]): Logger {
  return {
    ...loggerOf(log, names),
    info: (fields, text) => log.say('info', text, fields),
    warn: (fields, text) => log.say('warn', text, fields),
  };
}

// What is counted and answered at `/metrics`, as `metrics.*` of the configuration says.

/** Metrics of a service. */
interface ServeMetrics extends Pick<Metrics, 'text'> {
  /** All consumers of the configuration, in its order. */
  readonly watchConsumers: (consumers: readonly ConfiguredConsumer[]) => Promise<void>;
  readonly watchRelay: (relay: OpenRelay) => void;
  /** Starts reporting forecasts. */
  readonly watchMeters: (meters: Meters) => void;
}

/** What forecasts are made of. */
interface Meters {
  readonly meter: ThroughputMeter;
  readonly disk: DiskMeter | undefined;
}

/** Begins to count what the spool does; undefined: metrics are off. */
async function startMetrics(
  { io, atEnd }: CommandContext,
  { config }: LoadedConfig,
  spool: Spool,
): Promise<ServeMetrics | undefined> {
  const { enabled, aliases, topicsMax, queuesMax, every } = config.metrics;
  if (!enabled) return undefined;
  const { createMetrics } = await import('../../../observe/metrics/metrics.ts');
  const metrics = await createMetrics({
    aliases,
    topicsMax,
    queuesMax,
    every,
    processMetrics: true,
    clock: io.clock,
  });
  atEnd(() => metrics.close());
  let meters: Meters | undefined;
  const forecast: WatchOptions['forecast'] = (backlog) =>
    meters === undefined || !spool.load.isRunning
      ? undefined
      : forecastOf(meters.meter.flow, backlog, meters.disk?.fullInMs ?? null);
  const { rules } = config.alerts;
  metrics.watch(spool, {
    forecast,
    ...(rules.length === 0 ? {} : { alerts: () => standingOf(rules, internalsOf(spool)) }),
  });
  return {
    text: () => metrics.text(),
    watchConsumers: (result) => watchConsumers(metrics, config, result, atEnd),
    watchRelay: (result) => watchRelay(metrics, config, result),
    watchMeters: (value) => {
      meters = value;
    },
  };
}

/** Every rule of the configuration, as it is on record; one that is not has never fired. */
async function standingOf(
  rules: LoadedConfig['config']['alerts']['rules'],
  { records }: SpoolInternals,
): Promise<readonly WatchedAlert[]> {
  const { STATE_KIND } = await import('../../../observe/alerts/records.ts');
  const { isFiring } = await import('../../../observe/alerts/state.ts');
  const found = await records.list(STATE_KIND);
  const states = new Map(found.map(({ key, value }) => [key, value as AlertState]));
  return rules.map(({ name }) => {
    const state = states.get(name);
    return { rule: name, isFiring: state !== undefined && isFiring(state) };
  });
}

// The consumers and the relay of a configuration, watched. The management API is
// asked only where the configuration names it: a guess would fail at every scrape.

type Config = LoadedConfig['config'];

/** Watches them all, in the order of the configuration; `atEnd` receives what to close. */
async function watchConsumers(
  metrics: Pick<Metrics, 'watchConsumer'>,
  config: Config,
  configuredConsumers: readonly ConfiguredConsumer[],
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
  for (const [at, { consumer }] of configuredConsumers.entries()) {
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
