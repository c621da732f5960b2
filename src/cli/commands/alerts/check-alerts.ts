/** check-alerts — the state of the rules, what they measure now, and a test of the receivers. */

import os from 'node:os';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import type { Operator } from '../../../spool/operator/operator.ts';
import { formatDuration } from '../../../core/duration.ts';
import { fulfils, printCondition, printReading } from '../../../observe/alerts/condition.ts';
import { STATE_KIND } from '../../../observe/alerts/records.ts';
import { alertStateOf } from '../../../observe/alerts/state.ts';
import type { MeasureReading } from '../../../observe/alerts/external-measures.ts';
import { createMeasures } from '../../../observe/alerts/measures.ts';
import type { Notice } from '../../../observe/alerts/notice.ts';
import { ALERT_TOPIC, noticeOf } from '../../../observe/alerts/notice.ts';
import { notifyDirectly } from '../../../observe/alerts/receivers.ts';
import { type AlertState, isFiring } from '../../../observe/alerts/state.ts';
import { type AlertLease, fingerprintOf, readAlertLease } from '../../../observe/alerts/records.ts';
import type { AlertRule } from '../../../observe/alerts/types.ts';
import type { RecordStore } from '../../../ports/record-store.ts';
import { CommandError, EXIT, type ExitCode } from '../../exit-codes.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../spec.ts';
import { type Column, tableOf } from '../../ui/table.ts';
import { relative } from '../../ui/times.ts';
import { externalMeasuresOf, receiversOf } from './external-measures.ts';

const LIST_COLUMNS: readonly Column[] = [
  { head: 'rule' },
  { head: 'when', isFlexible: true },
  { head: 'state' },
  { head: 'since', isOptional: true },
  { head: 'fired', align: 'right', isOptional: true },
  { head: 'notified', isOptional: true },
  { head: 'why', isFlexible: true, isReason: true },
];
const CHECK_COLUMNS: readonly Column[] = [
  { head: 'rule' },
  { head: 'when', isFlexible: true },
  { head: 'now', align: 'right' },
  { head: 'holds' },
  { head: 'why', isFlexible: true, isReason: true },
];
const TEST_COLUMNS: readonly Column[] = [
  { head: 'receiver' },
  { head: 'by' },
  { head: 'result' },
  { head: 'why', isFlexible: true, isReason: true },
];

/** Every rule, with where it stands. */
export async function listAlerts(context: CommandContext): Promise<ExitCode> {
  const { io, out, args } = context;
  const loaded = await context.config({ routes: 'alerts' });
  const rules = rulesOf(loaded, args);
  const { operator } = await context.session();
  const found = await operator.records.list(STATE_KIND);
  const states = new Map(found.map(({ key, value }) => [key, alertStateOf(value)]));
  const look = await lookOf(operator.records, loaded);
  const rows: string[][] = [];
  for (const rule of rules) {
    const state = states.get(rule.name);
    if (out.json) await out.object(objectOf(rule, state, look));
    else rows.push(rowOf(rule, state, { look, now: io.clock.now() }));
  }
  if (out.json) return EXIT.done;
  await out.line(tableOf(out, LIST_COLUMNS, rows));
  for (const note of [lookNote(look, io.clock.now()), await lostNote(operator)]) {
    if (note !== undefined) out.note(note);
  }
  return EXIT.done;
}

/** Whether a process evaluates these rules. */
interface Looked {
  readonly turn: AlertLease | undefined;
  /** What it looks at are the rules of this configuration. */
  readonly isSame: boolean;
}

async function lookOf(records: RecordStore, { config }: LoadedConfig): Promise<Looked> {
  const turn = await readAlertLease(records);
  return { turn, isSame: turn?.rules === fingerprintOf(config.alerts.rules) };
}

function lookNote({ turn, isSame }: Looked, now: number): string {
  if (turn === undefined) return 'no rule has been evaluated yet: respool serve evaluates rules';
  const by = `${relative(turn.at, now)} by ${safe(turn.by)}`;
  if (turn.until <= now)
    return `rules are not being evaluated; last by ${by}; respool serve evaluates rules`;
  if (!isSame) return `other rules are looked at, last ${by}: restart it for these`;
  return `looked at ${by}`;
}

/** n.b. Notified means stored: whether it arrived is for the messages to say. */
async function lostNote(operator: Pick<Operator, 'tally'>): Promise<string | undefined> {
  const topic = `${ALERT_TOPIC}.#`;
  const rows = await operator.tally('state', { topic, state: ['deferred', 'bounce'] });
  const countOf = (state: string): number => rows.find(({ key }) => key === state)?.count ?? 0;
  const [waiting, lost] = [countOf('deferred'), countOf('bounce')];
  if (waiting + lost === 0) return undefined;
  return (
    `notifications that have not arrived: ${numberText(waiting)} tried again, ` +
    `${numberText(lost)} given up; respool list --topic '${topic}' shows them`
  );
}

