/**
 * observability-checks — what can be seen of the service: its log, metrics, traces and alerts.
 * Anyone who sees nothing learns of trouble from others.
 */

import type { LoadedConfig } from '../../../config/load/load-config.ts';
import { isRespoolError } from '../../../core/errors.ts';
import type { OtelApi } from '../../../observe/tracing/api.ts';
import { importPeer } from '../../../system/peer.ts';
import { examineCommand, examineRoute } from './settings-checks.ts';
import { type DoctorFinding, worthKnowing, ok, unsafe } from './finding.ts';

/** All of it. */
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
  if (level !== 'debug') return ok('log', text);
  return worthKnowing(
    'log',
    `${text}: several lines for each message`,
    'log.level: info, when all is well',
  );
}

function examineMetrics({ config }: LoadedConfig): DoctorFinding {
  const { metrics, serve } = config;
  const id = 'metrics';
  if (!metrics.enabled) {
    return worthKnowing(id, 'metrics are off: nothing is counted', 'metrics.enabled: true');
  }
  if (serve.token !== undefined || serve.tokens.length > 0) {
    return ok(id, '/metrics answers tokens of the role read');
  }
  return worthKnowing(
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
    if (hasSdk(api)) return [ok(id, 'traces go to the SDK of OpenTelemetry that is loaded here')];
    const text = 'traces are on, but no SDK of OpenTelemetry is loaded here: they go nowhere';
    const todo = 'start the service with one, as by NODE_OPTIONS="--import ./otel.mjs"';
    return [worthKnowing(id, text, todo)];
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

/** An alert that nobody hears is none. */
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
    return [worthKnowing(id, text, 'write rules into alerts.rules')];
  }
  if (kinds.every((kind) => kind === 'log')) {
    const text = `${count} without a receiver: alerts appear only in the log`;
    return [worthKnowing(id, text, 'name a receiver with http or exec in alerts.to')];
  }
  const who = kinds.length === 1 ? '1 receiver' : `${kinds.length} receivers`;
  return [ok(id, `${count} of alerts, ${who}; respool alerts test asks them`)];
}
