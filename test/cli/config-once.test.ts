/** A command reads its configuration at most once: what it says is the same in all its parts. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, test, vi } from 'vitest';
import { ALL_COMMANDS, lineOf, type Placed } from './command-tree.ts';
import { setup } from './setup.ts';

const { reads } = vi.hoisted(() => ({ reads: { count: 0 } }));

vi.mock(import('../../src/config/load/load-config.ts'), async (original) => {
  const real = await original();
  const loadConfig: typeof real.loadConfig = (options) => {
    reads.count += 1;
    return real.loadConfig(options);
  };
  return { ...real, loadConfig };
});

beforeEach(() => {
  reads.count = 0;
});

/** A port where no broker listens: what comes after the connection needs no configuration. */
const BROKER = 'amqp://127.0.0.1:1';
const CONFIG = {
  policies: { default: { fixed: '1h' } },
  serve: { port: 0 },
  alerts: { to: { us: { log: 'warn' } }, rules: [{ name: 'one', when: 'count bounce > 2' }] },
  deadLetters: { rules: [{ name: 'one', when: { category: 'network' } }] },
  consumers: [
    { queue: 'orders', url: BROKER, policy: { fixed: '1m' }, deliver: { exec: ['true'] } },
  ],
  outbox: { store: 'sqlite:./app.db', relay: { to: { spool: true } } },
};

/** Words besides those of the arguments. */
const MORE: Readonly<Record<string, readonly string[]>> = {
  bench: ['--seconds', '1'],
  'config set': ['sqlite:./respool'],
  'dlq replay': ['--yes'],
  'dlq sweep': ['--queue', 'orders.dead', '--target', 'done', '--url', BROKER],
  'rabbit drain': ['--url', BROKER],
};

/** These never need it, or read it only for an answer that others give too. */
const WITHOUT = /^(?:init|completion|token .*|keys .*|config set|policy explain)$/;

test('the configuration of this test is right', async () => {
  const { folder, cli } = await setup();
  await writeFile(path.join(folder, 'respool.config.json'), JSON.stringify(CONFIG));
  expect(await cli(['config', 'check'])).toMatchObject({ code: 0, stderr: '' });
});

test.each(ALL_COMMANDS)('respool $path', async (placed: Placed) => {
  const { folder, start, spool } = await setup();
  const filled = spool();
  const { id } = await filled.enqueue({ topic: 'one.dead', body: 'x' });
  await filled.operator({ by: 'test' }).bounce([id]);
  await filled.stop();
  await writeFile(path.join(folder, 'respool.config.json'), JSON.stringify(CONFIG));
  const running = start([...lineOf(placed, id), ...(MORE[placed.path] ?? [])], { stdin: '{}' });
  // What runs until a signal has read its configuration when it first says something.
  void running.printed(/./).then(() => running.signal('SIGTERM'));
  const { stderr } = await running.ended;
  expect(stderr).not.toMatch(/bug|the configuration is read once/);
  expect(reads.count).toBeLessThanOrEqual(1);
  if (!WITHOUT.test(placed.path)) expect([stderr, reads.count]).toEqual([stderr, 1]);
});
