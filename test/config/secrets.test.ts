/** No secret is printed: by its name, by its place, in errors and in warnings (R219, S7). */

import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { describeConfig } from '../../src/config/describe.ts';
import { loadConfig } from '../../src/config/load/load-config.ts';
import { createConfiguredSpool } from '../../src/config/open/open-spool.ts';
import { KEYS } from '../../src/config/schema/keys.ts';
import { setConfig } from '../../src/config/edit.ts';
import { KnownSecrets, redactUrls } from '../../src/core/redact.ts';
import { folderWith, load, refusal, textOf } from './setup.ts';

const CANARY = 'c4nary-Zm9vYmFyYmF6cXV4';
const WEBHOOK = `whsec_${Buffer.from(`${CANARY}-${CANARY}`).toString('base64')}`;

/** A configuration with a secret wherever there can be one. */
const FULL = {
  store: 'memory:',
  serve: {
    token: '${WORD_SECRET}',
    tokens: [{ name: 'ci', role: 'post', sha256: 'c4'.repeat(32) }],
  },
  routes: [
    {
      topic: 'a',
      deliver: {
        http: {
          url: `https://example.com/hook?token=${CANARY}&page=1`,
          secret: [WEBHOOK],
          headers: { Authorization: `Bearer ${CANARY}`, 'X-Api-Key': CANARY, 'x-plain': 'seen' },
        },
      },
    },
    {
      topic: 'b',
      deliver: {
        exec: {
          command: ['./send', '--password', CANARY, `--token=${CANARY}`, `amqp://u:${CANARY}@h/`],
          env: { API_TOKEN: CANARY, PLAIN: 'seen' },
        },
      },
    },
    { topic: 'c', deliver: { http: { url: 'https://${WORD_SECRET}.example/' } } },
    { topic: 'd', deliver: { http: { url: 'https://h.example/services/${WORD_SECRET}' } } },
  ],
  bounces: [{ topic: '#', deliver: { http: { url: 'https://h/', secret: WEBHOOK } } }],
};
const env = { WORD_SECRET: CANARY };

function hasNoCanary(text: string): void {
  expect(text).not.toContain(CANARY);
  expect(text).not.toContain(CANARY.toLowerCase());
  expect(text).not.toContain(WEBHOOK);
  expect(text).not.toContain('c4'.repeat(32));
}

test('describeConfig shows no secret, and the rest', async () => {
  const lines = describeConfig(await load({ config: FULL, env }));
  const text = JSON.stringify(lines) + inspect(lines, { depth: 9 });
  hasNoCanary(text);
  expect(text).toContain('seen');
  expect(text).toContain('page=1');
  expect(lines).toContainEqual(
    expect.objectContaining({ key: 'serve.token', value: '(secret)' }) as object,
  );
  expect(lines).toContainEqual(
    expect.objectContaining({ key: 'serve.tokens[0].name', value: 'ci' }) as object,
  );
});

/** A value of each key that states a secret, with one in it. */
const SECRETS: Readonly<Record<string, unknown>> = {
  store: `postgres://u:${CANARY}@h/db`,
  entries: `postgres://u:${CANARY}@h/db`,
  bodies: `postgres://u:${CANARY}@h/db`,
  transforms: [{ encrypt: { keys: { k: 'c4'.repeat(32) } } }],
  seal: { keys: { k: 'c4'.repeat(32) } },
  'rabbit.url': `amqp://u:${CANARY}@h/`,
  'rabbit.managementUrl': `http://u:${CANARY}@h/`,
  'rabbit.tls.passphrase': CANARY,
  'outbox.store': `postgres://u:${CANARY}@h/db`,
  'outbox.listenUrl': `postgres://u:${CANARY}@h/db`,
  'outbox.relay.to': { amqp: `amqp://u:${CANARY}@h/`, exchange: 'shop' },
  'serve.token': '${WORD_SECRET}',
};

const WITH_SECRETS = KEYS.filter(({ secret }) => secret !== undefined && secret !== false);

test.each(WITH_SECRETS)('the secret of $key is not shown', async ({ key }) => {
  const keys = key.split('.').toReversed();
  const nested = (value: unknown): object =>
    keys.reduce<unknown>((inner, name) => ({ [name]: inner }), value) as object;
  const config: Readonly<Record<string, object>> = { ...nested(SECRETS[key]) };
  const { outbox } = config;
  const others = outbox === undefined ? {} : { outbox: { store: 'postgres://h/db', ...outbox } };
  const lines = describeConfig(await load({ config: { ...config, ...others }, env }));
  expect(lines.map((line) => line.key).join(' ')).toContain(key);
  hasNoCanary(JSON.stringify(lines));
});

