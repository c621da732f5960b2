/** The proxy of the fault tests does what it says, or those tests prove nothing. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { FaultProxy, type Spoil, SPOILS } from './proxy.ts';

/** What a client meets first; `silence` is no answer and no end. */
type Meeting = 'reset' | 'end' | 'silence' | 'answer';

/** What it meets when its connection is spoiled. */
const MEETS: Readonly<Record<Spoil, Meeting>> = {
  reset: 'reset',
  end: 'end',
  half: 'end',
  hold: 'silence',
  'hold-up': 'silence',
  'hold-down': 'silence',
  vanish: 'silence',
  delay: 'answer',
  'cut-up': 'reset',
  'cut-down': 'answer',
};
/** What was held passes when that is over. */
const ANSWERED_LATER: ReadonlySet<Spoil> = new Set(['hold', 'hold-up', 'hold-down']);
const SILENCE_MS = 150;

test.each(SPOILS)(
  'a connection that is spoiled by "%s" is met by what it should be',
  async (how) => {
    await using echo = await startEcho();
    await using proxy = await FaultProxy.start(`tcp://127.0.0.1:${echo.port}`, { delayMs: 20 });
    const client = connect({ port: Number(new URL(proxy.url).port), host: '127.0.0.1' });
    const closed = new Promise((resolve) =>
      client.on('error', () => undefined).once('close', resolve),
    );
    await ask(client, 'before', 'answer');
    proxy.spoil(how);
    await ask(client, 'meanwhile', MEETS[how]);
    expect(proxy.spoiled).toBe(1);
    const isLate = ANSWERED_LATER.has(how);
    const later = isLate || how === 'vanish' ? meets(client, isLate ? 'answer' : 'silence') : null;
    proxy.recover();
    await later;
    // It had a part of its answer.
    if (how === 'cut-down') await closed;
    client.destroy();
    const next = connect({ port: Number(new URL(proxy.url).port), host: '127.0.0.1' });
    await ask(next, 'after', 'answer');
    next.destroy();
  },
);

test.each(['up', 'down'] as const)(
  'a connection is spoiled after so many bytes %s, and not before',
  async (direction) => {
    await using echo = await startEcho();
    await using proxy = await FaultProxy.start(`tcp://127.0.0.1:${echo.port}`);
    const client = connect({ port: Number(new URL(proxy.url).port), host: '127.0.0.1' });
    client.on('error', () => undefined);
    proxy.spoilAfter(direction, 6, 'hold');
    await ask(client, '12345', 'answer');
    expect(proxy.spoiled).toBe(0);
    // What goes up with the sixth byte has no answer yet; what comes down with it has passed.
    await ask(client, '6', direction === 'up' ? 'silence' : 'answer');
    expect(proxy.spoiled).toBe(1);
    await ask(client, '7', 'silence');
    const later = meets(client, 'answer');
    proxy.recover();
    await later;
    client.destroy();
  },
);

test('a connection that is held while its reader is slow stays held', async () => {
  await using echo = await startEcho();
  await using proxy = await FaultProxy.start(`tcp://127.0.0.1:${echo.port}`);
  const client = connect({ port: Number(new URL(proxy.url).port), host: '127.0.0.1' });
  client.on('error', () => undefined);
  const sent = 64 * 2 ** 20;
  let read = 0;
  const all = Promise.withResolvers<void>();
  const first = Promise.withResolvers<void>();
  client.on('data', (bytes) => {
    read += bytes.byteLength;
    first.resolve();
    if (read === sent) all.resolve();
  });
  client.write(Buffer.alloc(sent));
  await first.promise;
  client.pause();
  // Nobody reads: everything on the way is full before long.
  await sleep(SILENCE_MS);
  proxy.spoil('hold');
  client.resume();
  // What was past the proxy comes, and no more.
  let before: number;
  do {
    before = read;
    await sleep(SILENCE_MS);
  } while (read > before);
  expect(read).toBeGreaterThan(0);
  expect(read).toBeLessThan(sent);
  proxy.recover();
  await all.promise;
  client.destroy();
});

function ask(client: Socket, text: string, meeting: Meeting): Promise<void> {
  const met = meets(client, meeting);
  if (client.writable) client.write(text);
  return met;
}

/** Waits until a client meets this first. Only silence is a matter of time: nothing says when. */
async function meets(client: Socket, meeting: Meeting): Promise<void> {
  const met = new Promise<Meeting>((resolve) => {
    client.once('data', () => resolve('answer'));
    client.once('end', () => resolve('end'));
    client.once('error', () => resolve('reset'));
  });
  const first = meeting === 'silence' ? Promise.race([met, sleep(SILENCE_MS, meeting)]) : met;
  expect(await first).toBe(meeting);
}

async function startEcho() {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
