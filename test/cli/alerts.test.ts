/** Alerts beside a service, and `respool alerts`. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { httpEar } from '../observe/alerts-ground.ts';
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
  await spool.hold(['m1']);
  await spool.stop();
}

const HELD = { name: 'held', when: 'count held > 0' };

test('a service tells of an alert by HTTP and in its log, and of its end', async () => {
  const ear = await httpEar();
  const shell = await shellWith({
    // A route that takes all topics does not take notifications.
    routes: [{ topic: '#', deliver: { exec: ['true'] } }],
    alerts: {
      every: '1s',
      to: { ops: { http: { url: ear.url, allow: ['127.0.0.1'] } }, here: { log: 'warn' } },
      rules: [HELD],
    },
  });
  await holdOne(shell);
  const running = await serving(shell);
  await running.printed(/alert fired: held: count held is 1/);
  await expect.poll(() => ear.heard.length).toBe(1);
  await shell.cli(['release', 'm1', '--yes']);
  await running.printed(/alert resolved: held is over/);
  await expect.poll(() => ear.heard.length, { timeout: 5_000 }).toBe(2);
  const printed = await ended(running);
  expect(printed).not.toContain('no route delivers');
  expect(printed).toContain('alerts ops, here by rule held: count held > 0');
  expect(ear.heard.map(({ phase }) => phase)).toEqual(['fired', 'resolved']);
});