test('a spool tells its routes without secrets', async () => {
  const { routes, spool, close } = await createConfiguredSpool(await load({ config: FULL, env }));
  hasNoCanary(inspect(routes, { depth: 9 }));
  expect(routes).toHaveLength(5);
  await spool.stop();
  await close();
});

test('warnings show no secret', async () => {
  const { warnings } = await load({
    config: {},
    env: { RESPOOL_TOKEN: 'c4nary', RESPOOL_TOKN: CANARY },
  });
  expect(warnings.join()).toContain('RESPOOL_TOKN');
  expect(warnings.join()).toContain('serve.token has fewer');
  expect(warnings.join()).not.toContain('c4nary');
});

describe('an error shows no secret', () => {
  const route = (deliver: unknown) => ({ routes: [{ topic: 'a', deliver }] });
  const url = 'https://example.com/';
  const cases: [string, Parameters<typeof refusal>[0]][] = [
    ['a token with a space', { config: { serve: { token: `${CANARY} ${CANARY}` } } }],
    ['a token that is a list', { config: { serve: { token: [CANARY] } } }],
    ['a token in a file', { config: { serve: { token: CANARY } } }],
    ['a token in .env', { config: {}, dotEnv: `RESPOOL_SERVE_TOKEN=${CANARY}` }],
    ['half a hash', { config: { serve: { token: `sha256:${CANARY}` } } }],
    ['half a hash in the environment', { env: { RESPOOL_TOKEN: `sha256:${CANARY}` } }],
    ['a token in the environment', { config: {}, env: { RESPOOL_TOKEN: `${CANARY}\t` } }],
    ['a token as a flag', { config: {}, flags: { 'serve.token': CANARY } }],
    [
      'a token in place of its hash',
      { config: { serve: { tokens: [{ name: 'a', role: 'read', sha256: CANARY }] } } },
    ],
    ['a store with a password', { config: { store: `postgres://me:${CANARY}@h/db?x=1` } }],
    ['a strange store with a password', { config: { store: `mysql://me:${CANARY}@h/db` } }],
    ['a store whose colon is missing', { config: { store: `postgres//me:${CANARY}@h/db` } }],
    ['a store without its kind', { config: { store: `me:${CANARY}@h/db` } }],
    ['bodies whose colon is missing', { env: { RESPOOL_BODIES: `s3//me:${CANARY}@h/db` } }],
    ['an outbox without its kind', { config: { outbox: { store: `me:${CANARY}@h/db` } } }],
    ['an outbox without its kind, in a flag', { flags: { 'outbox.store': `me:${CANARY}@h/db` } }],
    ['headers in one text', { config: route({ http: { url, headers: `cookie: ${CANARY}` } }) }],
    ['headers in a list', { config: route({ http: { url, headers: [`cookie: ${CANARY}`] } }) }],
    ['a command in one text', { config: route({ exec: `send --password=${CANARY}` }) }],
    ['an alias in YAML', { yaml: `rabbit: { tls: { passphrase: *${CANARY} } }` }],
    ['a secret that is none', { config: route({ http: { url, secret: { is: CANARY } } }) }],
    [
      'a header that is none',
      { config: route({ http: { url, headers: { cookie: `${CANARY}\n` } } }) },
    ],
    ['a URL with a password', { config: route({ http: { url: `https://u:${CANARY}@h/` } }) }],
    ['a URL of another kind', { config: route({ http: { url: `ftp://u:${CANARY}@h/` } }) }],
    [
      'a URL that is long',
      { config: route({ http: { url: `ftp://${'h'.repeat(60)}/?key=${CANARY}` } }) },
    ],
    ['a route that is a text', { config: { routes: [`https://u:${CANARY}@h/`] } }],
    [
      'a value from a secret variable',
      { config: { lease: '${MY_SECRET}' }, env: { MY_SECRET: CANARY } },
    ],
    ['a broken JSON file', { yaml: `serve: { token: ${CANARY}\nlease: [` }],
  ];
  test.each(cases)('%s', async (_, given) => {
    hasNoCanary(await refusal(given));
  });

  test('a JSON file that is broken beside a secret', async () => {
    const folder = await folderWith({ 'respool.config.json': `{"a":"${CANARY}" "${CANARY}"}` });
    hasNoCanary(await textOf(loadConfig({ cwd: folder, env: {} })));
  });

  test('a program that throws a secret of the environment', async () => {
    const folder = await folderWith({
      'respool.config.mjs': `throw new Error('bad ${CANARY}');`,
    });
    hasNoCanary(await textOf(loadConfig({ cwd: folder, env: { HOOK_SECRET: CANARY } })));
  });

  test('setConfig', async () => {
    const folder = await folderWith({
      'respool.config.json': JSON.stringify({ serve: { token: `${CANARY} ` } }),
    });
    const options = { cwd: folder, env: {} };
    hasNoCanary(await textOf(setConfig('respool.config.json', 'lease', '5s', options)));
    const said = await textOf(setConfig('respool.config.json', 'serve.token', CANARY, options));
    hasNoCanary(said);
    expect(said).toContain('respool token create');
  });
});

