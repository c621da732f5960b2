/** Every kind of event is a line whose level and keys are those of docs/reference/logs.md. */
import { describe, expect, test } from 'vitest';
import { type EventKind, type EventOf, type Logger, RespoolError } from 'respool';
import type { LogLevel } from 'respool/observe';
import { logEvent } from '../../src/engine/events.ts';
import { readPage, tableUnder, wordOf } from '../docs/pages.ts';

interface Line {
  readonly level: LogLevel;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly text: string;
}

const at = 1;
const about = { at, id: 'm', topic: 't' };
const tried = { ...about, lane: 'delivery', attempt: 1 } as const;
const because = { code: 'c', text: 'r', by: 'engine' } as const;
const failure = {
  permanence: 'transient',
  code: 'c',
  reason: 'r',
  retryAfterMs: 1,
  fingerprint: 'f',
} as const;
const replay = { replay: 'r', by: 'b', sent: 1, failed: 0, again: 0, because: 'x' };

/** One of each kind, with everything it can have: what is forgotten does not compile. */
const EVENTS: { readonly [K in EventKind]: Required<EventOf<K>> } = {
  accepted: { ...about, kind: 'accepted', state: 'incoming', dueAt: 1 },
  duplicate: { ...about, kind: 'duplicate', duplicateOf: 'o' },
  claimed: { ...tried, kind: 'claimed' },
  started: { ...tried, kind: 'started' },
  ended: { ...tried, kind: 'ended', outcome: 'failed', code: 'c', tookMs: 1 },
  delivered: { ...tried, kind: 'delivered', tookMs: 1, ageMs: 2 },
  deferred: { ...tried, kind: 'deferred', dueAt: 1, because, failure },
  bounced: { ...tried, kind: 'bounced', because, spent: true, failure },
  held: { ...tried, kind: 'held', because },
  announced: { ...tried, kind: 'announced' },
  released: { ...tried, kind: 'released' },
  'lease-lost': { ...tried, kind: 'lease-lost' },
  stale: { ...tried, kind: 'stale' },
  archived: { ...about, kind: 'archived', ending: 'delivered' },
  removed: { ...about, kind: 'removed', by: 'b' },
  'policy-unknown': { ...about, kind: 'policy-unknown', policy: 'p' },
  'handler-missing': { ...about, kind: 'handler-missing' },
  operator: { at, kind: 'operator', action: 'hold', by: 'b', ids: ['m'] },
  paused: { at, kind: 'paused', topic: 't' },
  resumed: { at, kind: 'resumed', topic: 't' },
  'engine-started': { at, kind: 'engine-started' },
  'engine-stopped': { at, kind: 'engine-stopped' },
  'clock-jumped': { at, kind: 'clock-jumped', byMs: 1 },
  'cleaned-up': { at, kind: 'cleaned-up', forgotten: 1, orphans: 1 },
  topology: {
    at,
    kind: 'topology',
    queue: 'q',
    act: 'applied',
    exchanges: 1,
    queues: 1,
    bindings: 1,
  },
  relay: { at, kind: 'relay', target: 't', state: 'open' },
  sweep: { at, kind: 'sweep', queue: 'q', target: 't', moved: 1, left: 0, error: 'e' },
  replay: { at, kind: 'replay', state: 'done', ...replay },
  alert: { at, kind: 'alert', rule: 'r', phase: 'fired', episode: 1, text: 't' },
  trouble: { at, kind: 'trouble', doing: 'd', error: new RespoolError('store.full', 'no room') },
};

/** The other level of those that have two. */
const OTHERS: { readonly [K in EventKind]?: EventOf<K> } = {
  relay: { ...EVENTS.relay, state: 'closed' },
  sweep: { at, kind: 'sweep', queue: 'q', target: 't', moved: 1, left: 0 },
  alert: { ...EVENTS.alert, phase: 'resolved' },
};

function lineOf(event: EventOf<EventKind>): Line | undefined {
  let line: Line | undefined;
  const write =
    (level: LogLevel): Logger[LogLevel] =>
    (fields, text) => {
      line = { level, fields: fields as Line['fields'], text };
    };
  const [debug, info, warn, error] = [write('debug'), write('info'), write('warn'), write('error')];
  logEvent({ debug, info, warn, error }, event);
  return line;
}

const table = new Map(
  tableUnder(readPage('docs/reference/logs.md'), 'Lines of events').map(
    ([kind, level = '', keys = '']) => [
      wordOf(kind),
      { level, keys: [...keys.matchAll(/`(\w+)`/g)].map(([, key = '']) => key) },
    ],
  ),
);

describe('the table of lines', () => {
  test('has every kind of event, and no other', () => {
    expect([...table.keys()].toSorted()).toEqual(Object.keys(EVENTS).toSorted());
  });

  test.each(Object.values(EVENTS).map((event) => [event.kind, event] as const))(
    'has the level and the keys of %s',
    (kind, event) => {
      const { level = '', keys = [] } = table.get(kind) ?? {};
      const line = lineOf(event);
      expect(Object.keys(line?.fields ?? {}).toSorted()).toEqual(
        ['at', 'kind', ...keys].toSorted(),
      );
      expect(line?.text.split(' ')[0]).toBe(kind);
      // Of two levels the first is the usual one.
      const [usual, other = usual] = level.split(';').map((one) => /\w+/.exec(one)?.[0]);
      expect(line?.level).toBe(other);
      const rest = OTHERS[kind];
      if (rest !== undefined) expect(lineOf(rest)?.level).toBe(usual);
    },
  );

  test('has no key that pino uses itself', () => {
    const used = ['level', 'time', 'pid', 'hostname', 'msg', 'err'];
    expect(
      [...table.values()].flatMap(({ keys }) => keys).filter((key) => used.includes(key)),
    ).toEqual([]);
  });
});

test('trouble is its text and its code, without the error itself', () => {
  expect(lineOf(EVENTS.trouble)).toEqual({
    level: 'error',
    text: 'trouble d',
    fields: { at, kind: 'trouble', doing: 'd', error: 'no room', code: 'store.full' },
  });
  const plain = { ...EVENTS.trouble, error: new Error('amqp://u:p@h is away') };
  expect(lineOf(plain)?.fields).toEqual({
    at,
    kind: 'trouble',
    doing: 'd',
    error: 'amqp://(secret)@h is away',
  });
});
