/** A relay whose database is away: started again after longer and longer waits, and stopped. */
import { RespoolError } from 'respool';
import { SimClock } from 'respool/testkit';
import { expect, test } from 'vitest';
import { setup as serviceSetup } from '../web/setup.ts';
import { startRelay } from '../../src/cli/commands/outbox/relay.ts';
import type { ServeLog } from '../../src/cli/commands/serve/serve-log.ts';
import type { ConfiguredRelay } from '../../src/config/open/open-outbox.ts';

const info = {
  store: 'postgres://db.example/shop',
  schema: 'outbox',
  to: { spool: true },
  batch: 100,
  concurrency: 500,
  cleanUp: 'at once' as const,
  topics: ['#'],
};

/** A relay that fails to start with these, one after the other, and starts then. */
function setup(failures: readonly Error[]) {
  const clock = new SimClock();
  const said: string[] = [];
  const log: ServeLog = {
    event: () => undefined,
    say: (level, text) => void said.push(`${level} ${text}`),
  };
  const left = [...failures];
  const done: string[] = [];
  const relay = {
    load: { running: 0, target: 'closed', paused: [] } as object,
    on: () => () => undefined,
    start: async () => {
      const failure = left.shift();
      if (failure !== undefined) throw failure;
      done.push('start');
    },
    stop: async () => void done.push('stop'),
  } as unknown as ConfiguredRelay['relay'];
  const configured = { relay, info, close: async () => void done.push('close') };
  return { clock, log, said, done, configured };
}

const away = new RespoolError('store.unavailable', 'the server is away');

test('it is tried again after 1s, 2s and so on, until the database is there', async () => {
  const { clock, log, said, done, configured } = setup([away, away]);
  const life = startRelay(configured, { clock, log });
  await clock.advance(0);
  expect(said).toEqual([
    'warn cannot relay postgres://db.example/shop (schema outbox): the server is away; ' +
      'trying again in 1s',
  ]);
  await clock.advance('1s');
  expect(said[1]).toContain('trying again in 2s');
  await clock.advance('1s');
  expect(done).toEqual([]);
  await clock.advance('1s');
  expect(done).toEqual(['start']);
  expect(said[2]).toContain('info relays from postgres://db.example/shop (schema outbox)');
  await life.stop(0);
  expect(done).toEqual(['start', 'stop', 'close']);
});

test('what no waiting mends ends it, where somebody wants to hear of it', async () => {
  const missing = new RespoolError('store.version', 'its tables are not there');
  const { clock, log, said, configured } = setup([missing]);
  const refused: unknown[] = [];
  const life = startRelay(configured, { clock, log, onRefused: (error) => refused.push(error) });
  await clock.advance('1h');
  expect(refused).toEqual([missing]);
  expect(said).toEqual([]);
  await life.stop(0);
});

test('beside a service it is said as an error, and tried again', async () => {
  const missing = new RespoolError('store.version', 'its tables are not there');
  const { clock, log, said, done, configured } = setup([missing]);
  const life = startRelay(configured, { clock, log });
  await clock.advance('1s');
  expect(said[0]).toMatch(/^error cannot relay .*its tables are not there; trying again in 1s$/);
  expect(done).toEqual(['start']);
  await life.stop(0);
});

test('a stop while it waits starts nothing any more, and a second one does nothing', async () => {
  const { clock, log, done, configured } = setup([away]);
  const life = startRelay(configured, { clock, log });
  await clock.advance(0);
  await life.stop(0);
  await life.stop(0);
  await clock.advance('1h');
  expect(done).toEqual(['stop', 'close']);
});

test('a service tells what it is doing, and since when its target is down', async () => {
  const { clock, log, configured } = setup([away]);
  const life = startRelay(configured, { clock, log });
  const { ask } = await serviceSetup({ parts: { relay: () => life.health() } });
  const told = async (path = '/healthz') => {
    const answer = await ask(path);
    return { status: answer.status, ...((await answer.json()) as object) };
  };
  await clock.advance(0);
  expect(await told()).toEqual({
    status: 200,
    ok: true,
    relay: { state: 'waiting', target: 'closed' },
  });
  await clock.advance('1s');
  expect(await told()).toMatchObject({ relay: { state: 'sending', target: 'closed' } });
  Object.assign(configured.relay.load, { target: 'open', downSince: 5_000 });
  // It is told, and no reason to restart the process or to send traffic elsewhere.
  expect(await told()).toEqual({
    status: 200,
    ok: true,
    relay: { state: 'sending', target: 'open', downSince: 5_000 },
  });
  expect(await told('/readyz')).toMatchObject({ status: 200, ok: true });
  await life.stop(0);
  expect(await told()).toMatchObject({ relay: { state: 'stopped' } });
});

test('a service without a relay says nothing of one', async () => {
  const { ask } = await serviceSetup();
  expect(await (await ask('/healthz')).json()).toEqual({ ok: true });
});

test('what is paused is said at its start and when it changes', async () => {
  const { clock, log, said, configured } = setup([]);
  Object.assign(configured.relay.load, { paused: ['#'] });
  const life = startRelay(configured, { clock, log });
  await clock.advance(0);
  expect(said.slice(1)).toEqual(['warn paused: everything waits until respool outbox resume ALL']);
  Object.assign(configured.relay.load, { paused: ['mail.*'] });
  await clock.advance('1m');
  expect(said.slice(2)).toEqual([
    'warn paused: mail.* waits until respool outbox resume mail.*',
    'info resumed: everything',
  ]);
  await life.stop(0);
  Object.assign(configured.relay.load, { paused: [] });
  await clock.advance('1m');
  expect(said).toHaveLength(4);
});
