/** alerts — where rules stand, what they measure now, and whether telling works. */

import os from 'node:os';
import type { LoadedConfig } from '../../connect/load-config.ts';
import { formatDuration } from '../../core/duration.ts';
import { fulfils, printCondition, printReading } from '../../observe/alerts/condition.ts';
import { STATE_KIND } from '../../observe/alerts/evaluate.ts';
import { createMeasures, type Reading } from '../../observe/alerts/measures.ts';
import type { Notice } from '../../observe/alerts/notice.ts';
import { noticeOf } from '../../observe/alerts/notice.ts';
import { tellDirectly } from '../../observe/alerts/receivers.ts';
import { type AlertState, isFiring } from '../../observe/alerts/state.ts';
import type { AlertRule } from '../../observe/alerts/types.ts';
import { readConfig } from '../config.ts';
import { CommandError, EXIT, type ExitCode } from '../exit-codes.ts';
import { numberText, safe } from '../safe.ts';
import type { CommandContext } from '../spec.ts';
import { type Column, tableOf } from '../table.ts';
import { relative } from '../times.ts';
import { receiversOf } from './alert-receivers.ts';
import { surroundingsOf } from './alert-surroundings.ts';

const LIST_COLUMNS: readonly Column[] = [
  { head: 'rule' },
  { head: 'when', isFlexible: true },
  { head: 'state' },
  { head: 'since' },
  { head: 'fired', align: 'right' },
  { head: 'told' },
  { head: 'why', isFlexible: true },
];
const CHECK_COLUMNS: readonly Column[] = [
  { head: 'rule' },
  { head: 'when', isFlexible: true },
  { head: 'now', align: 'right' },
  { head: 'holds' },
  { head: 'why', isFlexible: true },
];
const TEST_COLUMNS: readonly Column[] = [
  { head: 'receiver' },
  { head: 'by' },
  { head: 'result' },
  { head: 'why', isFlexible: true },
];

/** Every rule, with where it stands. */
export async function listAlerts(context: CommandContext): Promise<ExitCode> {
  const { io, out, args } = context;
  const rules = rulesOf(await readConfig(context, {}, { routes: 'alerts' }), args);
  const { control } = await context.desk();
  const found = await control.records.list(STATE_KIND);
  const states = new Map(found.map(({ key, value }) => [key, value as AlertState]));
  const now = io.clock.now();
  const rows: string[][] = [];
  for (const rule of rules) {
    const state = states.get(rule.name);
    if (out.json) await out.object(objectOf(rule, state));
    else rows.push(rowOf(rule, state, now));
  }
  if (!out.json) await out.line(await tableOf(out, LIST_COLUMNS, rows));
  return EXIT.done;
}

function objectOf({ name, when, to }: AlertRule, state: AlertState | undefined): object {
  const { owed = [], ...rest } = state ?? { phase: 'quiet', since: null, episode: 0 };
  const waiting = owed.flatMap((one) => one.to);
  return { rule: name, when: printCondition(when), to, ...rest, owedTo: waiting };
}

function rowOf({ name, when }: AlertRule, state: AlertState | undefined, now: number): string[] {
  if (state === undefined) {
    return [safe(name), safe(printCondition(when)), 'never looked at', '', '0', '', ''];
  }
  const { phase, since, episode, toldAt, why, firedAt } = state;
  return [
    safe(name),
    safe(printCondition(when)),
    phase,
    relative(isFiring(state) ? (firedAt ?? since) : since, now),
    numberText(episode),
    toldAt === undefined ? 'never' : relative(toldAt, now),
    safe(why ?? ''),
  ];
}

/** Measures every rule once. */
export async function checkAlerts(context: CommandContext): Promise<ExitCode> {
  const { io, out, args, atEnd } = context;
  const loaded = await readConfig(context, {}, { routes: 'alerts' });
  const rules = rulesOf(loaded, args);
  const { storesOf } = await import('../../connect/stores.ts');
  const { place } = await storesOf(loaded.config, loaded.folder);
  const { control } = await context.desk();
  const measures = createMeasures({
    ...surroundingsOf({ loaded, place, atEnd }),
    spool: {
      now: () => io.clock.now(),
      // Nothing happens here: what comes of events is asked of nobody.
      on: () => () => undefined,
      tally: (by, filter) => control.tally(by, filter),
    },
    wanted: [],
  });
  const rows: string[][] = [];
  for (const { name, when } of rules) {
    const isElsewhere = OF_SERVICE.has(when.measure.name);
    const reading: Reading = isElsewhere
      ? { why: 'only the process that delivers can tell' }
      : await measures.read(when.measure, when.unit);
    const value = 'value' in reading ? reading.value : undefined;
    const why = 'why' in reading ? loaded.hide(reading.why) : undefined;
    const holds = value === undefined ? undefined : fulfils(when, value);
    if (out.json) {
      const number = value === undefined || !Number.isFinite(value) ? null : value;
      const told = { rule: name, when: printCondition(when), value: number, unit: when.unit };
      await out.object({ ...told, holds: holds ?? null, forMs: when.forMs, why });
      continue;
    }
    const shown = value === undefined ? '' : printReading(value, when.unit);
    rows.push([
      safe(name),
      safe(printCondition(when)),
      shown,
      holdsText(holds, when.forMs),
      safe(why ?? ''),
    ]);
  }
  if (!out.json) await out.line(await tableOf(out, CHECK_COLUMNS, rows));
  return EXIT.done;
}

