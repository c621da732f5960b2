/** Clients that ask for much and read nothing: the memory of the service stays bounded. */
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { isLongRun } from '../long.ts';
import { folder, type Running, serve } from './binary.ts';

const CONNECTIONS = 300;
const TOKEN = 'slow-readers-token-0123456789';
/** Of the test itself. */
const OWN = { authorization: `Bearer ${TOKEN}` };
const REQUESTS = 200;
/** It was 2 GB without a bound. */
const GROWTH_MAX_MIB = 64;
/** Samples in a row without a new peak, until the memory counts as settled. */
const SETTLED_SAMPLES = 15;
const BODY_BYTES = 2 ** 20;
const LONG_PATH = `/${'p'.repeat(30_000)}`;
const LONG_VALUE = 'x'.repeat(30_000);

interface Case {
  readonly name: string;
  /** What each connection sends, all of it at once. */
  readonly text: string;
  /** The service has a token, which none of these connections has. */
  readonly isRefused?: boolean;
  /** Like another one, which `npm test` has: for the longer runs. */
  readonly isMore?: boolean;
}

const get = (path: string, fields = ''): string =>
  `GET ${path} HTTP/1.1\r\nhost: localhost\r\n${fields}\r\n`;
const post = (length: number): string =>
  `POST /v1/topics/held/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${length}\r\n\r\n` +
  'x'.repeat(length);

