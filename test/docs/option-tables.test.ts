/** Everything that is written from the tables of options is as `npm run options` writes it. */
import { readFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { Ajv } from 'ajv';
import { redact } from 'respool/observe';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { TABLES, writtenFiles } from '../../scripts/options/written.ts';
import { configText } from '../../src/cli/commands/start/init-templates.ts';
import { KEYS } from '../../src/config/schema/keys.ts';
import { durationMs } from '../../src/core/duration.ts';
import { CONFIRM_PUBLISHER_LIMITS } from '../../src/rabbit/publish/confirm-publisher.ts';
import { publisherSettingsOf } from '../../src/rabbit/publish/options.ts';
import { bytesOf, type Option, type OptionTable } from '../../src/core/option-table.ts';
import { load } from '../config/setup.ts';
import { ROOT, readPages } from './pages.ts';

const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');
const withoutLayout = (text: string): string => text.replaceAll(/[\s|;,()]+/g, '');

describe('what follows from the tables of options', () => {
  const files = [...writtenFiles(read)];

  test.each(files)('%s is as `npm run options` writes it', (file, text) => {
    // The formatter breaks long types into lines, with bars, commas and semicolons.
    const isSource = file.endsWith('.ts');
    expect(isSource ? withoutLayout(read(file)) : read(file)).toBe(
      isSource ? withoutLayout(text) : text,
    );
  });
});

describe('whether an option is a secret', () => {
  const rows = Object.entries(TABLES).flatMap(([name, table]) => rowsIn(name, table));
  const isHidden = (name: string): boolean => redact({ [name]: 'canary' })[name] !== 'canary';

  test('is stated where its name sounds like one', () => {
    const open = rows.filter(([, name, { secret }]) => isHidden(name) && secret === undefined);
    expect(open.map(([key]) => key)).toEqual([]);
  });

  test('is stated for every address', () => {
    const open = rows.filter(([, name, { secret }]) => /url$/i.test(name) && secret === undefined);
    expect(open.map(([key]) => key)).toEqual([]);
  });

  test('is known to the log, too: the value of a secret is hidden by its name', () => {
    const shown = rows.filter(([, name, { secret }]) => secret === true && !isHidden(name));
    expect(shown.map(([key]) => key)).toEqual([]);
  });
});

test('a publisher by its table and one by its own limits are the same', () => {
  expect(publisherSettingsOf({ url: 'amqp://localhost' }).limits).toEqual(CONFIRM_PUBLISHER_LIMITS);
});

const DELIVER = { exec: ['true'] };
const POSTGRES_URL = 'postgres://u@localhost/db';

/** What a policy cannot be without. */
const NEEDED: Readonly<Record<string, object>> = {
  fixed: { delay: '1s' },
  linear: { first: '1s' },
  exponential: { first: '1s' },
  ladder: { delays: ['1s'] },
  postfix: {},
  noRetry: {},
  custom: { name: 'mine', rungs: ['1s'] },
};

const PLACES: readonly (readonly [string, OptionPlace])[] = [
  [
    'the configuration',
    {
      table: table('Config'),
      // Only in a program, or below.
      besides: ['outbox', 'consumers', 'backoffs', 'middleware'],
      config: (options) => options,
    },
  ],
  [
    'the outbox',
    {
      table: table('OutboxConfig'),
      besides: [],
      config: (options) => ({ outbox: { store: POSTGRES_URL, ...options } }),
    },
  ],
  [
    'a route',
    {
      table: table('RouteConfig'),
      besides: ['topic', 'deliver'],
      config: (options) => ({ routes: [{ topic: 'a', deliver: DELIVER, ...options }] }),
    },
  ],
  [
    'a consumer',
    { table: table('ConsumerConfig'), besides: ['queue', 'deliver'], config: consumer },
  ],
  [
    'a rule of dead letters',
    {
      table: table('ReplayRuleConfig'),
      besides: ['name', 'when'],
      config: (options) => ({
        deadLetters: { rules: [{ name: 'a', when: { topic: '#' }, ...options }] },
      }),
    },
  ],
  [
    'a delivery over HTTP',
    {
      table: table('HttpOptions'),
      besides: [],
      config: (options) => ({
        routes: [{ topic: 'a', deliver: { http: { url: 'https://h/', ...options } } }],
      }),
    },
  ],
  [
    'a delivery by a command',
    {
      table: table('ExecOptions'),
      besides: [],
      config: (options) => ({
        routes: [{ topic: 'a', deliver: { exec: { command: ['true'], ...options } } }],
      }),
    },
  ],
  [
    'a store on PostgreSQL',
    {
      table: table('PostgresOptions'),
      besides: ['pool'],
      config: (options) => ({ store: { postgres: { url: POSTGRES_URL, ...options } } }),
    },
  ],
  [
    'bodies on S3',
    {
      table: table('S3Options'),
      besides: ['client'],
      config: (options) => ({ bodies: { s3: { bucket: 'b', ...options } } }),
    },
  ],
  ...Object.keys(NEEDED).map((name): readonly [string, OptionPlace] => [
    `a policy ${name}`,
    {
      table: table(name),
      besides: [],
      config: (options) => ({
        policies: { p: { [name]: { ...NEEDED[name], ...options } } },
      }),
    },
  ]),
];

describe('the JSON Schema of a configuration', () => {
  const validate = new Ajv({ allErrors: true, strict: true, allowUnionTypes: true }).compile(
    JSON.parse(read('respool.schema.json')) as object,
  );
  const problems = (config: unknown): string[] => {
    validate(config);
    return (validate.errors ?? []).map(
      ({ instancePath, message = '' }) => `${instancePath} ${message}`,
    );
  };

  test('is shipped with the package', () => {
    const { files } = JSON.parse(read('package.json')) as { files: string[] };
    expect(files).toContain('respool.schema.json');
  });

  /** Whether an example is a configuration: all its keys are keys of one. */
  const isConfig = (text: string): boolean => {
    const names = Object.keys(Object(parse(text, { merge: true })));
    return names.length > 0 && names.every((name) => Object.hasOwn(table('Config'), name));
  };

  const examples = readPages().flatMap(({ file, blocks }) =>
    blocks
      .filter(
        ({ language, marks, text }) =>
          marks.includes('load') || (/^(?:yaml|json)$/.test(language) && isConfig(text)),
      )
      .map(({ line, text }) => [`${file}:${line}`, text] as const),
  );

  test('there are examples to check', () => {
    expect(examples.length).toBeGreaterThan(20);
  });

  test.each(examples)('takes the example in %s', (_, text) => {
    expect(problems(parse(text, { merge: true }))).toEqual([]);
  });

  const written = readPages().flatMap(({ file, blocks }) =>
    blocks.flatMap(({ line, text }) =>
      [...text.matchAll(/respool\.config\.(?:yaml|json) <<'END'\n([\s\S]*?)\nEND\n/g)].map(
        ([, config = '']) => ({ place: `${file}:${line}`, config }),
      ),
    ),
  );

  /** A page shows two configurations that are refused. */
  const isWrong = ({ config }: { readonly config: string }): boolean =>
    /\bprot:|concurrency: 0/.test(config);

  test.each(written.filter((one) => !isWrong(one)))('takes what $place writes', ({ config }) => {
    expect(problems(parse(config))).toEqual([]);
  });

  test.each(written.filter(isWrong))('refuses what $place writes', ({ config }) => {
    expect(problems(parse(config))).not.toEqual([]);
  });

  test.each(['json', 'yaml'] as const)('takes what `respool init` writes as %s', (format) => {
    const text = configText(format, 8080);
    expect(text).toContain('./node_modules/respool/respool.schema.json');
    expect(problems(parse(text))).toEqual([]);
  });

  test('takes the configurations of the examples', async () => {
    const folder = path.join(ROOT, 'examples');
    const names = await readdir(folder, { recursive: true });
    for (const name of names.filter((one) => /respool\.config\.(?:ya?ml|json)$/.test(one))) {
      const text = await readFile(path.join(folder, name), 'utf8');
      expect(problems(parse(text)), name).toEqual([]);
    }
  });

  test('knows every key that can be written as data, with its default', async () => {
    const { config } = await load({ config: {} });
    for (const { key, kind, byDefault } of KEYS) {
      const value = byDefault ?? valueAt(config, key);
      if (kind === 'code' || key.startsWith('outbox') || value === undefined) continue;
      expect(problems(nested(key, value)), key).toEqual([]);
      expect(problems(nested(`${key}x`, value)), `${key}x`).not.toEqual([]);
    }
  });

  const policies: readonly object[] = [
    { exponential: { first: '5s', factor: 1.5, jitter: 0.2 } },
    { exponential: { first: '5s' }, attempts: 3 },
    { exponential: {}, first: '5s' },
    { exponential: null, first: '5s' },
    { fixed: {}, delay: '5s' },
    { ladder: ['2s'], jitter: 1 },
    { custom: 'mine', rungs: ['1s'] },
    { custom: { name: 'mine' }, rungs: ['1s'] },
    { custom: { rungs: ['1s'] }, name: 'mine' },
    { postfix: null, attempts: 3 },
    { noRetry: true },
  ];

  test.each(policies)('takes a policy that loads, wherever its options stand: %j', async (one) => {
    await load({ config: { policies: { one } } });
    expect(problems({ policies: { one } })).toEqual([]);
  });

  const badPolicies: readonly object[] = [
    { exponential: {} },
    { exponential: { first: '5s', attempts: 0 } },
    { exponential: { first: '5s', attempts: '${ATTEMPTS}' } },
    { exponential: { first: '5s', factor: 101 } },
    { fixed: '5s', jitter: 2 },
    { ladder: ['5s'], attempts: 3 },
    { ladder: {} },
    { custom: 'mine' },
    { noRetry: true, attempts: 2 },
  ];

  test.each(badPolicies)('refuses a policy that does not load: %j', async (one) => {
    await expect(load({ config: { policies: { one } } })).rejects.toThrow('policies.one');
    expect(problems({ policies: { one } })).not.toEqual([]);
  });

  test.each(PLACES)(
    'refuses in %s what loading refuses, and takes what loads',
    async (_, place) => {
      const table = Object.entries(place.table).filter(([name]) => !place.besides.includes(name));
      for (const [name, option] of table.flatMap(([key, one]) => leavesOf(key, one))) {
        for (const value of badValues(option)) {
          const config = place.config(nested(name, value));
          const said = `${name}: ${JSON.stringify(value)}`;
          await expect(load({ config }), said).rejects.toThrow('config');
          expect(problems(config), said).not.toEqual([]);
        }
        for (const value of goodValues(option)) {
          const config = place.config(nested(name, value));
          const isLoaded = await load({ config }).then(
            () => true,
            () => false,
          );
          if (isLoaded) expect(problems(config), JSON.stringify(config)).toEqual([]);
        }
      }
    },
  );

  const wrong: readonly (readonly [object, string])[] = [
    [{ serve: { prot: 1 } }, '/serve must NOT have additional properties'],
    [{ serve: { port: 65_536 } }, '/serve/port must be <= 65535'],
    [{ lease: 'long' }, '/lease must match pattern'],
    [{ lease: 1 }, '/lease must be >= 1000'],
    [{ settle: 'soon' }, '/settle must be equal to one of the allowed values'],
    [{ limits: { bodyBytes: -1 } }, '/limits/bodyBytes must be >= 0'],
    [{ retention: { delivered: 'keep' } }, '/retention/delivered must be equal to one of'],
    [{ store: 5 }, '/store must be string'],
    [{ store: { mysql: {} } }, '/store must NOT have additional properties'],
    [{ bodies: { s3: { partBytes: 1 } } }, '/bodies/s3/partBytes must be >= 5242880'],
    [{ policies: { a: { fixed: 'x y' } } }, '/policies/a/fixed must match pattern'],
    [{ policies: { a: { postfix: { atempts: 1 } } } }, '/policies/a/postfix must NOT have'],
    [{ routes: [{ deliver: { http: { url: 'x' } } }] }, "must have required property 'topic'"],
    [{ routes: [{ topic: 'a' }] }, "must have required property 'deliver'"],
    [{ routes: [{ topic: 'a', deliver: { http: { ulr: 'x' } } }] }, '/http must NOT have'],
    [{ routes: [{ topic: 'a', deliver: { exec: 'x' } }] }, '/routes/0/deliver/exec must be array'],
    [{ consumers: [{ queue: 'q', deliver: { exec: ['x'] }, prefetch: 0 }] }, '/prefetch must be'],
    [consumer({ compat: { goqueue: { maxRetries: 65 } } }), '/maxRetries must be <= 64'],
    [consumer({ compat: { spring: { waitExchang: 'x' } } }), '/compat/spring must NOT have'],
    [consumer({ topology: { perDelay: { by: 'hour' } } }), '/perDelay/by must be equal to one of'],
    [{ outbox: { store: 'sqlite:x', relay: { to: { spol: true } } } }, '/outbox/relay/to must NOT'],
    [{ deadLetters: { rules: [{ name: 'a b', when: { topic: '#' } }] } }, '/name must match'],
    [{ alerts: { rules: [{ name: 'a' }] } }, "must have required property 'when'"],
    [{ serve: { tokens: [{ name: 'a', role: 'root', sha256: 'x' }] } }, '/role must be equal'],
    [{ log: { level: 'loud' } }, '/log/level must be equal to one of the allowed values'],
  ];

  test.each(wrong)('refuses %j', (config, problem) => {
    expect(problems(config).join('\n')).toContain(problem);
  });
});

test('a configuration may name its schema, as editors have it', async () => {
  const $schema = './node_modules/respool/respool.schema.json';
  const { warnings } = await load({ config: { $schema } });
  expect(warnings).toEqual([]);
});

function consumer(keys: object): object {
  const one = { url: 'amqp://localhost', queue: 'q', deliver: DELIVER, ...keys };
  return { consumers: [one] };
}

function table(name: string): OptionTable {
  const { [name]: found } = TABLES;
  if (found === undefined) throw new Error(`there is no table "${name}"`);
  return found;
}

/** Where options stand in a configuration. */
interface OptionPlace {
  readonly table: OptionTable;
  /** What has a check of its own kind, with a test of its own. */
  readonly besides: readonly string[];
  readonly config: (options: object) => object;
}

function leavesOf(key: string, option: Option): readonly (readonly [string, Option])[] {
  if (option.kind !== 'group') return [[key, option]];
  return Object.entries(option.options).flatMap(([name, one]) => leavesOf(`${key}.${name}`, one));
}

/** Values that a table refuses; none for what its owner checks. */
function badValues(option: Option): readonly unknown[] {
  switch (option.kind) {
    case 'number':
      return [option.min - 1, option.max + 1, option.min + 0.5, 'many', true];
    case 'decimal':
      return [option.min - 1, option.max + 1, 'many', true];
    case 'bytes':
      return [bytesOf(option.min) - 1, bytesOf(option.max) + 1, 'many'];
    case 'duration':
      return ['soon', -1, true, ...outside(option)];
    case 'boolean':
      return ['yes', 1];
    case 'choice':
      return ['no such word', 5];
    default:
      return [];
  }
}

function outside({ min = '0s', max = '36525d' }: { min?: string; max?: string }): number[] {
  return [durationMs(min, 'min') - 1, durationMs(max, 'max') + 1];
}

function goodValues(option: Option): readonly unknown[] {
  switch (option.kind) {
    case 'number':
    case 'decimal':
      return [option.min, option.max];
    case 'bytes':
      return [bytesOf(option.min), bytesOf(option.max)];
    case 'duration':
      return [option.min ?? 0, option.max ?? '1d', 1_500].filter((one) => one !== undefined);
    case 'boolean':
      return [true, false];
    case 'choice':
      return option.choices;
    case 'code':
      return [];
    default:
      return ['text', 5, true, ['text'], { a: 'text' }];
  }
}

/** Every option of a table, those of groups too: its key, its name, and what is stated. */
function rowsIn(
  prefix: string,
  table: OptionTable,
): readonly (readonly [key: string, name: string, option: Option])[] {
  return Object.entries(table).flatMap(([name, option]) => {
    const key = `${prefix}.${name}`;
    return option.kind === 'group' ? rowsIn(key, option.options) : [[key, name, option] as const];
  });
}

function nested(key: string, value: unknown): object {
  const [name = '', ...rest] = key.split('.');
  return { [name]: rest.length === 0 ? value : nested(rest.join('.'), value) };
}

function valueAt(config: object, key: string): unknown {
  return key.split('.').reduce<unknown>((node, name) => Reflect.get(Object(node), name), config);
}
