/**
 * alerts-ground — alerts over a spool in memory and virtual time, and receivers over real HTTP.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock, Handler, Spool, SpoolEvent } from 'respool';
import { http } from 'respool/deliver';
import { onTestFinished } from 'vitest';
import { parseCondition } from 'respool/observe';
import type {
  AlertAction,
  AlertActionCall,
  AlertOptions,
  AlertRule,
} from '../../src/observe/alerts/types.ts';
import { type Alerts, createAlerts } from '../../src/observe/alerts/evaluate.ts';
import { createMeasures, type Measures } from '../../src/observe/alerts/measures.ts';
import type {
  ExternalMeasures,
  MeasureReading,
} from '../../src/observe/alerts/external-measures.ts';
import type { Notice } from '../../src/observe/alerts/notice.ts';
import { registerReceivers } from '../../src/observe/alerts/receivers.ts';
import type { AlertState } from '../../src/observe/alerts/state.ts';
import { setup, type World } from '../spool/setup.ts';
import { internalsOf } from '../../src/spool/internals.ts';

/** Between two rounds. */
export const EVERY_MS = 15_000;

/** A rule for one receiver. */
export function ruleOf(
  name: string,
  when: string,
  actions: readonly AlertAction[] = [],
): AlertRule {
  return { name, when: parseCondition(when), to: ['ops'], actions };
}

/** How alerts differ from the usual ones. */
export interface AlertsOptions extends ExternalMeasures {
  readonly rules: readonly AlertRule[];
  readonly receivers: ReadonlyMap<string, Handler>;
  readonly name?: string;
  readonly everyMs?: number;
  readonly act?: (deed: AlertActionCall, by: string) => Promise<void>;
  readonly measures?: Measures;
  /** Default: that of the spool. */
  readonly enqueue?: AlertOptions['enqueue'];
  readonly host?: string;
  readonly hide?: (text: string) => string;
}

/** Alerts, and what they told. */
export interface Ground {
  readonly alerts: Alerts;
  readonly measures: Measures;
  readonly told: SpoolEvent[];
}

/** Alerts over a spool; the receivers' routes are registered. */
export function alertsOver(spool: Spool, clock: Clock, options: AlertsOptions): Ground {
  const {
    rules,
    receivers,
    name = 'one',
    everyMs = EVERY_MS,
    act,
    host,
    hide,
    ...around
  } = options;
  const wanted = rules.map(({ when }) => when.measure);
  const measures =
    options.measures ?? createMeasures({ ...around, spool: internalsOf(spool), clock, wanted });
  onTestFinished(() => measures.close());
  registerReceivers(spool, receivers);
  const told: SpoolEvent[] = [];
  const alerts = createAlerts({
    rules,
    everyMs,
    clock,
    now: () => internalsOf(spool).now(),
    name,
    records: spool.operator({ by: 'ops' }).records,
    enqueue: options.enqueue ?? ((message) => spool.enqueue(message)),
    measures,
    receivers,
    act: act ?? (() => Promise.resolve()),
    tell: (event) => {
      told.push(event);
      internalsOf(spool).emit(event);
    },
    host,
    ...(hide === undefined ? {} : { hide }),
  });
  return { alerts, measures, told };
}

/** A receiver that keeps what it gets in memory. */
export function earOf(): { readonly handler: Handler; readonly heard: Notice[] } {
  const heard: Notice[] = [];
  const handler: Handler = async (delivery) => {
    heard.push((await delivery.json()) as Notice);
  };
  return { handler, heard };
}

/** A receiver over HTTP. */
export interface HttpEar {
  readonly url: string;
  readonly handler: Handler;
  readonly heard: Notice[];
  readonly ids: string[];
  /** What it answers with. */
  status: number;
}

/** Listens on a port of its own; gone after the test. */
export async function httpEar(): Promise<HttpEar> {
  const heard: Notice[] = [];
  const ids: string[] = [];
  const server = createServer((request, answer) => {
    let text = '';
    request.on('data', (piece: Buffer) => (text += piece.toString()));
    request.on('end', () => {
      if (ear.status < 300) {
        heard.push(JSON.parse(text) as Notice);
        ids.push(String(request.headers['idempotency-key']));
      }
      answer.statusCode = ear.status;
      answer.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}/hook`;
  const handler = http({ url, allow: ['127.0.0.1'] });
  onTestFinished(() => handler.close?.());
  const ear: HttpEar = { url, handler, heard, ids, status: 200 };
  return ear;
}

/** Measures that say what the test wants. */
export function dial(
  reading: MeasureReading = { value: 0 },
): Measures & { reading: MeasureReading } {
  const measures = {
    reading,
    read: () => Promise.resolve(measures.reading),
    forecast: () => Promise.resolve(undefined),
    close: () => undefined,
  };
  return measures;
}

/** Alerts over a spool of their own, with one rule. */
export interface Scene extends Ground, World {
  readonly ear: ReturnType<typeof earOf>;
  readonly dials: ReturnType<typeof dial>;
  /** Rounds, one after the other. */
  readonly rounds: (count: number, alerts?: Ground['alerts']) => Promise<void>;
  readonly phases: () => string[];
  readonly state: (rule: string) => Promise<AlertState | undefined>;
}

/** A rule `r` whose measure says what the test wants. */
export async function scene(when: string, options: Partial<AlertsOptions> = {}): Promise<Scene> {
  const world = await setup();
  const { spool, clock } = world;
  const ear = earOf();
  const dials = dial();
  const ground = alertsOver(spool, clock, {
    rules: [ruleOf('r', when)],
    receivers: new Map([['ops', ear.handler]]),
    measures: dials,
    ...options,
  });
  return {
    ...world,
    ...ground,
    ear,
    dials,
    rounds: async (count, alerts = ground.alerts) => {
      for (let at = 0; at < count; at += 1) {
        await clock.advance(EVERY_MS);
        await alerts.round();
      }
      await clock.settle();
    },
    phases: () => ear.heard.map(({ phase, episode }) => `${phase} ${episode}`),
    state: async (rule) =>
      (await spool.operator({ by: 'ops' }).records.get('alert.state', rule))?.value as
        | AlertState
        | undefined,
  };
}
