/** Alerts beside a service, and `respool alerts`. */
/* oxlint-disable unicorn/no-thenable -- The key of a configuration is called so; it holds data. */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { httpEar } from '../observe/alerts-ground.ts';
import { deadSpool } from './dlq-ground.ts';
import { type Running, type Shell, setup } from './setup.ts';

async function shellWith(config: object): Promise<Shell> {
  const shell = await setup({ hasStore: true });
  const whole = { serve: { port: 0 }, log: { format: 'json' }, ...config };
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(whole));
  return shell;
}

async function serving(shell: Shell): Promise<Running> {
  const running = shell.start(['serve']);
  await running.printed(/listening on/);
  return running;
}

async function ended(running: Running): Promise<string> {
  running.signal('SIGTERM');
  const { code, stdout, stderr } = await running.ended;
  expect(code, stderr).toBe(0);
  return `${stdout}${stderr}`;
}

/** A message that is held, by the name of m1. */
async function holdOne(shell: Shell): Promise<void> {
  const spool = shell.spool();
  await spool.enqueue({ topic: 'mail.send', id: 'm1', delay: '1h' });
  await spool.operator({ by: 'ops' }).hold(['m1']);
  await spool.stop();
}

const HELD = { name: 'held', when: 'count held > 0' };

test('a service tells of an alert by HTTP, by a command and in its log, and of its end', async () => {
  const ear = await httpEar();
  const shell = await shellWith({
    // A route that takes all topics does not take notifications.
    routes: [{ topic: '#', deliver: { exec: ['true'] } }],
    alerts: {
      every: '1s',
      to: {
        ops: { http: { url: ear.url, allow: ['127.0.0.1'] } },
        page: { exec: ['sh', '-c', 'cat >> told.jsonl; echo >> told.jsonl'] },
        here: { log: 'warn' },
      },
      rules: [HELD],
    },
  });
  await holdOne(shell);
  const running = await serving(shell);
  await running.printed(/alert fired: held: count held is 1/);
  await expect.poll(() => ear.heard.length).toBe(1);
  await shell.cli(['release', 'm1', '--yes']);
  await running.printed(/alert resolved: held is over/);
  await expect.poll(() => ear.heard.length).toBe(2);
  const lines = async (): Promise<string[]> =>
    (await readFile(path.join(shell.folder, 'told.jsonl'), 'utf8')).trim().split('\n');
  await expect.poll(async () => (await lines()).length).toBe(2);
  const printed = await ended(running);
  expect(printed).not.toContain('no route delivers');
  expect(printed).toContain('alerts ops, page, here by rule held: count held > 0');
  expect(ear.heard.map(({ phase }) => phase)).toEqual(['fired', 'resolved']);
  expect((await lines()).map((line) => JSON.parse(line) as unknown)).toEqual(ear.heard);
});

