/** stats — the numbers once, and again and again. */
import { SimClock } from 'respool/testkit';
import { expect, test } from 'vitest';
import { fill } from './fill.ts';
import { setup } from './setup.ts';

test('states, the next due time and pauses are shown', async () => {
  const shell = await setup({ hasStore: true });
  await fill(shell);
  await shell.cli(['pause', 'mail.*']);
  const { code, stdout } = await shell.cli(['stats']);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^state +messages +oldest$/m);
  expect(stdout).toMatch(/^deferred +1 +\S+( ago)?$/m);
  expect(stdout).toMatch(/^active +0$/m);
  expect(stdout).toMatch(/^next due +(now|\S+ ago)$/m);
  expect(stdout).toMatch(/^paused +mail\.\* \(by tester@cli, /m);
});

test('a pause of everything is called by that name', async () => {
  const { cli } = await setup({ hasStore: true });
  await cli(['pause', 'ALL']);
  expect((await cli(['stats'])).stdout).toMatch(/^paused +everything \(by tester@cli, /m);
});

test('with --json it is one object', async () => {
  const shell = await setup({ hasStore: true });
  await fill(shell);
  expect((await shell.cli(['stats', '--json'])).objects()).toMatchObject([
    { states: { bounce: { count: 1 }, hold: { count: 1 } }, paused: [] },
  ]);
});

test('--watch draws again every 5 seconds, until Ctrl-C', async () => {
  const shell = await setup({ hasStore: true });
  const clock = new SimClock();
  const running = shell.start(['stats', '--watch', '--json'], { clock });
  await running.printed(/^(?:\{.*\n){1}/);
  await clock.advance(5_000);
  await running.printed(/^(?:\{.*\n){2}/);
  await clock.advance(4_999);
  running.signal('SIGINT');
  const ran = await running.ended;
  expect(ran.code).toBe(0);
  expect(ran.objects().length).toBe(2);
});

test('a terminal is drawn over', async () => {
  const shell = await setup({ hasStore: true });
  const running = shell.start(['stats', '--watch'], { tty: ['stdout'], clock: new SimClock() });
  await running.printed(/next due/);
  running.signal('SIGTERM');
  expect((await running.ended).stdout.startsWith('\u001b[H\u001b[J')).toBe(true);
});
