/** events — what happens in the service, as it happens. */
import { expect, onTestFinished, test } from 'vitest';
import type { SerializedEvent } from 'respool/operator';
import { eventLine } from '../../src/cli/ui/event-line.ts';
import { createOut, type Io } from '../../src/cli/ui/output.ts';
import { LISTENER_KINDS } from '../../src/core/event.ts';
import { timeOfDay } from '../../src/cli/ui/times.ts';
import { setup } from './setup.ts';

async function serving() {
  const shell = await setup();
  const service = shell.start(['serve', '--port', '0', '--store', 'memory:']);
  onTestFinished(async () => {
    service.signal('SIGTERM');
    await service.ended;
  });
  const [, url = ''] = await service.printed(/"url":"(http:[^"]+)"/);
  return { ...shell, url };
}

test('an event of a hostile service has nothing that a terminal obeys', () => {
  const io = { env: {}, isTTY: () => false } as unknown as Io;
  const out = createOut(io, { json: false, quiet: false, verbose: false, color: true });
  const evil = '\u001b[2J';
  for (const kind of [evil, 'constructor', 'accepted', 'delivered', 'missed', 'cleaned-up']) {
    const fields = { count: evil, tookMs: evil, dueAt: evil, forgotten: evil, orphans: [evil] };
    const event = { at: evil, kind, id: [evil], topic: evil, attempt: evil, ...fields };
    const line = eventLine(out, event as unknown as SerializedEvent);
    expect(`${timeOfDay(evil as unknown as number)} ${line}`).not.toContain('\u001b');
  }
});

test('events are printed until Ctrl-C, one line each', async () => {
  const { cli, start, url } = await serving();
  const listening = start(['events', '--url', url, '--kind', 'accepted,held']);
  const listeningJson = start(['events', '--url', url, '--json']);
  // The service hears of a listener some time after the listener asked: post until both heard.
  const over = new AbortController();
  const seen = Promise.all([listening.printed(/ accepted /), listeningJson.printed(/"accepted"/)]);
  const posting = (async () => {
    while (!over.signal.aborted) {
      expect((await cli(['enqueue', 'a.b', '--body', 'x', '--url', url])).code).toBe(0);
    }
  })();
  await seen.finally(() => over.abort());
  await posting;
  listening.signal('SIGINT');
  listeningJson.signal('SIGINT');
  const ran = await listening.ended;
  expect(ran).toMatchObject({ code: 0, stderr: '' });
  expect(ran.stdout).toMatch(/^[\d:.]+Z [0-9a-f-]{36} accepted topic=a\.b$/m);
  expect(ran.stdout).not.toContain('engine-');
  expect((await listeningJson.ended).objects()[0]).toHaveProperty('at');
});

test('every kind can be asked for by its name', async () => {
  const { cli } = await setup();
  const kinds = LISTENER_KINDS.filter((kind) => kind !== '*').join(',');
  const ran = await cli(['events', '--url', 'http://127.0.0.1:1', '--kind', kinds]);
  // Not a wrong use: it got as far as the service.
  expect(ran.code).toBe(3);
  const wrong = await cli(['events', '--url', 'http://127.0.0.1:1', '--kind', 'archive']);
  expect(wrong).toMatchObject({ code: 2 });
  expect(wrong.stderr).toContain('archived');
});

test('without a service it says so, and ends with 3', async () => {
  const { cli } = await setup();
  const ran = await cli(['events', '--url', 'http://127.0.0.1:1', '--json']);
  expect(ran).toMatchObject({ code: 3, stdout: '' });
  expect(JSON.parse(ran.stderr)).toMatchObject({ error: { code: 'store.unavailable' } });
});

const about = {
  at: 1_000,
  id: '0198-e1',
  topic: 'mail.send',
  lane: 'delivery',
  attempt: 3,
} as const;
const because = { code: 'smtp.451', text: 'grey "listed"\u001b[2J', by: 'handler' };
const MINUTES_15 = 15 * 60_000;
const REPLAY = {
  at: 1,
  kind: 'replay',
  replay: 'r1',
  state: 'paused',
  by: 'ann',
  sent: 5,
  failed: 1,
  again: 2,
} as const;

