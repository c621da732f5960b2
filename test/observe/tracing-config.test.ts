/** `tracing.enabled` of a configuration, and what a missing package says. */
import { spawn } from 'node:child_process';
import path from 'node:path';
import Sqlite from 'better-sqlite3';
import { createOutbox } from 'respool/outbox';
import { expect, onTestFinished, test } from 'vitest';
import { createConfiguredSpool } from '../../src/config/open/open-spool.ts';
import { createConfiguredConsumers } from '../../src/config/open/open-consumers.ts';
import { createConfiguredRelay } from '../../src/config/open/open-outbox.ts';
import { folderWith, load } from '../config/setup.ts';
import { told } from '../outbox/relay-ground.ts';
import { Hands, nextEvent, ownName } from '../rabbit/ground.ts';
import { service, withService } from '../services/index.ts';
import { record } from './spans.ts';

const ROOT = path.join(import.meta.dirname, '../..');

test('tracing.enabled decides whether the spool of a configuration writes spans', async () => {
  const { named } = await record();
  for (const [enabled, count] of [
    [undefined, 0],
    [false, 0],
    [true, 1],
  ] as const) {
    const config = { store: 'memory:', ...(enabled === undefined ? {} : { tracing: { enabled } }) };
    const { spool } = await createConfiguredSpool(await load({ config }));
    await spool.enqueue({ topic: 'a' });
    await spool.stop();
    expect(named('send a'), String(enabled)).toHaveLength(count);
  }
  const env = { RESPOOL_TRACING_ENABLED: 'true' };
  const loaded = await load({ config: { store: 'memory:' }, env });
  const { spool } = await createConfiguredSpool(loaded);
  await spool.enqueue({ topic: 'a' });
  await spool.stop();
  expect(named('send a')).toHaveLength(2);
});

test('tracing.enabled holds for the relay of a configuration', async () => {
  const { named } = await record();
  const outbox = { store: 'sqlite:./app.db', relay: { to: { spool: true } } };
  const config = { store: 'memory:', outbox, tracing: { enabled: true } };
  const loaded = await load({ config });
  const database = new Sqlite(path.join(loaded.folder, 'app.db'));
  const own = createOutbox({ database });
  own.migrate();
  const { spool } = await createConfiguredSpool(loaded);
  const made = await createConfiguredRelay(loaded, { spool: () => Promise.resolve(spool) });
  onTestFinished(async () => {
    await made.relay.stop();
    await made.close();
    await spool.stop();
    await own.close();
    database.close();
  });
  const delivered = told(made.relay, 'delivered');
  await made.relay.start();
  own.transaction((tx) => own.emit(tx, 'order', { at: 1 }));
  await delivered;
  expect(named('process order')).toHaveLength(1);
  expect(named('send order')).toHaveLength(1);
});

withService('rabbitmq', () => {
  test('tracing.enabled holds for the consumers of a configuration', async () => {
    const { named } = await record();
    const hands = await Hands.open();
    const queue = ownName('config');
    const deliver = { exec: [process.execPath, '-e', ''] };
    const url = await service('rabbitmq');
    const config = {
      store: 'memory:',
      rabbit: { url },
      consumers: [{ queue, deliver, topology: { shared: { prefix: queue } } }],
      tracing: { enabled: true },
    };
    const [made] = await createConfiguredConsumers(await load({ config }));
    if (made === undefined) throw new Error('there is no consumer');
    const { consumer } = made;
    onTestFinished(async () => {
      await consumer.stop();
      await hands.remove(consumer.plan);
    });
    const delivered = nextEvent(consumer, 'delivered');
    await consumer.start();
    await hands.publish('', queue, { a: 1 });
    await delivered;
    expect(named(`process ${queue}`)).toHaveLength(1);
  });
});

test('a service with traces says which package is missing', async () => {
  const folder = await folderWith({
    'respool.config.json': JSON.stringify({ store: 'memory:', tracing: { enabled: true } }),
    // Stands for a place where the package is not installed.
    'without.mjs': `
      import { registerHooks } from 'node:module';
      registerHooks({
        resolve(specifier, context, next) {
          if (specifier !== '@opentelemetry/api') return next(specifier, context);
          const error = new Error("Cannot find package '@opentelemetry/api'");
          throw Object.assign(error, { code: 'ERR_MODULE_NOT_FOUND' });
        },
      });`,
  });
  const main = path.join(ROOT, 'src/cli/main.ts');
  const flags = ['--conditions=respool-source', '--import', './without.mjs'];
  const child = spawn(process.execPath, [...flags, main, 'serve'], { cwd: folder });
  const said: string[] = [];
  child.stderr.on('data', (part: Buffer) => said.push(part.toString()));
  const code = await new Promise((resolve) => child.once('exit', resolve));
  expect(code).not.toBe(0);
  expect(said.join('')).toContain(
    'cannot use traces: the package "@opentelemetry/api" is not installed; ' +
      'run: npm install @opentelemetry/api',
  );
});