/** What is counted or seen only where messages are delivered. */
const OF_SERVICE: ReadonlySet<string> = new Set([
  'bounce rate',
  'failure rate',
  'consumer',
  'relay',
  'time to drain',
  'time to full',
]);

function holdsText(holds: boolean | undefined, forMs: number): string {
  if (holds === undefined) return 'unknown';
  if (!holds) return 'no';
  return forMs === 0 ? 'yes' : `yes, fires after ${formatDuration(forMs)}`;
}

/** Tells receivers that this is a test. */
export async function testAlerts(context: CommandContext): Promise<ExitCode> {
  const { io, out, args, options, atEnd } = context;
  const loaded = await readConfig(context, {}, { routes: 'alerts' });
  const { alerts } = loaded.config;
  const [rule] = args.length === 0 ? [] : rulesOf(loaded, args);
  const names = receiversNamed(loaded, options.texts('to'), rule);
  const lines: string[] = [];
  const receivers = receiversOf(alerts, (level, text) => {
    lines.push(`${level}: ${text}`);
  });
  atEnd(() => receivers.close());
  const notice = testNotice(rule, io.clock.now());
  const rows: string[][] = [];
  let code: ExitCode = EXIT.done;
  for (const name of names) {
    const handler = receivers.byName.get(name);
    if (handler === undefined) continue;
    const told = await tellDirectly(handler, notice, name, io.clock.now());
    if (told.result === 'failed') code = EXIT.refused;
    const why = told.result === 'failed' ? loaded.hide(told.why) : '';
    const kind = alerts.to[name]?.kind ?? '';
    if (out.json) await out.object({ receiver: name, by: kind, result: told.result, why });
    else rows.push([safe(name), kind, told.result, safe(why)]);
  }
  for (const line of lines) out.note(safe(line));
  if (!out.json) await out.line(await tableOf(out, TEST_COLUMNS, rows));
  return code;
}

function testNotice(rule: AlertRule | undefined, now: number): Notice {
  const host = os.hostname();
  const text = `this is a test of ${rule?.name ?? 'the alerts'}: nothing is wrong`;
  if (rule !== undefined) {
    const { name, when } = rule;
    const about = { rule: name, when, phase: 'fired', episode: 0, at: now, since: now } as const;
    return { ...noticeOf({ ...about, value: undefined, host }), text, test: true };
  }
  const at = new Date(now).toISOString();
  const about = { rule: 'test', when: 'respool alerts test', phase: 'fired', episode: 0 } as const;
  return { ...about, at, since: at, value: null, unit: 'count', text, host, test: true };
}

function receiversNamed(
  { config }: LoadedConfig,
  wanted: readonly string[],
  rule: AlertRule | undefined,
): readonly string[] {
  const known = Object.keys(config.alerts.to);
  if (known.length === 0) {
    throw new CommandError(
      'usage.invalid',
      'there is nobody to tell in the configuration: name receivers as "alerts.to", such as ' +
        "{ ops: { http: { url: 'https://…' } } }",
    );
  }
  const strange = wanted.find((name) => !known.includes(name));
  if (strange !== undefined) {
    const text = `there is no receiver ${JSON.stringify(strange)}: known are ${known.join(', ')}`;
    throw new CommandError('usage.invalid', text);
  }
  return wanted.length > 0 ? wanted : (rule?.to ?? known);
}

function rulesOf({ config }: LoadedConfig, names: readonly string[]): readonly AlertRule[] {
  const { rules } = config.alerts;
  if (rules.length === 0) {
    throw new CommandError(
      'usage.invalid',
      'there are no rules in the configuration: write some as "alerts.rules", such as ' +
        "{ name: disk-low, when: 'disk < 10 %' }",
    );
  }
  return names.length === 0 ? rules : names.map((name) => ruleNamed(rules, name));
}

function ruleNamed(rules: readonly AlertRule[], name: string): AlertRule {
  const found = rules.find((rule) => rule.name === name);
  if (found !== undefined) return found;
  const known = rules.map((rule) => rule.name).join(', ');
  const text = `there is no rule ${JSON.stringify(name)}: known are ${known}`;
  throw new CommandError('usage.invalid', text);
}
