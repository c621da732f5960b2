/** describeConfig: every value that holds, in order, and who said it. */
import { expect, test } from 'vitest';
import { describeConfig } from '../../src/config/describe.ts';
import { KEYS } from '../../src/config/schema/keys.ts';
import { loadConfig } from '../../src/config/load/load-config.ts';
import { folderWith, load } from './setup.ts';

test('each value comes with who said it', async () => {
  const loaded = await load({
    config: {
      lease: '10s',
      policies: { default: { fixed: '5s' } },
      destinationConcurrency: { '*': 3 },
      retention: { delivered: { archive: '2d' } },
      routes: [{ topic: 'a', deliver: { exec: ['true'] }, concurrency: 4, policy: 'noRetry' }],
      serve: { hosts: ['spool.example'] },
    },
    env: { RESPOOL_POLL: '5s' },
    dotEnv: 'RESPOOL_SETTLE=durable',
    flags: { 'serve.port': '0' },
  });
  const said = new Map(describeConfig(loaded).map(({ key, value, from }) => [key, [value, from]]));
  const file = `file ${loaded.file}`;
  expect(said.get('lease')).toEqual(['10s', file]);
  expect(said.get('policies.default')).toEqual(['fixed 5s, 10 attempts', file]);
  expect(said.get('destinationConcurrency')).toEqual([{ '*': 3 }, file]);
  expect(said.get('retention.delivered')).toEqual([{ archive: '2d' }, file]);
  expect(said.get('routes[0].topic')).toEqual(['a', file]);
  expect(said.get('routes[0].policy')).toEqual(['ladder without retries, 1 attempt', file]);
  expect(said.get('routes[0].concurrency')).toEqual([4, file]);
  expect(said.get('routes[0].timeout')).toEqual(['15m', 'default']);
  expect(said.get('serve.hosts[0]')).toEqual(['spool.example', file]);
  expect(said.get('poll')).toEqual(['5s', 'environment RESPOOL_POLL']);
  expect(said.get('settle')).toEqual(['durable', 'environment RESPOOL_SETTLE in .env']);
  expect(said.get('serve.port')).toEqual([0, 'flag --port']);
  expect(said.get('log.level')).toEqual(['info', 'default']);
  expect(said.get('concurrency')).toEqual([10, 'default']);
});

test('every default is there, in the order of the keys', async () => {
  const keys = describeConfig(await load({ config: {} })).map(({ key }) => key);
  const withDefault = KEYS.filter(({ byDefault, key }) => byDefault ?? key === 'concurrency');
  expect(keys).toEqual(expect.arrayContaining(['store', 'serve.behindProxy', 'concurrency']));
  const order = KEYS.map(({ key }) => key);
  expect(keys).toEqual(keys.toSorted((a, b) => order.indexOf(a) - order.indexOf(b)));
  for (const { key } of withDefault) expect(keys).toContain(key);
});

test('a store that was given is shown by its name', async () => {
  const folder = await folderWith({
    'respool.config.mjs': `
      import { memory, memoryBodies } from 'respool/stores/memory';
      export default { entries: memory(), bodies: memoryBodies() };`,
  });
  const loaded = await loadConfig({ cwd: folder, env: {} });
  const shown = describeConfig(loaded).filter(({ key }) => key === 'entries' || key === 'bodies');
  expect(shown.map(({ value }) => value)).toEqual(['(a memory store)', '(a memory store)']);
});
