/**
 * notice — the notification when a rule fires or is resolved: the body, the id and the topic of the
 * message that carries it. Pure.
 */

import { createHash } from 'node:crypto';
import type { Millis } from '../../core/duration.ts';
import { formatDuration, SECOND_MS } from '../../core/duration.ts';
import type { BacklogForecast } from './external-measures.ts';
import {
  type Condition,
  printCondition,
  printMeasure,
  printReading,
  type Unit,
} from './condition.ts';

/** What the topics of notifications begin with. */
export const ALERT_TOPIC = 'respool.alert';

/** A notification, as its receiver reads it in JSON. */
export interface Notice {
  readonly rule: string;
  /** The condition as text. */
  readonly when: string;
  readonly phase: 'fired' | 'resolved';
  /** Counts the firings of the rule; 0 in a test. */
  readonly episode: number;
  /** An ISO time. */
  readonly at: string;
  /** Since when the condition holds, or held: an ISO time. */
  readonly since: string;
  /** As measured; null: unknown or infinite. */
  readonly value: number | null;
  readonly unit: Unit;
  /** What holds, in one sentence. */
  readonly text: string;
  /** Of the backlog that the rule is about. */
  readonly forecast?: BacklogForecast;
  readonly host?: string;
  /** A test of the receivers; nothing is wrong. */
  readonly test?: true;
}

/** What a notice is made of. */
interface NoticeOptions {
  readonly rule: string;
  readonly when: Condition;
  readonly phase: Notice['phase'];
  readonly episode: number;
  readonly at: Millis;
  readonly since: Millis;
  readonly value: number | undefined;
  /** Shown instead of the value. */
  readonly why?: string | undefined;
  readonly forecast?: BacklogForecast | undefined;
  readonly host?: string | undefined;
}

/** Makes the notice. */
export function noticeOf(parts: NoticeOptions): Notice {
  const { rule, when, phase, episode, at, since, value, forecast, host } = parts;
  return {
    rule,
    when: printCondition(when),
    phase,
    episode,
    at: new Date(at).toISOString(),
    since: new Date(since).toISOString(),
    value: value === undefined || !Number.isFinite(value) ? null : value,
    unit: when.unit,
    text: textOfNotice(parts),
    ...(forecast === undefined ? {} : { forecast }),
    ...(host === undefined ? {} : { host }),
  };
}

function textOfNotice({ rule, when, phase, at, since, value, why }: NoticeOptions): string {
  const reading = value === undefined ? 'not known' : printReading(value, when.unit);
  const is = why ?? `${printMeasure(when.measure)} is ${reading}`;
  if (phase === 'fired') return `${rule}: ${is} (${printCondition(when)})`;
  const lasted = Math.max(SECOND_MS, Math.round((at - since) / SECOND_MS) * SECOND_MS);
  return `${rule} is over after ${formatDuration(lasted)}: ${is} (${printCondition(when)})`;
}

/** The topic of notifications for a receiver. */
export function topicOf(receiver: string): string {
  return `${ALERT_TOPIC}.${receiver}`;
}

/** Whether messages of this topic are notifications: rates are not about them. */
export function isNoticeTopic(topic: string): boolean {
  return topic.startsWith(`${ALERT_TOPIC}.`);
}

const RULE_CHARS = 16;
const RECEIVER_CHARS = 12;
const HASH_CHARS = 6;

/**
 * The id of a notification: the same again is a duplicate, whichever process enqueues it. It has
 * the time of the firing: episodes restart at 1 if the record was lost.
 */
export function noticeId(notice: Notice, receiver: string): string {
  const { rule, episode, phase, at, since } = notice;
  const firedAt = Date.parse(phase === 'fired' ? at : since).toString(36);
  const about = `${short(rule, RULE_CHARS)}-${episode}-${firedAt}`;
  return `alert-${about}-${phase}-${short(receiver, RECEIVER_CHARS)}`;
}

/** A name as a part of an id; one that does not fit is cut, with a hash that keeps it unique. */
function short(name: string, maxChars: number): string {
  const plain = name.toLowerCase().replaceAll(/[^0-9a-z_-]/g, '-');
  if (plain === name && name.length <= maxChars) return name;
  const hash = createHash('sha256').update(name).digest('hex').slice(0, HASH_CHARS);
  return `${plain.slice(0, maxChars - HASH_CHARS - 1)}_${hash}`;
}
