/** Many topics and destinations: neither what is remembered by name nor what is counted is large. */
import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { expect, test } from 'vitest';
import { isLongRun } from '../long.ts';
import { folder, packaged, receiver, route, type Running, serve, until } from './binary.ts';

const NAMES = 50_000;
const BATCH = 500;
const ROUNDS = 4;
const MEMORY_MAX_MIB = 300;
const LOOKS = [
  '/metrics',
  '/v1/stats',
  '/v1/tally?by=topic',
  '/v1/tally?by=destination',
  '/v1/shape',
  '/v1/shape?by=destination',
  '/v1/messages?limit=400',
  '/v1/messages?state=deferred&order=dueAt',
];
const TEST_MAX_MS = 900_000;

interface Case {
  readonly what: string;
  /** Of each message. */
  readonly delay?: string;
  /** What the receiver answers. */
  readonly status: number;
  /** Where the messages are in the end. */
  readonly state: 'deferred' | 'gone';
}

/** The last one takes the most memory, and passes all that the others do. */
const CASES: readonly Case[] = [
  { what: 'that wait for a time to come', delay: '1h', status: 200, state: 'deferred' },
  { what: 'that are delivered', status: 200, state: 'gone' },
  { what: 'whose receivers refuse', status: 503, state: 'deferred' },
];

test.each(isLongRun ? CASES : CASES.slice(-1))(
  `messages $what of ${NAMES} topics to ${NAMES} destinations take ${MEMORY_MAX_MIB} MiB at the most`,
  async ({ delay, status, state }) => {
    const answered = new Set<unknown>();
    const { url } = await receiver((request, response) => {
      answered.add(request.headers['respool-id']);
      answer(request, response, status);
    });
    const cwd = await folder({ routes: [route('many.#', url), route('other', url)] });
    const service = await serve(cwd, [], {}, await packaged());
    for (let from = 0; from < NAMES; from += BATCH) await post(service, from, delay);
    await until(async () => (await countOf(service, state)) === (state === 'gone' ? 0 : NAMES));
    if (delay === undefined) expect(answered.size).toBe(NAMES);
    for (let round = 0; round < ROUNDS; round += 1) await look(service, round);
    const tally = await json<{ rows: unknown[] }>(service, '/v1/tally?by=destination');
    expect(tally.rows).toHaveLength(state === 'gone' ? 0 : NAMES);
    const { now, peak } = await memoryMiB(service);
    expect(now).toBeLessThanOrEqual(MEMORY_MAX_MIB);
    expect(peak).toBeLessThanOrEqual(MEMORY_MAX_MIB);
  },
  TEST_MAX_MS,
);

function answer(request: IncomingMessage, response: ServerResponse, status: number): void {
  request.resume().on('end', () => response.writeHead(status).end('an answer'));
}

async function post({ url }: Running, from: number, delay: string | undefined): Promise<void> {
  const messages = Array.from({ length: BATCH }, (_, at) => ({
    topic: `many.topic-${from + at}`,
    destination: `https://receiver-${from + at}.example/hook`,
    delay,
    bodyText: 'hello',
  }));
  const posted = await fetch(`${url}/v1/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(messages),
  });
  expect(posted.status).toBe(201);
  await posted.arrayBuffer();
}

/** How many messages are in a state, or are there at all. */
async function countOf(service: Running, state: Case['state']): Promise<number> {
  const { rows } = await json<{ rows: { key: string; count: number }[] }>(
    service,
    '/v1/tally?by=state',
  );
  const wanted = rows.filter(({ key }) => state === 'gone' || key === state);
  return wanted.reduce((sum, { count }) => sum + count, 0);
}

async function look(service: Running, round: number): Promise<void> {
  for (const path of LOOKS) {
    const answered = await fetch(`${service.url}${path}`);
    expect(answered.status, path).toBe(200);
    await answered.arrayBuffer();
  }
  // An operation of an operator: what was counted before is not answered again.
  const paused = await fetch(`${service.url}/v1/pause`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ topic: `none.${round}` }),
  });
  expect(paused.status).toBeLessThan(300);
  await paused.arrayBuffer();
}

async function json<T>({ url }: Running, path: string): Promise<T> {
  const answered = await fetch(`${url}${path}`);
  return (await answered.json()) as T;
}

/** Resident memory of the process: now, and the most it has had so far. */
async function memoryMiB({ pid }: Running): Promise<{ now: number; peak: number }> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const of = (name: string): number =>
    Math.round(Number(new RegExp(String.raw`${name}:\s+(\d+) kB`).exec(status)?.[1]) / 1_024);
  return { now: of('VmRSS'), peak: of('VmHWM') };
}
