/** No line shows a secret, whatever it is wrapped in; and nothing that is given can harm (S7). */

import fc from 'fast-check';
import { redact, withRedaction } from 'respool/observe';
import { describe, expect, test } from 'vitest';
import { redactText } from '../../src/core/redact.ts';
import { always } from '../properties/runs.ts';

const CANARY = 'canary7f3a91c04be2';

describe('by name', () => {
  test.each([
    'authorization',
    'Proxy-Authorization',
    'cookie',
    'set-cookie',
    'password',
    'dbPassword',
    'clientSecret',
    'token',
    'accessToken',
    'key',
    'apiKey',
    'api_key',
    'X-Api-Key',
    'privateKey',
    'encryptionKey',
    'dsn',
    'credentials',
    'jwt',
  ])('what is called %s is hidden', (name) => {
    expect(redact({ [name]: CANARY, nested: [{ [name]: { deep: CANARY } }] })).toEqual({
      [name]: '(secret)',
      nested: [{ [name]: '(secret)' }],
    });
  });

  test.each(['orderKey', 'routingKey', 'routing_key', 'dedupeKey', 'monkey', 'topic', 'code'])(
    'what is called %s is shown',
    (name) => {
      expect(redact({ [name]: 'x' })).toEqual({ [name]: 'x' });
    },
  );

  test('names of your own are hidden at any depth, in capitals or not', () => {
    const given = { a: { Email: CANARY, ok: true }, email: 7, topic: 'a' };
    expect(redact(given, { names: ['eMail'] })).toEqual({
      a: { Email: '(secret)', ok: true },
      email: '(secret)',
      topic: 'a',
    });
  });

  test('that there is none is no secret', () => {
    expect(redact({ password: null, token: false })).toEqual({ password: null, token: false });
  });
});

/** Texts that hold the canary in the ways that clients and handlers say it. */
const TEXTS: readonly string[] = [
  `amqp://user:${CANARY}@host:5672/vhost`,
  `cannot reach amqps://${CANARY}@host: refused`,
  `postgres://u:p@${CANARY}@host/db`,
  `GET https://host/hook?token=${CANARY}&x=1 answered 500`,
  `https://host/?to=amqp%3A%2F%2Fu%3A${CANARY}%40host`,
  `Authorization: Bearer ${CANARY}`,
  `authorization: Basic ${CANARY} more`,
  `sent bearer ${CANARY}, refused`,
  `Cookie: a=1; session=${CANARY}`,
  `host=db password=${CANARY} user=x`,
  `PGPASSWORD=${CANARY}`,
  `password: ${CANARY}`,
  `{"password":"${CANARY}","ok":1}`,
  JSON.stringify(JSON.stringify({ apiKey: CANARY })),
  `{'client_secret': '${CANARY}'}`,
  `secret="${CANARY} and more`,
  `-----BEGIN RSA PRIVATE KEY-----\n${CANARY}\n-----END RSA PRIVATE KEY-----`,
  `token rsp_${CANARY}`,
  `x-api-key: ${CANARY}`,
  `GET https://host/blob?sv=1&sig=${CANARY} answered 403`,
  `eyJhbGciOiJIUzI1.${CANARY}.x`,
];

describe('by value', () => {
  test.each(TEXTS)('the secret in %j is hidden', (text) => {
    expect(redactText(text)).not.toContain(CANARY);
    expect(redactText(text)).toContain('(secret)');
  });

  test('what names no secret stays as it is', () => {
    for (const text of [
      'greylisted, try again in 5 minutes',
      'http://host:80/path?page=2',
      'Basic authentication is not supported',
      'the token: it is too long',
      'curl -H "authorization: Bearer $RESPOOL_TOKEN" -d {} http://127.0.0.1:1/x',
      'duplicate key: order-1',
    ]) {
      expect(redactText(text)).toBe(text);
    }
  });

  test('a long text costs no more than its length', () => {
    for (const piece of ['a://', 'password=', 'Bearer ', '"', '?a=', 'cookie: ', '\\', '@', '-']) {
      const text = `secret${piece.repeat(20_000)}`;
      expect(redactText(text).length).toBeLessThanOrEqual(2 * text.length);
    }
  });
});

