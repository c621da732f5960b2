/** Many topics and destinations: what is counted by name costs no memory for each look. */
import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { folder, type Running, serve } from './binary.ts';

/** More than a tally counts by a pass over all messages: from there on it uses stored counts. */
const NAMES = 25_000;
const BATCH = 500;
const ROUNDS = 4;
const LOOKS = [
  '/metrics',
  '/v1/stats',
  '/v1/tally?by=topic',
  '/v1/tally?by=destination',
  '/v1/shape',
];
const GROWTH_MAX_MIB = 300;

test(`${NAMES} topics and destinations take less than ${GROWTH_MAX_MIB} MiB to count`, async () => {
  const echo = { http: { url: 'http://127.0.0.1:9/', allow: ['127.0.0.1'] } };
  const cwd = await folder({
    routes: [
      { topic: 'many.#', deliver: echo },
      { topic: 'other', deliver: echo },
    ],
  });
  const service = await serve(cwd);
  for (let from = 0; from < NAMES; from += BATCH) await post(service, from);
  const before = await peakMiB(service);
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const path of LOOKS) {
      const answer = await fetch(`${service.url}${path}`);
      expect(answer.status).toBe(200);
      await answer.arrayBuffer();
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
  const tally = await fetch(`${service.url}/v1/tally?by=destination`);
  expect(((await tally.json()) as { rows: unknown[] }).rows).toHaveLength(NAMES);
  const peak = await peakMiB(service);
  expect(peak - before, `${before} MiB before, ${peak} MiB at the peak`).toBeLessThan(
    GROWTH_MAX_MIB,
  );
}, 300_000);

async function post({ url }: Running, from: number): Promise<void> {
  const messages = Array.from({ length: BATCH }, (_, at) => ({
    topic: `many.topic-${from + at}`,
    destination: `https://receiver-${from + at}.example/hook`,
    delay: '1h',
    bodyText: 'hello',
  }));
  const answer = await fetch(`${url}/v1/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(messages),
  });
  expect(answer.status).toBe(201);
  await answer.arrayBuffer();
}

/** The most memory that the process has had so far. */
async function peakMiB({ pid }: Running): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Math.round(Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1_024);
}