test.each<[SerializedEvent, string]>([
  [
    { ...about, kind: 'deferred', dueAt: 1_000 + 4 * 3_600_000, because },
    '0198-e1 deferred topic=mail.send attempt=3 wait=4h next=04:00:01.000Z code=smtp.451 ' +
      'reason="grey \\"listed\\""',
  ],
  [
    {
      ...about,
      kind: 'deferred',
      dueAt: 1_000 + 48 * 3_600_000,
      because: { ...because, text: '' },
    },
    '0198-e1 deferred topic=mail.send attempt=3 wait=2d next=1970-01-03T00:00:01.000Z ' +
      'code=smtp.451 reason=""',
  ],
  [
    { ...about, kind: 'delivered', tookMs: 1_500, ageMs: 2_000 },
    '0198-e1 delivered topic=mail.send attempt=3 took=1.5s',
  ],
  [
    { ...about, kind: 'bounced', because, spent: true, lane: 'notice' },
    '0198-e1 bounced topic=mail.send lane=notice attempt=3 code=smtp.451 ' +
      'reason="grey \\"listed\\""',
  ],
  [
    { at: 1, id: 'x', topic: 'a', kind: 'accepted', state: 'deferred', dueAt: 1 + MINUTES_15 },
    'x accepted topic=a wait=15m',
  ],
  [{ at: 1, id: 'x', topic: 'a', kind: 'duplicate', duplicateOf: 'y' }, 'x duplicate topic=a of=y'],
  [
    { at: 1, id: 'x', topic: 'a', kind: 'policy-unknown', policy: 'slow one' },
    'x policy-unknown topic=a policy="slow one"',
  ],
  [{ at: 1, kind: 'paused', topic: '#' }, 'paused topic=#'],
  [
    { at: 1, kind: 'operator', action: 'hold', by: 'me', ids: ['a', 'b'] },
    'operator action=hold by=me messages=2',
  ],
  [{ at: 1, kind: 'clock-jumped', byMs: -90_000 }, 'clock-jumped by=-1m30s'],
  [{ at: 1, kind: 'cleaned-up', forgotten: 1, orphans: 0 }, 'cleaned-up forgotten=1 orphans=0'],
  [
    { at: 1, kind: 'trouble', doing: 'claiming', error: 'disk gone' },
    'trouble doing=claiming error="disk gone"',
  ],
  [
    { at: 1, kind: 'trouble', doing: 'claiming', error: 'full', code: 'store.full' },
    'trouble doing=claiming error=full code=store.full',
  ],
  [{ at: 1, kind: 'missed', count: 7 }, 'missed count=7'],
  [
    { ...about, kind: 'ended', outcome: 'failed', code: 'smtp.451', tookMs: 20 },
    '0198-e1 ended topic=mail.send attempt=3 outcome=failed code=smtp.451 took=20ms',
  ],
  [
    { at: 1, id: 'x', topic: 'a', kind: 'archived', ending: 'expired' },
    'x archived topic=a ending=expired',
  ],
  [{ at: 1, id: 'x', topic: 'a', kind: 'removed', by: 'me' }, 'x removed topic=a by=me'],
  [
    {
      at: 1,
      kind: 'topology',
      queue: 'orders',
      act: 'applied',
      exchanges: 1,
      queues: 4,
      bindings: 3,
    },
    'topology queue=orders act=applied exchanges=1 queues=4 bindings=3',
  ],
  [
    { at: 1, kind: 'relay', target: 'exchange "shop"', state: 'open' },
    'relay target="exchange \\"shop\\"" state=open',
  ],
  [
    { at: 1, kind: 'sweep', queue: 'q.dead', target: 'q.safe', moved: 3, left: 1 },
    'sweep queue=q.dead target=q.safe moved=3 left=1',
  ],
  [
    { at: 1, kind: 'sweep', queue: 'q', target: 't', moved: 0, left: 0, error: 'no\u001b[2J way' },
    'sweep queue=q target=t moved=0 left=0 error="no way"',
  ],
  [
    { ...REPLAY, because: 'by ann' },
    'replay replay=r1 state=paused by=ann sent=5 failed=1 again=2 reason="by ann"',
  ],
  [REPLAY, 'replay replay=r1 state=paused by=ann sent=5 failed=1 again=2'],
  [
    { at: 1, kind: 'alert', rule: 'late', phase: 'fired', episode: 2, text: 'oldest is 3h' },
    'alert rule=late phase=fired episode=2 reason="oldest is 3h"',
  ],
  [{ at: 1, kind: 'engine-started' }, 'engine-started'],
])('an event is one line: %#', (event, line) => {
  const io = { env: {}, isTTY: () => false } as unknown as Io;
  const out = createOut(io, { json: false, quiet: false, verbose: false, color: true });
  expect(eventLine(out, event)).toBe(line);
});