const LARGE_BODY = 'x'.repeat(4 * 2 ** 20);
const chunked = (body: string): string =>
  'POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n' +
  `transfer-encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;

const CASES: readonly Case[] = [
  { name: 'the API description', text: get('/openapi.json').repeat(REQUESTS), isMore: true },
  {
    name: 'the smallest requests there are',
    text: 'GET / HTTP/1.1\r\nhost:a\r\n\r\n'.repeat(2_300),
  },
  {
    name: 'requests without a host',
    text: `${get('/openapi.json')}${'GET / HTTP/1.1\r\n\r\n'.repeat(2_300)}`,
    isMore: true,
  },
  { name: 'lists of messages', text: get('/v1/messages?limit=500').repeat(REQUESTS) },
  { name: 'metrics', text: get('/metrics').repeat(REQUESTS), isMore: true },
  { name: 'bodies of messages', text: get('/v1/messages/large/body').repeat(REQUESTS) },
  { name: 'events', text: get('/v1/events').repeat(REQUESTS) },
  { name: 'raw posts', text: post(100).repeat(REQUESTS / 10), isMore: true },
  {
    name: 'long heads',
    text: get(LONG_PATH, `x: ${LONG_VALUE}\r\n`).repeat(REQUESTS / 10),
    isMore: true,
  },
  {
    name: 'heads of many fields',
    text: get('/', 'a: b\r\n'.repeat(9_000)).repeat(REQUESTS / 10),
    isMore: true,
  },
  {
    name: 'heads of as many fields as there may be',
    text: get('/', Array.from({ length: 250 }, (_, at) => `x-${at}: b\r\n`).join('')).repeat(
      REQUESTS,
    ),
  },
  {
    name: 'large bodies without a token',
    text: post(4 * 2 ** 20),
    isRefused: true,
    isMore: true,
  },
  { name: 'large bodies in chunks without a token', text: chunked(LARGE_BODY), isRefused: true },
];

test.each(CASES.filter(({ isMore = false }) => isLongRun || !isMore))(
  `${CONNECTIONS} connections that never read do not fill the memory: $name`,
  async ({ text, isRefused = false }) => {
    const cwd = await folder({
      routes: [],
      serve: {
        limits: { requestsPerSecond: 1_000_000 },
        ...(isRefused ? { token: `sha256:${hash('sha256', TOKEN)}` } : {}),
      },
    });
    const service = await serve(cwd);
    await fill(service);
    const before = await settledMiB(service);
    // One copy for all: what is measured is the memory of the other process.
    const bytes = Buffer.from(text, 'latin1');
    const sockets = await Promise.all(
      Array.from({ length: CONNECTIONS }, () => openUnread(service.url, bytes)),
    );
    const peak = await settledMiB(service);
    expect(sockets).toHaveLength(CONNECTIONS);
    const what = `${before} MiB before, ${peak} MiB at the peak`;
    expect(peak - before, what).toBeLessThan(GROWTH_MAX_MIB);
    expect((await fetch(`${service.url}/healthz`)).status).toBe(200);
  },
);

test(`${CONNECTIONS} connections that never read do not fill the memory of a service that has just begun`, async () => {
  const cwd = await folder({ routes: [], serve: { limits: { requestsPerSecond: 1_000_000 } } });
  const service = await serve(cwd);
  const before = await settledMiB(service);
  const bytes = Buffer.from(get('/openapi.json').repeat(REQUESTS), 'latin1');
  await Promise.all(Array.from({ length: CONNECTIONS }, () => openUnread(service.url, bytes)));
  const peak = await settledMiB(service);
  const what = `${before} MiB before, ${peak} MiB at the peak`;
  expect(peak - before, what).toBeLessThan(GROWTH_MAX_MIB);
});

/** Messages to list, one large body, and every answer asked for once before anything is measured. */
async function fill({ url }: Running): Promise<void> {
  const messages = Array.from({ length: 500 }, (_, at) => ({
    topic: `held.${at % 10}`,
    headers: { 'x-text': 'x'.repeat(1_000) },
    bodyText: 'hello',
  }));
  const headers = { ...OWN, 'content-type': 'application/json' };
  const posted = await fetch(`${url}/v1/messages`, {
    method: 'POST',
    headers,
    body: JSON.stringify(messages),
  });
  expect(posted.status).toBe(201);
  const large = await fetch(`${url}/v1/topics/held/messages`, {
    method: 'POST',
    headers: { ...OWN, 'respool-id': 'large' },
    body: Buffer.alloc(BODY_BYTES),
  });
  expect(large.status).toBe(201);
  // Posts before the case of raw posts: what they cost at the first time is not meant.
  const raw = `${url}/v1/topics/held/messages`;
  for (let at = 0; at < 30; at += 1) {
    await Promise.all(
      Array.from({ length: 100 }, () =>
        fetch(raw, { method: 'POST', headers: OWN, body: 'x'.repeat(100) }),
      ),
    );
  }
  const paths = ['/openapi.json', '/v1/messages?limit=500', '/metrics', '/v1/messages/large/body'];
  const read = async (path: string): Promise<void> => {
    const answer = await fetch(`${url}${path}`, { headers: OWN });
    expect(answer.status).toBe(200);
    await answer.arrayBuffer();
  };
  for (let round = 0; round < 4; round += 1) {
    await Promise.all(Array.from({ length: 50 }, () => readLongHead(url)));
  }
  // Many at once, as in the cases: the difference is that these are read.
  for (const path of paths) {
    for (let round = 0; round < 4; round += 1) {
      await Promise.all(Array.from({ length: 50 }, () => read(path)));
    }
  }
}

async function readLongHead(url: string): Promise<void> {
  const answer = await fetch(`${url}${LONG_PATH}`, { headers: { ...OWN, x: LONG_VALUE } });
  expect(answer.status).toBe(404);
  await answer.arrayBuffer();
}

/** A connection that sends this and never reads an answer. */
async function openUnread(url: string, bytes: Uint8Array): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  socket.pause();
  socket.write(bytes);
  return socket;
}

/** The largest memory seen until it has not grown for a while; the service answers meanwhile. */
async function settledMiB({ pid, url }: Running): Promise<number> {
  let peak = 0;
  for (let quiet = 0; quiet < SETTLED_SAMPLES; quiet += 1) {
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    const now = await residentMiB(pid);
    if (now > peak) {
      peak = now;
      quiet = 0;
    }
    // A sampling interval: the memory of another process has no event to wait for.
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return peak;
}

async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Math.round(Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1_024);
}
