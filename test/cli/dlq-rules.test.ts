/** dlq rules — over the spool: one round, a list of them, and a run until a signal. */
import { createServer } from 'node:http';
import { writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type DeadShell, deadSpool } from './dlq-ground.ts';
import { setup } from './setup.ts';

async function withRules(rules: readonly object[], more: object = {}): Promise<DeadShell> {
  const shell = await deadSpool();
  const config = { deadLetters: { rules, ...more }, serve: { port: 0 } };
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
  return shell;
}

const TIMEOUTS = { name: 'timeouts', when: { category: 'timeout' }, canary: 0 };

test('one round of a rule replays what fits, in the name of the rule', async () => {
  const shell = await withRules([TIMEOUTS]);
  const ran = await shell.cli(['dlq', 'rules', 'run', '--once', '--json']);
  expect(ran.code, ran.stderr).toBe(0);
  expect(ran.objects()).toMatchObject([{ rule: 'timeouts', result: 'done', sent: 1 }]);
  expect(await shell.states()).toMatchObject({
    'dead-1': 'bounce',
    'dead-2': 'bounce',
    'dead-3': 'incoming',
    'held-1': 'hold',
  });
  const all = (await shell.cli(['audit', '--json'])).objects();
  const audit = all.filter(({ by }) => by === 'rule:timeouts');
  expect(audit.map(({ action }) => action)).toEqual(
    expect.arrayContaining(['replay.plan', 'replay.run']),
  );
  const [replay] = (await shell.cli(['dlq', 'replays', 'list', '--json'])).objects();
  expect(replay).toMatchObject({ by: 'rule:timeouts', state: 'done' });
});

test('categories of the configuration decide what a rule is about', async () => {
  const categories = [{ category: 'timeout', code: 'smtp.*' }];
  const shell = await withRules([TIMEOUTS], { categories });
  const [news] = (await shell.cli(['dlq', 'rules', 'run', '--once', '--json'])).objects();
  expect(news).toMatchObject({ sent: 3 });
});

test('a topic that is paused is not sent to until it is resumed', async () => {
  const shell = await withRules([TIMEOUTS]);
  await shell.cli(['pause', 'orders.*']);
  const ran = await shell.cli(['dlq', 'rules', 'run', '--once']);
  expect(ran.stdout).toMatch(/^timeouts: waiting, topic "orders.created" is paused by tester@cli/);
  expect(await shell.states()).toMatchObject({ 'dead-3': 'bounce' });
  await shell.cli(['resume', 'orders.*']);
  await shell.cli(['dlq', 'rules', 'run', '--once']);
  expect(await shell.states()).toMatchObject({ 'dead-3': 'incoming' });
});

test('a rule whose canary is not attempted waits, and goes on with the same replay', async () => {
  const shell = await withRules([{ name: 'mails', when: { code: 'smtp.550' }, canary: 1 }]);
  const once = ['dlq', 'rules', 'run', '--once', '--json'];
  const ran = await shell.cli(once);
  expect([ran.code, ran.objects()]).toMatchObject([0, [{ result: 'waiting', sent: 1 }]]);
  expect(ran.stdout).toContain('0 of 1 canaries were attempted; nothing else was sent');
  const spool = shell.spool({ unhandled: 'leave' });
  const delivered = new Promise<void>((resolve) => spool.on('delivered', () => resolve()));
  spool.handle('mail.send', () => undefined);
  await spool.start();
  await delivered;
  const again = await shell.cli(once);
  expect(again.objects()).toMatchObject([{ result: 'done', sent: 1 }]);
  expect((await shell.cli(['dlq', 'replays', 'list', '--json'])).objects()).toHaveLength(1);
  await spool.stop();
});

