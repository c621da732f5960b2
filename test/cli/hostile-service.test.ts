/** A service that sends anything: nothing of it reaches the terminal as more than text. */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { createOut, type Io } from '../../src/cli/ui/output.ts';
import { createProgress } from '../../src/cli/ui/progress.ts';
import { setup } from './setup.ts';

const EVIL = '\u001b[2J\u009b31m\u202e';

async function hostile(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const STATES = ['incoming', 'active', 'deferred', 'hold', 'bounce', 'archived'];
const MESSAGE = {
  id: 'one',
  envelope: {
    id: 'one',
    topic: EVIL,
    headers: { [EVIL]: EVIL },
    enqueuedAt: EVIL,
    expiresAt: EVIL,
    priority: EVIL,
    body: { place: EVIL, size: EVIL, digest: EVIL },
  },
  status: {
    state: EVIL,
    lane: EVIL,
    attempts: EVIL,
    postponed: 1,
    lost: EVIL,
    replays: EVIL,
    notices: EVIL,
    dueAt: EVIL,
    updatedAt: EVIL,
    revision: EVIL,
    notes: { [EVIL]: EVIL },
    because: { code: EVIL, text: EVIL, by: EVIL },
    history: [{ at: EVIL, tookMs: EVIL, by: EVIL, lane: 'notice', attempt: EVIL, code: EVIL }],
  },
};
const ANSWERS: Readonly<Record<string, unknown>> = {
  '/v1/stats': {
    at: EVIL,
    states: Object.fromEntries(STATES.map((state) => [state, { count: EVIL, oldestAt: EVIL }])),
    nextDueAt: EVIL,
    paused: [{ topic: EVIL, by: EVIL, at: EVIL }],
    load: { running: EVIL, concurrency: EVIL, waiting: EVIL, settled: EVIL },
    flow: { windowMs: EVIL, accepted: EVIL, delivered: EVIL, tookMs: { p50: EVIL }, ageMs: null },
  },
  '/v1/shape': {
    at: EVIL,
    by: EVIL,
    boundsMs: [EVIL],
    rows: [{ key: EVIL, total: EVIL, counts: [EVIL, EVIL] }],
    total: { key: EVIL, total: EVIL, counts: [EVIL, EVIL] },
  },
  '/v1/check': {
    entries: EVIL,
    bodies: EVIL,
    findings: [{ kind: EVIL, where: EVIL, text: EVIL, repaired: EVIL }],
  },
  '/v1/audit': {
    records: [{ sequence: EVIL, at: EVIL, by: EVIL, action: EVIL, ids: [EVIL] }],
  },
  '/v1/messages': { messages: [MESSAGE], corrupt: [{ where: EVIL, reason: EVIL }] },
  '/v1/messages/one': MESSAGE,
  '/v1/bulk': { count: EVIL, approximate: false, confirm: 'x', filter: {} },
  '/v1/rekey': {
    count: 2,
    confirm: EVIL,
    isRunning: false,
    done: 1,
    left: 1,
    unreadable: 1,
    troubles: [{ id: EVIL, code: EVIL, text: EVIL }],
  },
  '/v1/policies': { policies: [{ name: EVIL, policy: {} }] },
};

test.each([
  ['stats'],
  ['shape'],
  ['check'],
  ['audit'],
  ['list'],
  ['show', 'one'],
  ['hold', 'ALL', '--dry-run'],
  ['policy', 'set', 'x', 'one', '--dry-run'],
  ['list', '--json'],
  ['rekey', '--yes'],
])('%s', async (...words) => {
  let asked = 0;
  const url = await hostile((request, response) => {
    asked += 1;
    const { pathname } = new URL(request.url ?? '/', 'http://localhost');
    response.writeHead(200, { 'content-type': 'application/json', respool: 'v1' });
    response.end(JSON.stringify(ANSWERS[pathname] ?? {}));
  });
  const { cli } = await setup();
  const { stdout, stderr } = await cli([...words, '--url', url]);
  expect(asked).toBeGreaterThan(0);
  expect(stdout + stderr).not.toBe('');
  expect((stdout + stderr).replaceAll('\n', '')).not.toMatch(/[\p{Cc}\u202e]/u);
});

test('a progress that is no number is drawn as ?', () => {
  let drawn = '';
  let now = 0;
  const io = {
    stderr: { write: (piece: string) => (drawn += piece) },
    env: {},
    isTTY: () => true,
    columns: () => 80,
    clock: { monotonic: () => (now += 1_000) },
  } as unknown as Io;
  const out = createOut(io, { json: false, quiet: false, verbose: false, color: false });
  createProgress(io, out).show(EVIL as unknown as number, EVIL as unknown as number);
  expect(drawn).toBe(`\r[${'.'.repeat(24)}] ? of ? `);
});