function objectOf(
  { name, when, to }: AlertRule,
  state: AlertState | undefined,
  { turn, isSame }: Looked,
): object {
  const known: Partial<AlertState> = state ?? {};
  const {
    pendingNotices = [],
    pendingActions = [],
    phase = 'quiet',
    since = null,
    episode = 0,
    why,
  } = known;
  const { firedAt = null, resolvedAt = null, notifiedAt = null } = known;
  return {
    rule: name,
    when: printCondition(when),
    to,
    phase,
    since,
    episode,
    firedAt,
    resolvedAt,
    notifiedAt,
    pendingTo: pendingNotices.flatMap((one) => one.to),
    pendingActions,
    lookedAt: isSame ? (turn?.at ?? null) : null,
    why,
  };
}

function rowOf(
  { name, when }: AlertRule,
  state: AlertState | undefined,
  { look, now }: { readonly look: Looked; readonly now: number },
): string[] {
  if (state === undefined) {
    // A rule that never fired has no record, whether or not a process evaluates it.
    const phase = look.isSame ? 'quiet' : 'not evaluated yet';
    return [safe(name), safe(printCondition(when)), phase, '', '0', 'never', ''];
  }
  const { phase, since, episode, notifiedAt, why, firedAt } = state;
  return [
    safe(name),
    safe(printCondition(when)),
    phase,
    relative(isFiring(state) ? (firedAt ?? since) : since, now),
    numberText(episode),
    notifiedAt === undefined ? 'never' : relative(notifiedAt, now),
    safe(why ?? ''),
  ];
}

/** Measures every rule once. */
export async function checkAlerts(context: CommandContext): Promise<ExitCode> {
  const { io, out, args, atEnd } = context;
  const loaded = await context.config({ routes: 'alerts' });
  const rules = rulesOf(loaded, args);
  const { storesOf } = await import('../../../config/open/stores.ts');
  const { place } = await storesOf(loaded.config, loaded.folder);
  const { operator } = await context.session();
  const measures = createMeasures({
    ...externalMeasuresOf({ loaded, place, atEnd }),
    spool: {
      now: () => io.clock.now(),
      // Nothing is delivered here, so measures of events are not available.
      on: () => () => undefined,
      tally: (by, filter) => operator.tally(by, filter),
    },
    clock: io.clock,
    wanted: [],
  });
  const rows: string[][] = [];
  for (const { name, when } of rules) {
    const isElsewhere = OF_SERVICE.has(when.measure.name);
    const reading: MeasureReading = isElsewhere
      ? { why: 'known only to the process that delivers' }
      : await measures.read(when.measure, when.unit);
    const value = 'value' in reading ? reading.value : undefined;
    const why = 'why' in reading ? loaded.hide(reading.why) : undefined;
    const holds = value === undefined ? undefined : fulfils(when, value);
    if (out.json) {
      const number = value === undefined || !Number.isFinite(value) ? null : value;
      const row = { rule: name, when: printCondition(when), value: number, unit: when.unit };
      await out.object({ ...row, holds: holds ?? null, forMs: when.forMs, why });
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
  if (!out.json) await out.line(tableOf(out, CHECK_COLUMNS, rows));
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
  const loaded = await context.config({ routes: 'alerts' });
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
    const answer = await notifyDirectly(handler, notice, name, io.clock.now());
    if (answer.result === 'failed') code = EXIT.refused;
    const why = answer.result === 'failed' ? loaded.hide(answer.why) : '';
    const kind = alerts.to[name]?.kind ?? '';
    if (out.json) await out.object({ receiver: name, by: kind, result: answer.result, why });
    else rows.push([safe(name), kind, answer.result, safe(why)]);
  }
  for (const line of lines) out.note(safe(line));
  if (!out.json) await out.line(tableOf(out, TEST_COLUMNS, rows));
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
  texts: readonly string[],
  rule: AlertRule | undefined,
): readonly string[] {
  const known = Object.keys(config.alerts.to);
  if (known.length === 0) {
    throw new CommandError(
      'usage.invalid',
      'the configuration has no receivers: add them as "alerts.to", such as ' +
        "{ ops: { http: { url: 'https://…' } } }",
    );
  }
  const strange = texts.find((name) => !known.includes(name));
  if (strange !== undefined) {
    const text = `there is no receiver ${JSON.stringify(strange)}: known are ${known.join(', ')}`;
    throw new CommandError('usage.invalid', text);
  }
  return texts.length > 0 ? texts : (rule?.to ?? known);
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