test('a rule with a URL waits until that answers with 2xx', async () => {
  let status = 503;
  const asked: (string | undefined)[] = [];
  const server = createServer((request, answer) => {
    asked.push(request.headers.authorization);
    answer.writeHead(status).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const http = `http://u:hidden-word%@127.0.0.1:${port}/health`;
  const shell = await withRules([{ ...TIMEOUTS, healthy: { http } }]);
  const waits = await shell.cli(['dlq', 'rules', 'run', '--once']);
  expect(waits.stdout).toContain('/health answered 503');
  expect(waits.stdout).not.toContain('hidden-word');
  expect(asked).toEqual([`Basic ${Buffer.from('u:hidden-word%').toString('base64')}`]);
  status = 204;
  const [news] = (await shell.cli(['dlq', 'rules', 'run', '--once', '--json'])).objects();
  expect(news).toMatchObject({ result: 'done', sent: 1 });
});

test('a destination that does not answer at all is not well', async () => {
  const shell = await withRules([{ ...TIMEOUTS, healthy: { http: 'http://127.0.0.1:1/' } }]);
  const [news] = (await shell.cli(['dlq', 'rules', 'run', '--once', '--json'])).objects();
  expect(news).toMatchObject({ result: 'waiting', because: expect.stringContaining('failed') });
});

test('list shows every rule with its last result and its next time', async () => {
  const shell = await withRules([TIMEOUTS, { name: 'none', when: { code: 'none' } }]);
  const before = await shell.cli(['dlq', 'rules', 'list']);
  expect(before.stdout).toMatch(/^timeouts +\{"category":"timeout"\} +never +at once$/m);
  await shell.cli(['dlq', 'rules', 'run', '--once']);
  const after = await shell.cli(['dlq', 'rules', 'list']);
  expect(after.stdout).toMatch(/^timeouts .* done +1 +in \d+m(?:\d+s)?$/m);
  expect(after.stdout).toMatch(/^none .* quiet +0 +in \d+m(?:\d+s)?$/m);
  const objects = (await shell.cli(['dlq', 'rules', 'list', '--json'])).objects();
  expect(objects).toMatchObject([
    { name: 'timeouts', every: '5m', state: { result: 'done', sent: 1 } },
    { name: 'none', state: { result: 'quiet' } },
  ]);
});

test('rules run until a signal, and tell of each round that came to something', async () => {
  const shell = await withRules([TIMEOUTS]);
  const running = shell.start(['dlq', 'rules', 'run', '--json']);
  await running.printed(/"result":"done"/);
  running.signal('SIGTERM');
  const ran = await running.ended;
  expect(ran.code, ran.stderr).toBe(0);
  const lines = ran.objects();
  expect(lines.map(({ text }) => text)).toEqual([
    'rule timeouts looks every 5m',
    expect.stringMatching(/^rule timeouts: done, sent 1 by /),
    'stopping after SIGTERM',
    'stopped',
  ]);
});

test('a service runs the rules of its configuration, and they end with it', async () => {
  const shell = await withRules([TIMEOUTS]);
  const running = shell.start(['serve', '--json']);
  await running.printed(/"result":"done"/);
  running.signal('SIGTERM');
  const ran = await running.ended;
  expect(ran.code, ran.stderr).toBe(0);
  expect(ran.stdout).toContain('replays by rule timeouts, every 5m');
  expect(ran.objects().at(-1)).toMatchObject({ text: 'stopped' });
  const [replay] = (await shell.cli(['dlq', 'replays', 'list', '--json'])).objects();
  expect(replay).toMatchObject({ by: 'rule:timeouts', state: 'done' });
});

test('a rule that failed ends a single round with 1', async () => {
  const shell = await withRules([{ name: 'q', when: { queue: 'none' } }]);
  const ran = await shell.cli(['dlq', 'rules', 'run', '--once', '--json']);
  expect([ran.code, ran.objects()]).toMatchObject([1, [{ rule: 'q', result: 'failed' }]]);
});

test.each(['list', 'run'])('%s says what to do where there are no rules', async (command) => {
  const shell = await setup({ hasStore: true });
  const ran = await shell.cli(['dlq', 'rules', command]);
  expect([ran.code, ran.stderr]).toEqual([2, expect.stringContaining('"deadLetters.rules"')]);
});
