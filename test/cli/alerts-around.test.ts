/** Alerts about queues, consumers and an outbox, at real servers. */
import path from 'node:path';
import Sqlite from 'better-sqlite3';
import { createOutbox } from 'respool/outbox';
import { SimClock } from 'respool/testkit';
import { expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { rabbitShell } from './rabbit-broker.ts';
import { setup } from './setup.ts';
import { writeFile } from 'node:fs/promises';

const to = { here: { log: 'warn' } };

withService('rabbitmq', () => {
  test('dead queues and other queues are measured, together and one by one', async () => {
    const shell = await rabbitShell();
    const { channel, cli, configure, prefix, put } = shell;
    const queue = `${prefix}.orders`;
    const rules = [
      { name: 'dead', when: 'dead queue > 0' },
      { name: 'other', when: `queue "${prefix}.other" > 5` },
      { name: 'missing', when: `dead queue "${prefix}.none" > 0` },
    ];
    await configure({
      alerts: { to, rules },
      consumers: [{ queue, deliver: { exec: ['true'] } }],
    });
    const checked = async () => (await cli(['alerts', 'check', '--json'])).objects();
    await cli(['enqueue', 'a', '--body', 'x']);
    await channel.assertQueue(`${prefix}.other`, { durable: true });
    await put(`${prefix}.other`, ['a', 'b']);
    // The dead queue of a consumer that never ran holds nothing.
    expect(await checked()).toMatchObject([
      { rule: 'dead', value: 0, holds: false },
      { rule: 'other', value: 2, holds: false },
      { rule: 'missing', value: null, why: expect.stringContaining('there is no queue') as string },
    ]);
    await cli(['rabbit', 'topology', 'apply', '--yes']);
    const dead = (await cli(['rabbit', 'topology', 'export', '--json'])).stdout;
    const [name = ''] = new RegExp(`${queue}[^"]*(?:dlq|dead)[^"]*`).exec(dead) ?? [];
    await put(name, ['lost']);
    await expect.poll(checked).toMatchObject([{ rule: 'dead', value: 1, holds: true }, {}, {}]);
  });

  test('a consumer that is not connected is told of, and its return', async () => {
    const shell = await rabbitShell();
    const queue = `${shell.prefix}.orders`;
    const consumer = { queue, deliver: { exec: ['true'] } };
    const rules = [
      { name: 'up', when: `consumer of "${queue}" down for 30s` },
      { name: 'away', when: 'consumer of "nowhere" down' },
    ];
    await shell.configure({
      alerts: { every: '1s', to, rules },
      consumers: [consumer, { ...consumer, queue: 'nowhere', url: 'amqp://127.0.0.1:1' }],
      serve: { port: 0 },
      log: { format: 'json' },
    });
    const running = shell.start(['serve']);
    await running.printed(/alert fired: away: consumer of .*nowhere.* is down/);
    running.signal('SIGTERM');
    const { stdout } = await running.ended;
    expect(stdout).not.toContain('alert fired: up');
  });
});

test('the lag of an outbox begins with the eta of what was put off', async () => {
  const shell = await setup({ hasStore: true });
  const database = new Sqlite(path.join(shell.folder, 'app.db'));
  // Emitted an hour ago, for a minute ago.
  const clock = new SimClock({ startAt: Date.now() - 3_600_000 });
  const outbox = createOutbox({ database, clock });
  outbox.migrate();
  outbox.transaction((tx) => outbox.emit(tx, 'a', 'hello', { eta: '59m' }));
  await outbox.close();
  database.close();
  const rules = [{ name: 'lag', when: 'outbox lag > 30m' }];
  const config = { outbox: { store: 'sqlite:./app.db' }, alerts: { to, rules } };
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
  await shell.cli(['enqueue', 'a', '--body', 'x']);
  const [lag] = (await shell.cli(['alerts', 'check', '--json'])).objects();
  expect(lag).toMatchObject({ rule: 'lag', holds: false });
  expect(Number(lag?.['value'])).toBeGreaterThanOrEqual(60_000);
});

test('an outbox has a backlog and a lag', async () => {
  const shell = await setup({ hasStore: true });
  const database = new Sqlite(path.join(shell.folder, 'app.db'));
  const outbox = createOutbox({ database });
  outbox.migrate();
  outbox.transaction((tx) => outbox.emit(tx, 'a', 'hello'));
  await outbox.close();
  database.close();
  const rules = [
    { name: 'backlog', when: 'outbox backlog > 0' },
    { name: 'lag', when: 'outbox lag > 0s' },
  ];
  const config = { outbox: { store: 'sqlite:./app.db' }, alerts: { to, rules } };
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
  await shell.cli(['enqueue', 'a', '--body', 'x']);
  const checked = async () => (await shell.cli(['alerts', 'check', '--json'])).objects();
  await expect.poll(checked).toMatchObject([
    { rule: 'backlog', value: 1, holds: true },
    { rule: 'lag', unit: 'ms', holds: true },
  ]);
});
