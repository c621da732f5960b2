/**
 * event-line — one line per event: id first, then the event, then stable keys.
 *
 *   0198f0c2-… deferred topic=mail.send attempt=3 wait=4h next=18:04:31.000Z code=smtp.451 …
 */

import type { SerializedEvent } from '../../spool/operator/operator.ts';
import { DAY_MS } from '../../core/duration.ts';
import { unreachable } from '../../core/errors.ts';
import type { EventKind } from '../../core/event.ts';
import { levelOf } from '../../engine/events.ts';
import { type Field, fieldText, safe } from '../../observe/logs/safe-text.ts';
import type { LogLevel } from '../../ports/logger.ts';
import type { Out, Style } from './output.ts';
import { exact, span, timeOfDay } from './times.ts';

/** How much a line matters. */
export type LogLevelText = LogLevel;

const LEVELS: readonly LogLevelText[] = ['error', 'warn', 'info', 'debug'];

const STYLES: Readonly<Partial<Record<EventKind | 'missed', Style>>> = {
  delivered: 'green',
  deferred: 'yellow',
  bounced: 'red',
  held: 'magenta',
  trouble: 'red',
  missed: 'yellow',
  alert: 'yellow',
};

/** Whether an event is printed at this level. */
export function isLogged(event: SerializedEvent, level: LogLevelText): boolean {
  return isRepeated(levelOf(event), level);
}

/** Whether a line of this level is printed where `least` is the least that is. */
export function isRepeated(level: LogLevelText, least: LogLevelText): boolean {
  return LEVELS.indexOf(level) <= LEVELS.indexOf(least);
}

/** The event as one line for people; `source` goes before what happened. */
export function eventLine(out: Out, event: SerializedEvent, source?: string): string {
  const style = Object.hasOwn(STYLES, event.kind) ? STYLES[event.kind] : undefined;
  const kind = style === undefined ? safe(event.kind) : out.style(style, event.kind);
  const id = 'id' in event ? `${safe(event.id)} ` : '';
  const by = source === undefined ? '' : `${source} `;
  return `${id}${by}${kind}${fieldsOf(event).map(fieldText).join('')}`;
}

function fieldsOf(event: SerializedEvent): readonly Field[] {
  const about: Field[] = [];
  if ('topic' in event) about.push(['topic', event.topic]);
  if ('lane' in event && event.lane === 'notice') about.push(['lane', 'notice']);
  if ('attempt' in event) about.push(['attempt', event.attempt]);
  return [...about, ...detailsOf(event)];
}

/** How long, and until when: with its date where that is another day. */
function waitOf({ at, dueAt }: { readonly at: number; readonly dueAt: number }): readonly Field[] {
  const waitMs = dueAt - at;
  return [
    ['wait', span(waitMs)],
    ['next', waitMs < DAY_MS ? timeOfDay(dueAt) : exact(dueAt)],
  ];
}

function detailsOf(event: SerializedEvent): readonly Field[] {
  switch (event.kind) {
    case 'accepted':
      return [['wait', event.dueAt > event.at ? span(event.dueAt - event.at) : undefined]];
    case 'duplicate':
      return [['of', event.duplicateOf]];
    case 'ended':
      return [
        ['outcome', event.outcome],
        ['code', event.code],
        ['took', span(event.tookMs)],
      ];
    case 'delivered':
      return [['took', span(event.tookMs)]];
    case 'deferred':
      return [...waitOf(event), ...becauseOf(event.because)];
    case 'bounced':
    case 'held':
      return becauseOf(event.because);
    case 'archived':
      return [['ending', event.ending]];
    case 'removed':
      return [['by', event.by]];
    case 'policy-unknown':
      return [['policy', event.policy]];
    case 'operator':
      return [
        ['action', event.action],
        ['by', event.by],
        ['messages', countOf(event.ids)],
      ];
    case 'clock-jumped':
      return [['by', `${event.byMs < 0 ? '-' : ''}${span(Math.abs(event.byMs))}`]];
    case 'cleaned-up':
      return [
        ['forgotten', event.forgotten],
        ['orphans', event.orphans],
      ];
    case 'topology':
    case 'relay':
    case 'sweep':
    case 'replay':
    case 'alert':
      return besideOf(event);
    case 'trouble':
      return [
        ['doing', event.doing],
        ['error', event.error],
        ['code', event.code],
      ];
    case 'missed':
      return [['count', event.count]];
    default:
      return [];
  }
}

/** Of what goes on beside the messages of a spool. */
function besideOf(
  event: Extract<SerializedEvent, { kind: 'topology' | 'relay' | 'sweep' | 'replay' | 'alert' }>,
): readonly Field[] {
  switch (event.kind) {
    case 'topology':
      return [
        ['queue', event.queue],
        ['act', event.act],
        ['exchanges', event.exchanges],
        ['queues', event.queues],
        ['bindings', event.bindings],
      ];
    case 'relay':
      return [
        ['target', event.target],
        ['state', event.state],
      ];
    case 'sweep':
      return [
        ['queue', event.queue],
        ['target', event.target],
        ['moved', event.moved],
        ['left', event.left],
        ['error', event.error],
      ];
    case 'replay':
      return [
        ['replay', event.replay],
        ['state', event.state],
        ['by', event.by],
        ['sent', event.sent],
        ['failed', event.failed],
        ['again', event.again],
        ['reason', event.because],
      ];
    case 'alert':
      return [
        ['rule', event.rule],
        ['phase', event.phase],
        ['episode', event.episode],
        ['reason', event.text],
      ];
    default:
      return unreachable(event);
  }
}

/** How many; what is hidden is a text, whose length is no count. */
function countOf(list: unknown): number | undefined {
  return Array.isArray(list) ? list.length : undefined;
}

function becauseOf({ code, text }: { readonly code: string; readonly text: string }): Field[] {
  return [
    ['code', code],
    ['reason', text],
  ];
}