test('rules are listed with where they stand, also through a service', async () => {
  const shell = await shellWith({
    alerts: {
      every: '1s',
      to: { here: { log: 'info' } },
      rules: [HELD, { name: 'disk', when: 'disk < 0 %' }],
    },
  });
  await holdOne(shell);
  const before = await shell.cli(['alerts', 'list', '--json']);
  expect(before.objects()).toMatchObject([
    { rule: 'held', when: 'count held > 0', to: ['here'], phase: 'quiet', episode: 0 },
    { rule: 'disk', phase: 'quiet' },
  ]);
  const never = await shell.cli(['alerts', 'list']);
  expect(never.stdout).toMatch(/disk +disk < 0 % +not evaluated yet/);
  expect(never.stderr).toContain('no rule has been evaluated yet: respool serve evaluates rules');
  const running = await serving(shell);
  await running.printed(/alert fired: held/);
  const [, url = ''] = await running.printed(/listening on (http:[^,"]+)/);
  await expect
    .poll(async () => (await shell.cli(['alerts', 'list', '--json', '--url', url])).objects())
    .toMatchObject([
      { rule: 'held', phase: 'firing', episode: 1, pendingTo: [] },
      { rule: 'disk' },
    ]);
  const text = (await shell.cli(['alerts', 'list', 'held'])).stdout;
  expect(text).toMatch(/held +count held > 0 +firing +.* 1 +.*/);
  expect(text).not.toContain('disk');
  // One that was always fine is quiet, with when it was looked at.
  const fine = await shell.cli(['alerts', 'list', 'disk']);
  expect(fine.stdout).toMatch(/disk +disk < 0 % +quiet +0 +never/);
  // Polled: on a slow machine a turn may run out between two rounds.
  const said = async () => (await shell.cli(['alerts', 'list', 'disk'])).stderr;
  await expect.poll(said).toMatch(/^looked at .* by /m);
  const [object] = (await shell.cli(['alerts', 'list', 'disk', '--json'])).objects();
  expect(object).toMatchObject({ phase: 'quiet', lookedAt: expect.any(Number) as number });
  await ended(running);
  const after = await shell.cli(['alerts', 'list', 'disk']);
  expect(after.stderr).toMatch(/^rules are not being evaluated; last by /m);
});

test('rules that the service does not know yet, and notifications that were given up, are seen', async () => {
  const ear = await httpEar();
  ear.status = 404;
  const alerts = {
    every: '1s',
    to: { ops: { http: { url: ear.url, allow: ['127.0.0.1'] } } },
    rules: [HELD],
  };
  const shell = await shellWith({ alerts });
  await holdOne(shell);
  const running = await serving(shell);
  await running.printed(/bounced/);
  const list = await shell.cli(['alerts', 'list']);
  expect(list.stderr).toContain(
    "notifications that have not arrived: 0 tried again, 1 given up; respool list --topic 'respool.alert.#'",
  );
  const rules = [HELD, { name: 'new', when: 'disk < 0 %' }];
  const config = { serve: { port: 0 }, alerts: { ...alerts, rules } };
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
  const other = await shell.cli(['alerts', 'list']);
  expect(other.stdout).toMatch(/new +disk < 0 % +not evaluated yet/);
  const said = async () => (await shell.cli(['alerts', 'list'])).stderr;
  await expect.poll(said).toMatch(/other rules are looked at, last .*: restart it for these/);
  await ended(running);
});

test('a check measures once, says what holds and what cannot be measured here, and tells nobody', async () => {
  const rules = [
    HELD,
    { name: 'disk', when: 'disk < 1 B' },
    { name: 'disk-percent', when: 'disk > 0 % for 5m' },
    { name: 'rate', when: 'bounce rate > 5 %' },
    { name: 'lag', when: 'outbox lag > 30s' },
    { name: 'dead', when: 'dead queue > 0' },
    { name: 'old', when: 'oldest held > 0s' },
  ];
  const shell = await shellWith({ alerts: { to: { here: { log: 'info' } }, rules } });
  await holdOne(shell);
  const ran = await shell.cli(['alerts', 'check', '--json']);
  expect(ran.code, ran.stderr).toBe(0);
  expect(ran.objects()).toMatchObject([
    { rule: 'held', value: 1, unit: 'count', holds: true },
    { rule: 'disk', unit: 'bytes', holds: false },
    { rule: 'disk-percent', unit: 'percent', holds: true, forMs: 300_000 },
    { rule: 'rate', value: null, holds: null, why: 'known only to the process that delivers' },
    { rule: 'lag', holds: null, why: expect.stringContaining('has no outbox') as string },
    { rule: 'dead', holds: null, why: expect.stringContaining('has no consumers') as string },
    { rule: 'old', unit: 'ms', holds: true },
  ]);
  const text = (await shell.cli(['alerts', 'check', 'held', 'disk-percent', 'rate'])).stdout;
  expect(text).toMatch(/held +count held > 0 +1 +yes/);
  expect(text).toMatch(/disk-percent .* % +yes, fires after 5m/);
  expect(text).toMatch(/rate .* unknown +known only to the process/);
  const [held] = (await shell.cli(['alerts', 'list', '--json'])).objects();
  expect(held).toMatchObject({ phase: 'quiet', episode: 0 });
});

test('a test tells every receiver that it is one, says what came back, and ends with 1 on a failure', async () => {
  const ear = await httpEar();
  const shell = await shellWith({
    alerts: {
      to: {
        ops: { http: { url: ear.url, allow: ['127.0.0.1'] } },
        page: { exec: ['sh', '-c', 'cat > told.json'] },
        broken: { exec: ['sh', '-c', 'echo no modem >&2; exit 1'] },
        here: { log: 'warn' },
      },
      rules: [{ ...HELD, to: ['ops', 'here'] }],
    },
  });
  const all = await shell.cli(['alerts', 'test', '--json']);
  expect(all.code).toBe(1);
  expect(all.objects()).toMatchObject([
    { receiver: 'ops', by: 'http', result: 'notified' },
    { receiver: 'page', by: 'exec', result: 'notified' },
    {
      receiver: 'broken',
      by: 'exec',
      result: 'failed',
      why: expect.stringContaining('no modem') as string,
    },
    { receiver: 'here', by: 'log', result: 'notified' },
  ]);
  expect(all.stderr).toContain('warn: alert fired: this is a test of the alerts');
  const told = JSON.parse(await readFile(path.join(shell.folder, 'told.json'), 'utf8')) as object;
  expect(told).toMatchObject({ test: true, episode: 0, phase: 'fired' });
  expect(ear.heard).toMatchObject([
    { test: true, text: 'this is a test of the alerts: nothing is wrong' },
  ]);
  const one = await shell.cli(['alerts', 'test', 'held']);
  expect(one.code, one.stderr).toBe(0);
  expect(one.stdout).toMatch(/ops +http +notified/);
  expect(one.stdout).not.toContain('page');
  expect(ear.heard[1]).toMatchObject({ rule: 'held', when: 'count held > 0', test: true });
  const only = await shell.cli(['alerts', 'test', 'held', '--to', 'page', '--json']);
  expect(only.objects()).toMatchObject([{ receiver: 'page', result: 'notified' }]);
});

test.each([
  [['alerts', 'test', '--to', 'nobody'], /there is no receiver "nobody": known are here/],
  [['alerts', 'list', 'nothing'], /there is no rule "nothing": known are held/],
  [['alerts', 'test', 'nothing'], /there is no rule "nothing": known are held/],
])('%j is refused, with what is known', async (words, said) => {
  const shell = await shellWith({ alerts: { to: { here: { log: 'info' } }, rules: [HELD] } });
  const { code, stderr } = await shell.cli(words);
  expect(code).toBe(2);
  expect(stderr).toMatch(said);
});

test('without rules or receivers the commands say what to write', async () => {
  const shell = await shellWith({});
  expect((await shell.cli(['alerts', 'list'])).stderr).toContain('write some as "alerts.rules"');
  expect((await shell.cli(['alerts', 'test'])).stderr).toContain('add them as "alerts.to"');
});

test('the stats of a service have a forecast', async () => {
  const shell = await shellWith({});
  await holdOne(shell);
  const running = await serving(shell);
  const [, url = ''] = await running.printed(/listening on (http:[^,"]+)/);
  const [stats] = (await shell.cli(['stats', '--json', '--url', url])).objects();
  expect(stats).toMatchObject({
    forecast: { backlog: 0, inPerSecond: 0, outPerSecond: 0, drainsInMs: 0 },
  });
  const { stdout } = await shell.cli(['stats', '--url', url]);
  expect(stdout).toMatch(/^forecast +nothing is waiting \(0\/s in, 0\/s out\)/m);
  await ended(running);
});

test('the last rule, taken out while it fires, is over, and what it paused is resumed', async () => {
  const to = { here: { log: 'info' } };
  const rule = { ...HELD, then: { pause: 'mail.#' } };
  const shell = await shellWith({ alerts: { every: '1s', to, rules: [rule] } });
  await holdOne(shell);
  const before = await serving(shell);
  const spool = shell.spool();
  await expect.poll(() => spool.operator({ by: 'ops' }).pauses()).toHaveLength(1);
  await ended(before);
  const config = { serve: { port: 0 }, log: { format: 'json' }, alerts: { every: '1s', to } };
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
  const after = await serving(shell);
  await after.printed(/held is over after .*the rule is not in the configuration any more/);
  await expect.poll(() => spool.operator({ by: 'ops' }).pauses()).toEqual([]);
  await ended(after);
});

test('a rule pauses and holds when it fires, resumes what it paused, and replays when it is over', async () => {
  const shell = await deadSpool();
  const config = {
    serve: { port: 0 },
    log: { format: 'json' },
    unhandled: 'leave',
    deadLetters: {
      rules: [{ name: 'timeouts', when: { category: 'timeout' }, canary: 0, every: '1d' }],
    },
    alerts: {
      every: '1s',
      to: { here: { log: 'info' } },
      rules: [
        {
          name: 'look',
          when: 'count held of look.# > 0',
          then: [
            { pause: 'mail.#' },
            { pause: 'sms.#' },
            { pause: 'fax.#', until: 'operator' },
            { hold: 'orders.#' },
            { replay: 'timeouts' },
          ],
        },
      ],
    },
  };
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
  const spool = shell.spool();
  // Somebody else has paused this one: it is not ours to resume.
  await spool.operator({ by: 'somebody' }).pause('sms.#');
  await spool.enqueue({ topic: 'look.here', id: 'l1', delay: '1h' });
  await spool.operator({ by: 'ops' }).hold(['l1']);
  // The rule of dead letters has had its round for today.
  await spool
    .operator({ by: 'ops' })
    .records.put('dlq.rules', 'timeouts', { nextAt: Date.now() + 86_400_000 });
  const running = await serving(shell);
  const patterns = async (): Promise<string[]> =>
    (await spool.operator({ by: 'ops' }).pauses())
      .map(({ topic, by }) => `${topic} ${by}`)
      .toSorted();
  const during = ['fax.# alert:look', 'mail.# alert:look', 'sms.# somebody'];
  await expect.poll(patterns).toEqual(during);
  await expect.poll(() => shell.states()).toMatchObject({ 'waits-1': 'hold' });
  expect(await shell.states()).toMatchObject({ 'dead-3': 'bounce' });
  await spool.operator({ by: 'ops' }).release(['l1']);
  const after = ['fax.# alert:look', 'sms.# somebody'];
  await expect.poll(patterns).toEqual(after);
  await expect.poll(() => shell.states()).toMatchObject({ 'dead-3': 'incoming' });
  await ended(running);
  const audit = (await shell.cli(['audit', '--json'])).objects();
  const ours = audit.filter(({ by }) => by === 'alert:look').map(({ action }) => action);
  expect(ours).toEqual(
    expect.arrayContaining(['pause', 'bulk.hold', 'hold', 'resume', 'alert.replay']),
  );
  expect(ours.filter((action) => action === 'alert.replay').length).toBe(1);
});
