/** No command waits without end for a service that takes connections and says nothing. */
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import path from 'node:path';
import { SimClock } from 'respool/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { moving } from '../web/setup.ts';
import { ALL_COMMANDS, lineOf } from './command-tree.ts';
import { setup } from './setup.ts';

const sockets = new Set<Socket>();
const server = createServer((socket) => {
  sockets.add(socket.on('error', () => undefined).resume());
});
let url = '';

beforeAll(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  for (const socket of sockets) socket.destroy();
  server.close();
});

/** What a command needs before it asks the service. */
const CONFIG = {
  alerts: { to: { us: { log: 'warn' } }, rules: [{ name: 'one', when: 'count bounce > 2' }] },
  deadLetters: { rules: [{ name: 'one', when: { category: 'network' } }] },
};
/** Of a broker or a database; what is silent is part of the result; runs until a signal. */
const OTHERS = /^(?:(?:outbox|rabbit) .*|dlq sweep|doctor|alerts check|dlq rules run)$/;
const ASKING = ALL_COMMANDS.filter(
  ({ path: words, spec }) => spec.role !== undefined && !OTHERS.test(words),
);

test('this is about most commands', () => {
  expect(ASKING.length).toBeGreaterThan(30);
});

test.each(ASKING)('respool $path', async (placed) => {
  const { cli, folder } = await setup();
  await writeFile(path.join(folder, 'respool.config.json'), JSON.stringify(CONFIG));
  const clock = new SimClock();
  const line = [...lineOf(placed, 'some-id'), '--url', url];
  const ran = await moving(clock, cli(line, { clock }));
  expect(ran.stderr).toMatch(/did not answer within \d+ s, not even to \/healthz; check that/);
  expect(ran.code).toBe(3);
});
