/** One receiver that hangs is its own trouble: the others get their messages as before. */
import { expect, test } from 'vitest';
import { folder, receiver, route, serve } from './binary.ts';

const MESSAGES = 300;
const RATIO_MAX = 2;
/** So many rounds: with other tests beside it, one alone says more about the machine. */
const ROUNDS_MAX = 8;

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
  await p99();
  const before = await p99();
  // More than all slots of its route: what cannot run waits, and keeps nobody else waiting.
  await Promise.all(Array.from({ length: 100 }, () => post('hangs')));
  const ratios: number[] = [];
  for (let round = 0; round < ROUNDS_MAX && (ratios.at(-1) ?? RATIO_MAX) >= RATIO_MAX; round += 1) {
    ratios.push((await p99()) / before);
  }
  expect(Math.min(...ratios), `p99 with ÷ without: ${ratios.join()}`).toBeLessThan(RATIO_MAX);
}, 120_000);
