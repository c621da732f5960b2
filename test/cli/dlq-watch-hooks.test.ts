/** The hooks of a watch that do not come to an end. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import type { CommandContext } from '../../src/cli/spec.ts';
import { type Alert, type Hook, hookOf } from '../../src/cli/commands/dlq/sweep/watch.ts';
import { SimClock } from 'respool/testkit';

const ALERT: Alert = {
  event: 'fired',
  at: '2026-01-01T00:00:00.000Z',
  place: 'spool',
  queue: 'dead',
  depth: 1,
  above: 0,
  growth: null,
  group: null,
};

/** The hook of these options, on a clock that stands still. */
function hooked(clock: SimClock, given: Readonly<Record<string, string>>): Hook {
  const options = { filled: (name: string) => given[name] };
  const io = { clock, cwd: process.cwd(), env: { PATH: process.env['PATH'] } };
  const hook = hookOf({ options, io } as unknown as CommandContext);
  if (hook === undefined) throw new Error('there is no hook');
  return hook;
}

test('a command that hangs is ended after half a minute', async () => {
  const clock = new SimClock();
  const told = hooked(clock, { exec: 'trap "" TERM; sleep 600' }).tell(ALERT);
  const failed = expect(told).rejects.toThrow(/^it took longer than 30s$/);
  await clock.advance(29_999);
  await clock.advance(1);
  await clock.advance(2_000);
  await failed;
});

test('a webhook that does not answer is given up after half a minute', async () => {
  const clock = new SimClock();
  const asked = Promise.withResolvers<void>();
  const server = createServer(() => asked.resolve());
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const told = hooked(clock, { webhook: `http://127.0.0.1:${port}/` }).tell(ALERT);
  const failed = expect(told).rejects.toThrow(
    /^the webhook did not answer: it took longer than 30s$/,
  );
  await asked.promise;
  await clock.advance(30_000);
  await failed;
});
