/** Alerts: one firing and one resolution, whatever happens in between. */
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { createSpool, noRetry, type Spool } from 'respool';
import { SimClock } from 'respool/testkit';
import { expect, onTestFinished, test } from 'vitest';
import { MINUTE, setup } from '../spool/setup.ts';
import { alertsOver, earOf, EVERY_MS, httpEar, ruleOf } from './alerts-ground.ts';

const BOUNCES = ruleOf('bounces', 'bounce rate > 50 % for 1m');

/** Sends a message, and waits until it has ended, one way or the other. */
async function send(spool: Spool): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const stops = [spool.on('delivered', () => resolve()), spool.on('bounced', () => resolve())];
  await spool.enqueue({ topic: 'mail.send', body: 'x' });
  await promise;
  for (const stop of stops) stop();
}

function onFolder(folder: string, clock: SimClock, destination: { isDown: boolean }): Spool {
  const spool = createSpool({ path: folder, clock, policies: { default: noRetry() } });
  spool.handle('mail.#', () => {
    if (destination.isDown) throw new Error('nobody is there');
  });
  return spool;
}

test('a destination goes down and comes back: one firing and one resolution arrive, also across a restart', async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'respool-alerts-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const clock = new SimClock();
  const ear = await httpEar();
  const receivers = new Map([['ops', ear.handler]]);
  const destination = { isDown: true };
  let spool = onFolder(folder, clock, destination);
  let name = 0;
  let ground = alertsOver(spool, clock, { rules: [BOUNCES], receivers, name: `p${name}` });
  await spool.start();
  const rounds = async (count: number): Promise<void> => {
    for (let at = 0; at < count; at += 1) {
      await send(spool);
      await clock.advance(EVERY_MS);
      await ground.alerts.round();
    }
  };
  const restart = async (): Promise<void> => {
    await ground.alerts.stop();
    await spool.stop({ within: 0 });
    name += 1;
    spool = onFolder(folder, clock, destination);
    ground = alertsOver(spool, clock, { rules: [BOUNCES], receivers, name: `p${name}` });
    await spool.start();
  };
  await rounds(3);
  expect(ear.heard).toEqual([]);
  await restart();
  await rounds(4);
  await expect.poll(() => ear.heard.length).toBe(1);
  await restart();
  await rounds(4);
  destination.isDown = false;
  await rounds(30);
  await restart();
  await rounds(30);
  await expect.poll(() => ear.heard.length).toBe(2);
  expect(ear.heard.map(({ phase, episode, rule }) => [rule, phase, episode])).toEqual([
    ['bounces', 'fired', 1],
    ['bounces', 'resolved', 1],
  ]);
  const [firedId, resolvedId] = ear.ids;
  expect(firedId).toMatch(/^alert-bounces-1-\w+-fired-ops$/);
  expect(resolvedId).toBe(firedId?.replace('fired', 'resolved'));
  await ground.alerts.stop();
  await spool.stop({ within: 0 });
});

test('the notification says the rule, the condition, the value and since when', async () => {
  const { spool, clock } = await setup();
  const ear = earOf();
  const rules = [ruleOf('many', 'count deferred > 0')];
  const { alerts, told } = alertsOver(spool, clock, {
    rules,
    receivers: new Map([['ops', ear.handler]]),
    host: 'host-7',
  });
  await spool.enqueue({ topic: 'a', delay: '1h' });
  await alerts.round();
  await clock.settle();
  const at = new Date(clock.now()).toISOString();
  expect(ear.heard).toEqual([
    {
      rule: 'many',
      when: 'count deferred > 0',
      phase: 'fired',
      episode: 1,
      at,
      since: at,
      value: 1,
      unit: 'count',
      text: 'many: count deferred is 1 (count deferred > 0)',
      forecast: { of: 'spool', backlog: 1, drainsInMs: null, fullInMs: null },
      host: 'host-7',
    },
  ]);
  expect(told).toEqual([
    {
      at: clock.now(),
      kind: 'alert',
      rule: 'many',
      phase: 'fired',
      episode: 1,
      text: 'many: count deferred is 1 (count deferred > 0)',
    },
  ]);
});

test('secrets are cut out of what is told', async () => {
  const { spool, clock } = await setup();
  const ear = earOf();
  const { alerts } = alertsOver(spool, clock, {
    rules: [ruleOf('queue', 'queue "hunter2" > 0')],
    receivers: new Map([['ops', ear.handler]]),
    queueDepth: () => Promise.resolve(1),
    hide: (text) => text.replaceAll('hunter2', '(secret)'),
  });
  await alerts.round();
  await clock.settle();
  expect(ear.heard[0]?.text).toBe('queue: queue "(secret)" is 1 (queue "(secret)" > 0)');
});

test('a receiver that is down gets the notification when it is back, once', async () => {
  const { spool, clock } = await setup();
  const ear = await httpEar();
  ear.status = 503;
  const { alerts } = alertsOver(spool, clock, {
    rules: [ruleOf('many', 'count held > 0')],
    receivers: new Map([['ops', ear.handler]]),
  });
  const { id } = await spool.enqueue({ topic: 'a', delay: '1h' });
  await spool.operator({ by: 'ops' }).hold([id]);
  await alerts.round();
  const deferred = () =>
    spool
      .operator({ by: 'ops' })
      .tally('topic', { state: ['deferred'], topic: 'respool.alert.ops' });
  await expect.poll(deferred).toMatchObject([{ count: 1 }]);
  ear.status = 200;
  await clock.advance(MINUTE);
  await expect.poll(() => ear.heard.length).toBe(1);
  for (let at = 0; at < 5; at += 1) await alerts.round();
  expect(ear.heard.length).toBe(1);
});
