/** One receiver that hangs is its own trouble: the others get their messages as before. */
import { expect, test } from 'vitest';
import { folder, receiver, route, serve } from './binary.ts';

const MESSAGES = 300;
const RATIO_MAX = 2;
/** Medians of at least three rounds: one alone says more about the machine. */
const ROUNDS_MIN = 3;
const ROUNDS_MAX = 9;

test('a receiver that hangs does not slow the others down', async () => {
  let arrived = (_at: number): void => undefined;
  const { url } = await receiver((request, response) => {
    request.resume();
    if (request.url === '/hangs') return;
    arrived(performance.now());
    response.end();
  });
  const cwd = await folder({
    routes: [route('quick', `${url}/quick`), route('hangs', `${url}/hangs`)],
    log: { level: 'error' },
  });
  const service = await serve(cwd);
  const post = (topic: string): Promise<Response> =>
    fetch(`${service.url}/v1/topics/${topic}/messages`, { method: 'POST', body: 'x' });
  const p99 = async (): Promise<number> => {
    const latencies: number[] = [];
    for (let at = 0; at < MESSAGES; at += 1) {
      const sentAt = performance.now();
      const arrival = new Promise<number>((resolve) => {
        arrived = resolve;
      });
      await post('quick');
      latencies.push((await arrival) - sentAt);
    }
    return latencies.sort((a, b) => a - b)[Math.floor(MESSAGES * 0.99)] ?? 0;
  };
  const rounds = async (isEnough: (soFar: readonly number[]) => boolean): Promise<number[]> => {
    const values: number[] = [];
    do values.push(await p99());
    while (values.length < ROUNDS_MIN || (values.length < ROUNDS_MAX && !isEnough(values)));
    return values;
  };
  await p99();
  const before = median(await rounds(() => true));
  // More than all slots of its route: what cannot run waits, and keeps nobody else waiting.
  await Promise.all(Array.from({ length: 100 }, () => post('hangs')));
  const during = await rounds((soFar) => median(soFar) / before < RATIO_MAX);
  expect(median(during) / before, `p99 ${before} ms, then ${during.join()}`).toBeLessThan(
    RATIO_MAX,
  );
}, 120_000);

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}
