/** Routes: who delivers what, checked before anything runs. */
import path from 'node:path';
import { fixed, noRetry } from 'respool';
import { describe, expect, test } from 'vitest';
import { describeHandler } from '../../src/config/load/routes.ts';
import { folderWith, load, refusal } from './setup.ts';
import { loadConfig } from '../../src/config/load/load-config.ts';

const http = { http: { url: 'https://example.com/' } };

describe.each(['routes', 'bounces'] as const)('%s', (key) => {
  const first = async (route: object, more: object = {}) =>
    (await load({ config: { ...more, [key]: [{ topic: 'a', deliver: http, ...route }] } })).config[
      key
    ][0];

  test('have ten slots and fifteen minutes unless they say otherwise', async () => {
    expect(await first({})).toMatchObject({ concurrency: 10, timeout: '15m' });
    expect(await first({ concurrency: 3, timeout: '1s' })).toMatchObject({
      concurrency: 3,
      timeout: '1s',
    });
  });

  test('take a policy by name or as data', async () => {
    const policies = { slow: { fixed: '9s' }, noRetry: { fixed: '1s' } };
    expect((await first({ policy: 'slow' }, { policies }))?.policy).toBe('slow');
    expect((await first({ policy: 'default' }))?.policy).toBe('default');
    expect((await first({ policy: { fixed: '9s' } }))?.policy).toEqual(fixed('9s'));
    expect((await first({ policy: 'noRetry' }))?.policy).toEqual(noRetry());
    // A name of one's own goes before the name of a constructor.
    expect((await first({ policy: 'noRetry' }, { policies }))?.policy).toBe('noRetry');
  });

  const bad: [object, string[]][] = [
    [{ topic: 'a..b' }, ['"a..b"', 'topic', 'dot-separated words']],
    [{ topic: undefined }, ['.topic']],
    [{ deliver: undefined }, ['.deliver', '{ http: { url: … } }']],
    [{ deliver: 'https://example.com' }, ['.deliver']],
    [{ deliver: {} }, ['.deliver']],
    [{ deliver: { ...http, exec: ['x'] } }, ['.deliver', 'http', 'exec']],
    [{ deliver: { htpp: {} } }, ['.deliver.htpp', 'did you mean "http"?']],
    [{ deliver: { http: 'x' } }, ['.deliver.http']],
    [{ deliver: { http: { url: 'ftp://x/' } } }, ['.deliver.http.url']],
    [{ deliver: { http: { url: 'https://x/', timeout: 'x' } } }, ['.deliver.http.timeout']],
    [{ deliver: { http: { url: 'https://x/', methd: 'x' } } }, ['.deliver.http"', 'methd']],
    [{ deliver: { exec: 'ls -l' } }, ['.deliver.exec', 'a list: command']],
    [{ deliver: { exec: { timeout: '1s' } } }, ['.deliver.exec.command']],
    [{ deliver: { exec: [] } }, ['.deliver.exec']],
    [{ deliver: { exec: { command: ['x'], timeot: 1 } } }, ['.deliver.exec"', 'timeot']],
    [{ policy: 'slo' }, ['"slo"', '.policy', 'did you mean "slow"?', 'known are default, slow']],
    [{ policy: { fixed: 'x' } }, ['.policy.fixed.delay']],
    [{ concurrency: 0 }, ['0', '.concurrency', '1 to 10000']],
    [{ timeout: '2d' }, ['"2d"', '.timeout', '1ms to 1d']],
  ];
  test.each(bad)('%j is refused with its whole key', async (route, words) => {
    const said = await refusal({
      config: {
        policies: { slow: 'postfix' },
        [key]: [
          { topic: 'first', deliver: http },
          { topic: 'a', deliver: http, ...route },
        ],
      },
    });
    for (const word of [...words, `${key}[1]`, 'respool.config.json']) expect(said).toContain(word);
  });

  test('are a list', async () => {
    expect(await refusal({ config: { [key]: {} } })).toContain(`"${key}"`);
    expect(await refusal({ config: { [key]: ['x'] } })).toContain(`"${key}[0]"`);
  });

  test('with the same topic twice are refused: the second would get nothing', async () => {
    const route = { topic: 'a.*', deliver: http };
    const said = await refusal({ config: { [key]: [route, { ...route, topic: 'b' }, route] } });
    expect(said).toContain(`"${key}[2].topic": ${key}[0] has it already`);
  });

  test('behind one that takes all are a warning', async () => {
    const { warnings } = await load({
      config: {
        [key]: ['a', '#', 'b.*'].map((topic) => ({ topic, deliver: http })),
      },
    });
    expect(warnings).toEqual([`${key}[2] "b.*" gets nothing: ${key}[1] "#" before it takes all`]);
  });

  test('behind several that take all together are a warning that names them', async () => {
    const warningsOf = async (...topics: string[]) => {
      const routes = topics.map((topic) => ({ topic, deliver: http }));
      return (await load({ config: { [key]: routes } })).warnings;
    };
    expect(await warningsOf('x', 'a', 'a.*.#', 'a.#')).toEqual([
      `${key}[3] "a.#" gets nothing: ${key}[1] "a" and ${key}[2] "a.*.#" before it take all together`,
    ]);
    expect(await warningsOf('x', 'a', 'a.*.*.#', 'a.#')).toEqual([]);
  });

  test.each([
    ['a.#', 'a.b'],
    ['a.#', 'a.*'],
    ['a.*', 'a.b'],
  ])('%j before %j are a warning, and none the other way round', async (one, other) => {
    const warningsOf = async (...topics: string[]) => {
      const routes = topics.map((topic) => ({ topic, deliver: http }));
      return (await load({ config: { [key]: routes } })).warnings;
    };
    expect(await warningsOf('x', one, other)).toEqual([
      `${key}[2] "${other}" gets nothing: ${key}[1] "${one}" before it takes all`,
    ]);
    expect(await warningsOf('x', other, one)).toEqual([]);
  });
});

