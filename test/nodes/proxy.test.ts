/** The proxy of the fault tests does what it says, or those tests prove nothing. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { FaultProxy, type Spoil, SPOILS } from './proxy.ts';

/** What a client meets first when it is spoiled; `silence` is no answer and no end. */
const MEETS: Readonly<Record<Spoil, 'reset' | 'end' | 'silence' | 'answer'>> = {
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
    expect(await askAndWait(client, 'before')).toBe('answer');
    proxy.spoil(how);
    expect(await askAndWait(client, 'meanwhile')).toBe(MEETS[how]);
    expect(proxy.spoiled).toBe(1);
    const later = what(client);
    proxy.mend();
    if (ANSWERED_LATER.has(how)) expect(await later).toBe('answer');
    if (how === 'vanish') expect(await later).toBe('silence');
    // It had a part of its answer.
    if (how === 'cut-down') await closed;
    client.destroy();
    const next = connect({ port: Number(new URL(proxy.url).port), host: '127.0.0.1' });
    expect(await askAndWait(next, 'after')).toBe('answer');
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
    expect(await askAndWait(client, '12345')).toBe('answer');
    expect(proxy.spoiled).toBe(0);
    // What goes up with the sixth byte has no answer yet; what comes down with it has passed.
    expect(await askAndWait(client, '6')).toBe(direction === 'up' ? 'silence' : 'answer');
    expect(proxy.spoiled).toBe(1);
    expect(await askAndWait(client, '7')).toBe('silence');
    const later = what(client);
    proxy.mend();
    expect(await later).toBe('answer');
    client.destroy();
  },
);

test('a connection that is held while its reader is slow stays held', async () => {
  await using echo = await startEcho();
  await using proxy = await FaultProxy.start(`tcp://127.0.0.1:${echo.port}`);
  const client = connect({ port: Number(new URL(proxy.url).port), host: '127.0.0.1' });
  client.on('error', () => undefined);
  const sent = 64 * 2 ** 20;
  client.pause();
  client.write(Buffer.alloc(sent));
  // Nobody reads: everything on the way is full before long.
  await sleep(SILENCE_MS);
  proxy.spoil('hold');
  let read = 0;
  const all = Promise.withResolvers<void>();
  client
    .on('data', (bytes) => {
      read += bytes.byteLength;
      if (read === sent) all.resolve();
    })
    .resume();
  // What was past the proxy comes, and no more.
  let before: number;
  do {
    before = read;
    await sleep(SILENCE_MS);
  } while (read > before);
  expect(read).toBeGreaterThan(0);
  expect(read).toBeLessThan(sent);
  proxy.mend();
  await all.promise;
  client.destroy();
});

function askAndWait(client: Socket, text: string): Promise<string> {
  const met = what(client);
  if (client.writable) client.write(text);
  return met;
}

/** The first thing that a client meets. */
function what(client: Socket): Promise<string> {
  return new Promise((resolve) => {
    client.once('data', () => resolve('answer'));
    client.once('end', () => resolve('end'));
    client.once('error', () => resolve('reset'));
    void sleep(SILENCE_MS).then(() => resolve('silence'));
  });
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
