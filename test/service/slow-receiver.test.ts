/** One receiver that hangs is its own trouble: the others get their messages as before. */
import { expect, test } from 'vitest';
import { folder, receiver, route, serve, until } from './binary.ts';

const MESSAGES = 300;
/** More than all slots of its route. */
const HANGING = 100;

test('a receiver that hangs does not keep the messages of another waiting', async () => {
  let hanging = 0;
  let arrived = 0;
  const { url } = await receiver((request, response) => {
    request.resume();
    if (request.url === '/hangs') {
      hanging += 1;
      response.on('close', () => {
        hanging -= 1;
      });
      return;
    }
    arrived += 1;
    response.end();
  });
  const cwd = await folder({
    // No attempt ends by its time limit while the test runs.
    routes: [
      route('quick', `${url}/quick`),
      route('hangs', `${url}/hangs`, {}, { timeout: '10m' }),
    ],
    lease: '15m',
  });
  const service = await serve(cwd);
  const post = (topic: string): Promise<Response> =>
    fetch(`${service.url}/v1/topics/${topic}/messages`, { method: 'POST', body: 'x' });
  await Promise.all(Array.from({ length: HANGING }, () => post('hangs')));
  await until(async () => hanging > 0);
  for (let count = 1; count <= MESSAGES; count += 1) {
    await post('quick');
    await until(async () => arrived === count);
  }
  // Every slot of its route is still taken, and nothing waited for one of them.
  expect(hanging).toBeGreaterThan(0);
});