describe('slots', () => {
  const route = (topic: string, concurrency?: number) => ({ topic, deliver: http, concurrency });

  test('in all are the sum of what the routes and bounces may use', async () => {
    const of = async (config: object) => (await load({ config })).config.concurrency;
    expect(await of({ routes: [route('a', 20), route('b')], bounces: [route('a', 5)] })).toBe(35);
    expect(await of({ routes: [route('a', 1)] })).toBe(10);
    expect(await of({ routes: [route('a', 9_000), route('b', 9_000)] })).toBe(10_000);
    expect(await of({ routes: [route('a', 20)], concurrency: 50 })).toBe(50);
  });

  test('fewer in all than the routes may use is a warning', async () => {
    const { warnings } = await load({
      config: { concurrency: 12, routes: [route('a'), route('b')] },
    });
    expect(warnings).toEqual([
      'concurrency is 12, the routes may use 20: one that hangs can take the slots of the others',
    ]);
  });

  test('are five for each destination where a route has several', async () => {
    const many = { http: { urls: { a: 'https://a.example/', b: 'https://b.example/' } } };
    const of = async (config: object) => (await load({ config })).config.destinationConcurrency;
    expect(await of({ routes: [route('a'), { topic: 'b', deliver: many }] })).toEqual({ '*': 5 });
    expect(await of({ routes: [route('a')] })).toBeUndefined();
    expect(await of({ routes: [{ topic: 'b', deliver: many }], destinationConcurrency: 9 })).toBe(
      9,
    );
  });
});

test('a command starts in the folder of the file, or in one relative to it', async () => {
  const folder = await folderWith({
    'respool.config.json': JSON.stringify({
      routes: [
        { topic: 'a', deliver: { exec: ['./a.sh', 'x'] } },
        { topic: 'b', deliver: { exec: { command: ['./b.sh'], cwd: 'inner' } } },
      ],
    }),
    'inner/x': '',
  });
  const { config } = await loadConfig({ cwd: path.join(folder, 'inner'), env: {} });
  const told = config.routes.map(({ deliver }) => describeHandler(deliver));
  expect(told).toMatchObject([
    { kind: 'exec', command: ['./a.sh', 'x'], cwd: folder },
    { kind: 'exec', command: ['./b.sh'], cwd: path.join(folder, 'inner') },
  ]);
});

test("a handler of one's own is told by its name", async () => {
  const folder = await folderWith({
    'respool.config.mjs': `
      function sendMail() {}
      export default { routes: [
        { topic: 'a', deliver: sendMail },
        { topic: 'b', deliver: Object.assign(() => {}, { describe: () => ({ kind: 'own' }) }) },
        { topic: 'c', deliver: Object.assign(() => {}, { describe: () => { throw new Error(); } }) },
        { topic: 'd', deliver: Object.assign(() => {}, { describe: () => undefined }) },
      ] };`,
  });
  const { config } = await loadConfig({ cwd: folder, env: {} });
  expect(config.routes.map(({ deliver }) => describeHandler(deliver))).toEqual([
    { handler: 'sendMail' },
    { kind: 'own' },
    { handler: '(function)' },
    { handler: '(function)' },
  ]);
});

test('a command of a configuration that is a program starts in the folder of the file', async () => {
  const exec = path.resolve(import.meta.dirname, '../../src/deliver/index.ts');
  const cwd = await folderWith({
    'respool.config.mjs': `import { exec } from ${JSON.stringify(exec)};
      export default { routes: [
        { topic: 'a', deliver: exec(['./a.sh']) },
        { topic: 'b', deliver: exec(['./a.sh'], { cwd: 'below' }) },
      ] };`,
    'below/.keep': '',
  });
  const { config } = await loadConfig({ cwd: path.join(cwd, 'below'), env: {} });
  const places = config.routes.map(({ deliver }) => describeHandler(deliver)['cwd']);
  expect(places).toEqual([cwd, path.join(cwd, 'below')]);
});
