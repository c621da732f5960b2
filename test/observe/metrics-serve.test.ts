/** What `respool serve` tells of the consumers and the relay of its configuration. */

import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { outboxShell } from '../cli/outbox-place.ts';
import { rabbitShell } from '../cli/rabbit-broker.ts';
import type { Shell } from '../cli/setup.ts';
import { until } from '../rabbit/until.ts';
import { withService } from '../services/index.ts';
import { parse, type Scrape } from './metrics-ground.ts';

/** Serves a configuration, a program in its text, until the test is over. */
async function serving(shell: Shell, config: string): Promise<() => Promise<Scrape>> {
  await writeFile(path.join(shell.folder, 'respool.config.mjs'), `export default ${config};`);
  const running = shell.start(['serve', '--port', '0'], { tty: ['stdout'] });
  onTestFinished(async () => {
    running.signal('SIGTERM');
    await running.ended;
  });
  const [, url = ''] = await running.printed(/(http:\/\/127\.0\.0\.1:\d+)/);
  return async () => parse(await (await fetch(`${url}/metrics`)).text());
}

const METRICS = `metrics: { every: '1s', aliases: ['goqueue', 'outbox'] }`;

withService('rabbitmq', () => {
  test('consumers of the configuration are watched, with the management API that it names', async () => {
    const shell = await rabbitShell();
    const { prefix, url, managementUrl, put } = shell;
    const queue = `${prefix}.orders`;
    const scrape = await serving(
      shell,
      `{
        store: 'memory:', ${METRICS},
        rabbit: ${JSON.stringify({ url, managementUrl })},
        consumers: [{
          queue: '${queue}', type: 'classic', topology: { perDelay: {} }, waits: [],
          bindings: [{ exchange: '${prefix}.shop', key: '#' }],
          policy: { ladder: ['1h'] },
          deliver: () => { throw Object.assign(new Error('no room'), { code: 'full' }); },
        }],
      }`,
    );
    await until(async () => {
      const connected = (await scrape()).value('respool_rabbit_consumer_connected', { queue });
      return connected === 1 ? true : undefined;
    });
    await put(queue, ['{}', '{}']);
    const told = await until(async () => {
      const now = await scrape();
      const roles = now.samples.filter(
        ({ name, labels }) => name === 'respool_rabbit_queue_messages' && labels['role'] === 'wait',
      );
      const tellsMore = now.samples.some(
        ({ name }) => name === 'respool_rabbit_queue_unacked_messages',
      );
      return roles.some(({ value }) => value === 2) && tellsMore ? now : undefined;
    });
    const labels = { source: `queue:${queue}`, topic: queue };
    expect(told.value('respool_deferred_total', labels)).toBe(2);
    expect(told.value('goqueue_messages_retried_total', { queue, retry_level: '1' })).toBe(2);
    const worker = { queue, exchange_name: `${prefix}.shop` };
    expect(told.value('outbox_messages_received_total', worker)).toBe(2);
  });
});

withService('postgres', () => {
  test('the relay of the configuration is watched, with what waits in its outbox', async () => {
    const shell = await outboxShell();
    const { url, schema, emit } = shell;
    await emit([{ routingKey: 'a' }, { routingKey: 'b', eta: '1h' }]);
    const scrape = await serving(
      shell,
      `{
        store: 'memory:', ${METRICS},
        outbox: {
          store: ${JSON.stringify(url)}, schema: '${schema}',
          relay: { to: { spool: true } },
        },
      }`,
    );
    const source = { source: 'relay' };
    const told = await until(async () => {
      const now = await scrape();
      const sent = now.value('respool_delivered_total', { ...source, topic: 'a' });
      return sent === 1 && now.value('respool_outbox_backlog', source) === 1 ? now : undefined;
    });
    expect(told.value('respool_outbox_lag_seconds', source)).toBe(0);
    expect(told.value('respool_outbox_target_up', source)).toBe(1);
    expect(told.value('outbox_table_backlog', { exchange_name: '' })).toBe(1);
    expect(told.value('outbox_messages_published_total', { exchange_name: '' })).toBe(1);
    expect(told.value('respool_accepted_total', { source: 'spool', topic: 'a' })).toBe(1);
  });
});