describe('whatever is given', () => {
  /** Anything that can stand in a field, with the canary in a place that gives it away. */
  const wrapped = fc.letrec<{ any: unknown }>((tie) => ({
    any: fc.oneof(
      { maxDepth: 6, withCrossShrink: true },
      fc.constantFrom(...TEXTS),
      fc.constantFrom(...TEXTS).map((text) => new Error(text, { cause: { text: CANARY } })),
      fc.constantFrom(Buffer.from(CANARY), new URL(`amqp://u:${CANARY}@h`), new Map([[1, CANARY]])),
      fc.string().map((text) => text.replaceAll(CANARY, '')),
      fc.array(tie('any'), { maxLength: 4 }),
      fc.dictionary(fc.string(), tie('any'), { maxKeys: 4 }),
      fc.record({ password: fc.constant(CANARY), headers: fc.record({ cookie: tie('any') }) }),
      fc.constantFrom(...TEXTS).map((text) => ({ [text]: 1 })),
    ),
  })).any;

  test('no secret is in any line, however deep', () => {
    always([wrapped, fc.constantFrom(...TEXTS)], (value, text) => {
      const lines: string[] = [];
      const write = (fields: object, said: string): void =>
        void lines.push(JSON.stringify(fields), said);
      const logger = withRedaction({ debug: write, info: write, warn: write, error: write });
      logger.warn({ value }, text);
      logger.error(value as object, text);
      expect(lines).toHaveLength(4);
      expect(lines.join('\n')).not.toContain(CANARY);
    });
  });

  test('nothing of it is changed, and plain data comes out as it went in', () => {
    always([fc.jsonValue({ maxDepth: 4 })], (value) => {
      const before = JSON.stringify({ value });
      redact({ value });
      expect(JSON.stringify({ value })).toBe(before);
    });
    const event = { at: 1, id: 'm', because: { code: 'smtp.451', text: 'greylisted' }, ids: ['a'] };
    expect(redact(event)).toEqual(event);
  });

  test('circles, throwing getters, proxies and odd values are survived', () => {
    const circle: Record<string, unknown> = { n: 1 };
    circle['self'] = circle;
    const thrower = {
      get bad(): string {
        throw new Error('no');
      },
      good: 1,
    };
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    const hostile = new Proxy(
      {},
      {
        ownKeys: () => {
          throw new Error('no');
        },
      },
    );
    const shown = redact({
      circle,
      thrower,
      proxy,
      hostile,
      big: 1n,
      run: () => 1,
      mark: Symbol('x'),
      when: new Date(0),
      never: new Date(Number.NaN),
      ['__proto__']: 1,
    });
    expect(shown).toMatchObject({
      circle: { n: 1, self: '(circle)' },
      thrower: { bad: '(unreadable)', good: 1 },
      proxy: '(unreadable)',
      hostile: '(unreadable)',
      big: '1',
      run: '(function)',
      mark: '(symbol)',
      when: '1970-01-01T00:00:00.000Z',
      never: null,
    });
    expect(Object.getPrototypeOf(shown)).toBe(Object.prototype);
  });

  test('a line has its limits: texts, lists, names, depth and all of it', () => {
    const mega = 'x'.repeat(2 ** 20);
    const shown = redact({ mega, list: Array.from({ length: 1_000 }, (_, at) => at) });
    expect(String(shown['mega'])).toHaveLength('… 1040384 more characters'.length + 8_192);
    expect(shown['list']).toHaveLength(101);
    let deep: unknown = CANARY;
    for (let at = 0; at < 50; at += 1) deep = { deep };
    expect(JSON.stringify(redact({ deep }))).toContain('(deep)');
    const many = Array.from({ length: 100 }, () => Array.from({ length: 100 }, () => mega));
    expect(JSON.stringify(redact({ many })).length).toBeLessThan(200_000);
  });

  test('a secret at the place of a cut is hidden with its beginning', () => {
    for (let at = 8_150; at < 8_200; at += 1) {
      const text = `${'x'.repeat(at)} amqp://user:${CANARY}@host ${'y'.repeat(9_000)}`;
      expect(String(redact({ text })['text'])).not.toMatch(/canary/);
    }
  });

  test('an error is its type, text, code and stack, without what hangs on it', () => {
    const error = Object.assign(new TypeError('no amqp://u:p@h'), {
      code: 'ECONNREFUSED',
      socket: { password: CANARY },
    });
    const { err } = redact({ err: error }) as { err: Record<string, unknown> };
    expect(Object.keys(err)).toEqual(['type', 'message', 'code', 'stack']);
    expect(err).toMatchObject({
      type: 'TypeError',
      message: 'no amqp://(secret)@h',
      code: 'ECONNREFUSED',
    });
    expect(redact(error)).toMatchObject({ err: { type: 'TypeError' } });
  });
});

test('withRedaction makes no line that its logger does not want', () => {
  const said: string[] = [];
  const write = (_: object, text: string): void => void said.push(text);
  const logger = withRedaction({
    debug: write,
    info: write,
    warn: write,
    error: write,
    isLevelEnabled: (level) => level !== 'debug',
  });
  const never = {
    get field(): string {
      throw new Error('looked at');
    },
  };
  logger.debug(never, 'debug');
  logger.info({}, 'info');
  expect(said).toEqual(['info']);
  expect([logger.isLevelEnabled?.('debug'), logger.isLevelEnabled?.('warn')]).toEqual([
    false,
    true,
  ]);
});