test('an error has no cause that could say it again', async () => {
  const folder = await folderWith({ 'respool.config.mjs': `throw new Error('${CANARY}');` });
  const error: unknown = await loadConfig({ cwd: folder, env: { A_TOKEN: CANARY } }).catch(
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(Error);
  hasNoCanary(inspect(error, { depth: 9 }).replaceAll(/^\s+at .*$/gm, ''));
});

test('a text passes through hide without the secrets of the configuration', async () => {
  const { hide } = await load({ config: FULL, env });
  expect(hide(`sent ${CANARY} to amqp://u:p@host/x`)).toBe(
    'sent (secret) to amqp://(secret)@host/x',
  );
});

describe('hiding', () => {
  const urls: [string, string][] = [
    ['amqp://u:p@h/x', 'amqp://(secret)@h/x'],
    ['see https://u@h and http://a:b@c/d', 'see https://(secret)@h and http://(secret)@c/d'],
    ['https://u:p@ss@h/', 'https://(secret)@h/'],
    ['https://h/?api_key=1&page=2&token=3', 'https://h/?api_key=(secret)&page=2&token=(secret)'],
    ['https://h/a@b?x=y@z', 'https://h/a@b?x=y@z'],
    ['mail me@example.com', 'mail me@example.com'],
  ];
  test.each(urls)('%s', (text, hidden) => {
    expect(redactUrls(text)).toBe(hidden);
  });

  test('a secret that was cut short is hidden too', () => {
    const secrets = new KnownSecrets();
    secrets.add(CANARY);
    expect(secrets.hide(`cannot use "${CANARY.slice(0, 12)}… as x`)).toBe(
      'cannot use "(secret)… as x',
    );
  });

  test.each([
    { url: 'mailto:support@shop.example' },
    { url: 'SIP:support@shop.example' },
    { queue: 'shop:support@eu' },
    { exchange: 'shop:support@eu' },
    { topic: 'shop:support@eu' },
  ])('a word that is no password of an address is shown: %j', (value) => {
    const secrets = new KnownSecrets();
    secrets.collect({ consumers: [value] });
    expect(secrets.hide('mail of support')).toBe('mail of support');
  });

  test.each([
    { url: `app:${CANARY}@eu` },
    { to: `mailto//u:${CANARY}@h` },
    { queue: `amqp://u:${CANARY}@h/queue` },
    { urls: { queue: `u:${CANARY}@h` } },
    { env: { topic: `u:${CANARY}@h` } },
    { store: `mailto://u:${CANARY}@h` },
    [`u:${CANARY}@h`],
  ])('the password of an address without a known scheme is hidden: %j', (value) => {
    const secrets = new KnownSecrets();
    secrets.collect({ value });
    expect(secrets.hide(`is ${CANARY}`)).toBe('is (secret)');
  });

  test('the folder that a shell stands in is no password', async () => {
    const folder = await folderWith({ 'respool.config.json': '{ "lease": "no" }' });
    const said = await textOf(loadConfig({ cwd: folder, env: { PWD: folder } }));
    expect(said).toContain(folder);
    const filled = await folderWith({ 'respool.config.json': '{ "lease": "${PWD}" }' });
    const text = await textOf(loadConfig({ cwd: filled, env: { PWD: '/srv/spool' } }));
    expect(text).toContain('/srv/spool');
  });

  test('data that goes round in circles ends', () => {
    const secrets = new KnownSecrets();
    const circle: Record<string, unknown> = { token: CANARY };
    circle['again'] = circle;
    secrets.collect(circle);
    expect(JSON.stringify(secrets.redact(circle))).not.toContain(CANARY);
  });
});
