/**
 * settings-checks — what is dangerous or unusual about a configuration, and what it makes
 * observable: logs, metrics, traces, alerts. Reads files, opens no store.
 */

import { access, constants, readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import process from 'node:process';
import { type DoctorFinding, okFinding, unsafe, infoFinding } from './finding.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import { describeHandler, type EffectiveRoute } from '../../../config/load/routes.ts';
import { isTokenHash } from '../../../config/schema/keys.ts';
import { durationMs, formatDuration, SECOND_MS } from '../../../core/duration.ts';
import { isRespoolError, textOf } from '../../../core/errors.ts';
import type { OtelApi } from '../../../observe/tracing/api.ts';
import { importPeer } from '../../../system/peer.ts';
import { checkListen, isLoopback } from '../../../web/server/settings.ts';

/** A lease below this is lost by any hiccup of a process. Also in docs/reference/doctor.md. */
const LEASE_SHORT_MS: number = 10 * SECOND_MS;
const OTHERS_READ = 0o004;
const GROUP_READ = 0o040;
/** A user of PostgreSQL alone, or with a password that only the environment has. */
const HARMLESS_USER = /(?<=postgres(?:ql)?:)\/\/[^\s:@/"']+@|\/\/[^\s:@/"']*:\$\{[A-Za-z_]\w*\}@/g;

/** The configuration: which file, what is unusual, who can read it. */
export async function examineConfig(loaded: LoadedConfig): Promise<DoctorFinding[]> {
  const { file, folder, warnings } = loaded;
  const found =
    file === undefined
      ? infoFinding('config.file', 'no configuration file: defaults and the environment hold')
      : okFinding('config.file', `configuration ${file}`);
  const files = [...(file === undefined ? [] : [file]), path.join(folder, '.env')];
  const rights = await Promise.all(files.map((one) => examineSecrets(one, loaded)));
  return [found, ...warnings.map((text) => infoFinding('config.warning', text)), ...rights.flat()];
}

async function examineSecrets(file: string, loaded: LoadedConfig): Promise<DoctorFinding[]> {
  const text = await readFile(file, 'utf8').catch(() => undefined);
  if (text === undefined || process.platform === 'win32') return [];
  // The hash of a random token gives nothing away.
  const { token, tokens } = loaded.config.serve;
  const hashes = [
    ...tokens.map(({ sha256 }) => sha256),
    ...(isTokenHash(token) ? [token ?? ''] : []),
  ];
  const plain = hashes
    .reduce((rest, hash) => rest.replaceAll(hash, ''), text)
    .replaceAll(HARMLESS_USER, '//');
  if (loaded.hide(plain) === plain) return [];
  const { mode } = await stat(file);
  const id = 'config.secrets';
  const todo = `chmod 600 "${file}", or keep secrets in the environment`;
  if ((mode & OTHERS_READ) !== 0) {
    return [
      unsafe(id, `"${file}" contains secrets and every user of this machine can read it`, todo),
    ];
  }
  if ((mode & GROUP_READ) !== 0) {
    return [infoFinding(id, `"${file}" holds secrets and its group can read it`, todo)];
  }
  return [okFinding(id, `"${file}" holds secrets and only its owner can read it`)];
}

/** Where the service listens and which clients it accepts. */
export function examineServe({ config }: LoadedConfig): DoctorFinding[] {
  const { serve } = config;
  const id = 'serve.listen';
  const at = `${serve.host}:${serve.port}`;
  try {
    checkListen(serve);
  } catch (error) {
    return [unsafe(id, textOf(error), 'see serve.token, serve.tokens and serve.tls')];
  }
  const hasToken = serve.token !== undefined || serve.tokens.length > 0;
  if (!hasToken) {
    return [
      infoFinding(
        id,
        `the service listens on ${at} without a token: every account of this machine may use it`,
        'on a machine that is shared: respool token create, and put its line into serve.tokens',
      ),
    ];
  }
  if (!isLoopback(serve.host) && serve.tls === undefined) {
    const text = `the service listens on ${at} in plain text, behind a proxy`;
    return [infoFinding(id, text, 'make sure that only the proxy reaches it')];
  }
  return [okFinding(id, `the service listens on ${at} and asks for a token`)];
}

/** The address that commands go to. */
export function examineUrl(url: string | undefined): DoctorFinding[] {
  if (url === undefined || !URL.canParse(url)) return [];
  const { protocol, hostname } = new URL(url);
  if (protocol !== 'http:' || isLoopback(hostname)) return [];
  const text = `commands go to ${hostname} in plain text: who listens gets the token`;
  return [unsafe('url.plain', text, 'use https:, or a tunnel')];
}

/** Routes: where they go, and whether their numbers fit together. */
export async function examineRoutes({ config }: LoadedConfig): Promise<DoctorFinding[]> {
  const routes = [
    ...config.routes.map((route, at) => ({ route, key: `routes[${at}]` })),
    ...config.bounces.map((route, at) => ({ route, key: `bounces[${at}]` })),
    ...config.consumers.map(({ queue, deliver, timeout }, at) => ({
      route: { topic: queue, deliver: deliver ?? (() => undefined), timeout },
      key: `consumers[${at}]`,
    })),
  ];
  const findings = routes.flatMap(({ route, key }) => examineRoute(route, key));
  for (const { route, key } of routes) findings.push(...(await examineCommand(route, key)));
  const relay = config.outbox?.relay;
  if (relay?.target.kind === 'deliver') {
    const route = { ...relay.target, topic: relay.topics.join(' ') };
    findings.push(...examineRoute(route, 'outbox.relay.to'));
    findings.push(...(await examineCommand(route, 'outbox.relay.to')));
  }
  findings.push(...config.consumers.flatMap((consumer, at) => examineBroker(consumer.url, at)));
  if (config.routes.length === 0 && config.consumers.length === 0) {
    const todo = 'add a route to the configuration; respool init writes one';
    findings.push(
      infoFinding('routes.none', 'there is no route: nothing is delivered from here', todo),
    );
  }
  const leaseMs = durationMs(config.lease ?? '60s', 'lease');
  if (leaseMs < LEASE_SHORT_MS) {
    findings.push(
      infoFinding(
        'lease.short',
        `lease is ${formatDuration(leaseMs)}: a process that stands still so long loses its ` +
          'messages to another, and they are delivered twice',
        'take 30s or more',
      ),
    );
  }
  const { length } = config.consumers;
  const assumed = assumedTopology(length);
  if (findings.length > 0) return [...findings, ...assumed];
  const rest = routes.length - length;
  const count = rest === 1 ? '1 route' : `${rest} routes`;
  if (length > 0) {
    const consumers = length === 1 ? '1 consumer' : `${length} consumers`;
    return [okFinding('routes', `${count} and ${consumers}, no problems found`), ...assumed];
  }
  return [okFinding('routes', `${count}, no problems found`)];
}

/** Brokers are not asked here: what is said of a queue is what the configuration says. */
function assumedTopology(consumers: number): DoctorFinding[] {
  if (consumers === 0) return [];
  const what = consumers === 1 ? 'its queue' : `their ${consumers} queues`;
  return [
    infoFinding(
      'consumers.topology',
      `${consumers === 1 ? 'a consumer is' : `${consumers} consumers are`} configured; the ` +
        `topology of ${what} is assumed, not verified: no broker was asked`,
      'respool rabbit doctor',
    ),
  ];
}

function examineBroker(url: string, at: number): DoctorFinding[] {
  const { protocol, hostname } = new URL(url);
  if (protocol !== 'amqp:' || isLoopback(hostname)) return [];
  const text = `consumers[${at}] talks to ${hostname} in plain text: who listens gets the password`;
  return [unsafe(`consumers[${at}].url.plain`, text, 'use amqps:')];
}

/** One route: where it sends to, and its times. */
function examineRoute(
  route: Pick<EffectiveRoute, 'topic' | 'deliver'> & Partial<Pick<EffectiveRoute, 'timeout'>>,
  key: string,
): DoctorFinding[] {
  const told = describeHandler(route.deliver);
  const findings: DoctorFinding[] = [];
  for (const url of urlsOf(told)) {
    const { protocol, hostname } = new URL(url);
    if (protocol !== 'http:' || isLoopback(hostname)) continue;
    const text = `${key} "${route.topic}" sends to ${hostname} in plain text`;
    findings.push(unsafe(`${key}.plain`, text, 'use https:'));
  }
  const allowed = Array.isArray(told['allow']) ? (told['allow'] as readonly unknown[]) : [];
  if (allowed.some((host) => /^169\.254\.|^\[?fd00:ec2::254/.test(String(host)))) {
    const text = `${key} "${route.topic}" may reach the metadata of a cloud machine, and its keys`;
    findings.push(unsafe(`${key}.allow`, text, 'take the address out of "allow"'));
  }
  const { timeoutMs } = told;
  // A relay has no time of its own.
  const { timeout } = route;
  const limitMs = timeout === undefined ? Number.POSITIVE_INFINITY : durationMs(timeout, 'timeout');
  if (typeof timeoutMs === 'number' && timeoutMs > limitMs) {
    findings.push(
      infoFinding(
        `${key}.timeout`,
        `${key} "${route.topic}" may take ${formatDuration(limitMs)}, its request ` +
          `${formatDuration(timeoutMs)}: the request's own limit is never reached`,
        'make the timeout of the route the longer one',
      ),
    );
  }
  return findings;
}

function urlsOf(byName: Readonly<Record<string, unknown>>): string[] {
  const { url, urls } = byName;
  const several = typeof urls === 'object' && urls !== null ? Object.values(urls) : [];
  return [url, ...several].filter(
    (one): one is string => typeof one === 'string' && URL.canParse(one),
  );
}

// Whether the program that a route runs is there and may be run. Runs nothing.

/** Programs that run the file they are given as their first word. */
const INTERPRETER = /^(?:sh|bash|dash|zsh|ksh|node|bun|deno|python[\d.]*|ruby|perl|php)$/;

/** The command of a route with `exec`; nothing for other routes. */
async function examineCommand(
  { topic, deliver }: Pick<EffectiveRoute, 'topic' | 'deliver'>,
  key: string,
): Promise<DoctorFinding[]> {
  const { kind, command, cwd, env } = describeHandler(deliver);
  if (kind !== 'exec' || !Array.isArray(command)) return [];
  const [program = '', ...words] = command.map(String);
  const folder = typeof cwd === 'string' ? cwd : process.cwd();
  const id = `${key}.exec`;
  const who = `${key} "${topic}" runs ${JSON.stringify(program)}`;
  if ((await stat(folder).catch(() => undefined))?.isDirectory() !== true) {
    const text = `${who} in the folder "${folder}", which is not there`;
    return [unsafe(id, text, 'make the folder, or change "cwd"')];
  }
  // With a search path of its own the command may find what is not found here.
  const hasOwnPath = typeof env === 'object' && env !== null && 'PATH' in env;
  const wrong = await whyNotRunnable(program, folder);
  if (wrong !== undefined && !(hasOwnPath && !program.includes('/'))) {
    return [
      unsafe(
        id,
        `${who}, which ${wrong}`,
        'every delivery fails; create the file, or correct the command',
      ),
    ];
  }
  return examineScript(words[0], { id, who, program, folder });
}

/** The file that an interpreter is given. */
async function examineScript(
  script: string | undefined,
  at: { readonly id: string; readonly who: string; program: string; readonly folder: string },
): Promise<DoctorFinding[]> {
  const { id, who, program, folder } = at;
  if (script === undefined || !INTERPRETER.test(path.basename(program))) return [];
  if (script.startsWith('-') || !/[/.]/.test(script)) return [];
  const file = path.resolve(folder, script);
  if ((await stat(file).catch(() => undefined)) !== undefined) return [];
  const text = `${who} with "${script}", and there is no file "${file}"`;
  return [infoFinding(id, text, 'create the file, or correct the command')];
}

/** What is wrong with a program, as spawn() looks for it; undefined when nothing is. */
async function whyNotRunnable(program: string, folder: string): Promise<string | undefined> {
  if (program.includes('/')) return whyNotFile(path.resolve(folder, program));
  for (const one of (process.env['PATH'] ?? '').split(path.delimiter)) {
    if (one !== '' && (await whyNotFile(path.resolve(folder, one, program))) === undefined) {
      return undefined;
    }
  }
  return process.platform === 'win32' ? undefined : 'is not found in PATH';
}

async function whyNotFile(file: string): Promise<string | undefined> {
  const found = await stat(file).catch(() => undefined);
  if (found === undefined) return `is not there: no file "${file}"`;
  if (!found.isFile()) return `is no file: "${file}"`;
  try {
    await access(file, constants.X_OK);
    return undefined;
  } catch {
    return `may not be run by this account: chmod +x "${file}"`;
  }
}

/** The log, metrics, traces and alerts. */
export async function examineObservability(loaded: LoadedConfig): Promise<DoctorFinding[]> {
  return [
    examineLog(loaded),
    examineMetrics(loaded),
    ...(await examineTracing(loaded)),
    ...(await examineAlerts(loaded)),
  ];
}

function examineLog({ config }: LoadedConfig): DoctorFinding {
  const { format, level, redact } = config.log;
  const hidden = redact.length === 0 ? '' : `; ${redact.join(', ')} are hidden besides`;
  const text = `the log is ${format}, ${level} and above${hidden}`;
  if (level !== 'debug') return okFinding('log', text);
  return infoFinding(
    'log',
    `${text}: several lines for each message`,
    'log.level: info, when all is well',
  );
}

function examineMetrics({ config }: LoadedConfig): DoctorFinding {
  const { metrics, serve } = config;
  const id = 'metrics';
  if (!metrics.enabled) {
    return infoFinding(id, 'metrics are off: nothing is counted', 'metrics.enabled: true');
  }
  if (serve.token !== undefined || serve.tokens.length > 0) {
    return okFinding(id, '/metrics answers tokens of the role read');
  }
  return infoFinding(
    id,
    'anyone who reaches the service can read /metrics, with names of topics and queues',
    'respool token create, and put its line into serve.tokens',
  );
}

async function examineTracing({ config }: LoadedConfig): Promise<DoctorFinding[]> {
  if (!config.tracing.enabled) return [];
  const id = 'tracing';
  try {
    const api = (await importPeer('@opentelemetry/api', 'traces')) as unknown as OtelApi;
    if (hasSdk(api))
      return [okFinding(id, 'traces go to the SDK of OpenTelemetry that is loaded here')];
    const text = 'traces are on, but no SDK of OpenTelemetry is loaded here: they go nowhere';
    const todo = 'start the service with one, as by NODE_OPTIONS="--import ./otel.mjs"';
    return [infoFinding(id, text, todo)];
  } catch (error) {
    if (!isRespoolError(error, 'peer.missing')) throw error;
    const todo = 'npm install @opentelemetry/api, or tracing.enabled: false';
    return [unsafe(id, error.message, todo)];
  }
}

/** Without one, spans have no id. Nothing is written: the span is never ended. */
function hasSdk(api: OtelApi): boolean {
  const tracer = api.trace.getTracerProvider().getTracer('respool');
  const span = tracer.startSpan('doctor', { kind: 0, attributes: {}, links: [] }, api.ROOT_CONTEXT);
  return api.isSpanContextValid(span.spanContext());
}

/** An alert without a receiver is useless. */
async function examineAlerts({ config }: LoadedConfig): Promise<DoctorFinding[]> {
  const { rules, to } = config.alerts;
  const receivers = Object.entries(to);
  const found: DoctorFinding[] = [];
  for (const [name, { deliver }] of receivers) {
    if (deliver === undefined) continue;
    const route = { topic: name, deliver, timeout: '1d' };
    found.push(...examineRoute(route, `alerts.to.${name}`));
    found.push(...(await examineCommand(route, `alerts.to.${name}`)));
  }
  return [
    ...reachOf(
      rules.length,
      receivers.map(([, { kind }]) => kind),
    ),
    ...found,
  ];
}

function reachOf(rules: number, kinds: readonly string[]): DoctorFinding[] {
  const id = 'alerts';
  const count = rules === 1 ? '1 rule' : `${rules} rules`;
  if (rules === 0 && kinds.length === 0) return [];
  if (rules === 0) {
    const text = 'there are alert receivers, but no rule that uses them';
    return [infoFinding(id, text, 'write rules into alerts.rules')];
  }
  if (kinds.every((kind) => kind === 'log')) {
    const text = `${count} without a receiver: alerts appear only in the log`;
    return [infoFinding(id, text, 'name a receiver with http or exec in alerts.to')];
  }
  const who = kinds.length === 1 ? '1 receiver' : `${kinds.length} receivers`;
  return [okFinding(id, `${count} of alerts, ${who}; respool alerts test asks them`)];
}
