/** Whatever a file says: it is a configuration, or refused with `config.invalid` and no secret. */

import fc from 'fast-check';
import { isRespoolError } from 'respool';
import { expect, test } from 'vitest';
import { describeConfig } from '../../src/config/describe.ts';
import { KEYS } from '../../src/config/schema/keys.ts';
import { completeConfig } from '../../src/config/load/load-config.ts';
import { parseConfig } from '../../src/config/load/read-file.ts';
import { KnownSecrets } from '../../src/core/redact.ts';

const CANARY = 'canary-0123456789';

/** Words that mean something somewhere, so that chance gets further than the first check. */
const OTHER_WORDS =
  'topic deliver policy concurrency timeout http exec url urls headers secret command env fixed ' +
  'ladder exponential first backoff postfix custom name role sha256 archive * constructor toString';
const words = fc.constantFrom(
  ...KEYS.flatMap(({ key }) => key.split('.')),
  ...OTHER_WORDS.split(' '),
);
const texts = fc.oneof(
  words,
  fc.string({ maxLength: 8 }),
  fc.constantFrom('5s', 'memory:', 'file:./x', 'https://example.com/', 'a.*', '#', 'read', ''),
);
const { value: anything } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 5, depthSize: 'medium' },
    texts,
    fc.integer({ min: -2, max: 20_000 }),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(words, tie('value'), { maxKeys: 4 }),
  ),
}));
const { value: route } = fc.letrec(() => ({
  value: fc.record(
    {
      topic: fc.oneof(texts, anything),
      deliver: fc.oneof(
        fc.record({ http: fc.oneof(anything, fc.dictionary(words, anything)) }),
        fc.record({ exec: fc.oneof(anything, fc.array(texts, { minLength: 1 })) }),
        anything,
      ),
      policy: anything,
      concurrency: anything,
    },
    { requiredKeys: ['topic', 'deliver'] },
  ),
}));
/** One wild key at a time: the first that is wrong would hide the others. */
const good = { lease: '5s', policies: { default: 'postfix' } };
const tops = [...new Set(KEYS.map(({ key }) => key.split('.')[0] ?? ''))];
const groups = KEYS.map(({ key }) => key.split('.')).filter(({ length }) => length === 2);
const configs = fc.oneof(
  fc.tuple(fc.constantFrom(...tops), anything).map(([key, value]) => ({ ...good, [key]: value })),
  fc
    .tuple(fc.constantFrom(...groups), anything)
    .map(([[group = '', name = ''], value]) => ({ ...good, [group]: { [name]: value } })),
  fc.array(route, { maxLength: 2 }).map((routes) => ({ ...good, routes })),
  fc.dictionary(words, anything, { maxKeys: 2 }).map((policies) => ({ ...good, policies })),
);

test('anything is a configuration or refused, never a crash', async () => {
  let taken = 0;
  await fc.assert(
    fc.asyncProperty(configs, async (config) => {
      const secrets = new KnownSecrets();
      const serve = 'serve' in config ? config.serve : { token: '${THE_TOKEN}' };
      const env = { THE_TOKEN: CANARY };
      const withSecret = { ...config, serve };
      const folder = import.meta.dirname;
      const file = `${folder}/respool.config.json`;
      try {
        const raw = await parseConfig(JSON.stringify(withSecret), file, env, secrets);
        const given = { env, file, folder, raw, added: new Set<string>(), secrets };
        const lines = describeConfig(await completeConfig(given));
        expect(JSON.stringify(lines)).not.toContain(CANARY);
        taken += 1;
      } catch (error) {
        if (!isRespoolError(error, 'config.invalid')) throw error;
        expect(error.message).not.toContain(CANARY);
        expect(error.message.length).toBeLessThan(2_000);
      }
    }),
    { numRuns: 3_000 },
  );
  expect(taken).toBeGreaterThan(10);
});

test('any text is a file or refused, with a place or a reason', async () => {
  const kinds = fc.constantFrom('json', 'yaml');
  await fc.assert(
    fc.asyncProperty(fc.string({ maxLength: 60 }), kinds, async (text, kind) => {
      try {
        await parseConfig(text, `respool.config.${kind}`, {}, new KnownSecrets());
      } catch (error) {
        expect(isRespoolError(error, 'config.invalid')).toBe(true);
        expect((error as Error).message).toContain(`respool.config.${kind}`);
      }
    }),
    { numRuns: 3_000 },
  );
});

// Regression: the scanner took these strings for JSON, and a bare SyntaxError came through.
test.each(['{"a\\N": 1}', '{"\\U0041": 1}', '{"a\u0001": 1}', '{"a": "\\T"}'])(
  'the text %j is refused at a place inside it',
  async (text) => {
    expect(await placeOf(text)).toEqual([1, expect.any(Number)]);
  },
);

test('what JSON refuses is refused at a place inside the text', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.json({ maxDepth: 3 }),
      fc.nat(),
      fc.constantFrom(',', '}', 'x', '"'),
      async (text, at, put) => {
        const cut = at % (text.length + 1);
        const broken = text.slice(0, cut) + put + text.slice(cut);
        let isJson = true;
        try {
          JSON.parse(broken);
        } catch {
          isJson = false;
        }
        if (isJson) return;
        const [line = 0, column = 0] = await placeOf(broken);
        const lines = broken.split('\n');
        expect(line).toBeGreaterThan(0);
        expect(line).toBeLessThanOrEqual(lines.length);
        expect(column).toBeGreaterThan(0);
        expect(column).toBeLessThanOrEqual((lines[line - 1]?.length ?? 0) + 1);
      },
    ),
    {
      numRuns: 1_000,
      examples: [['{" \\\\N":" "}', 709_283_839, '"']],
    },
  );
});

async function placeOf(text: string): Promise<number[]> {
  try {
    await parseConfig(text, 'respool.config.json', {}, new KnownSecrets());
  } catch (error) {
    const [, line, column] = /line (\d+), column (\d+)/.exec((error as Error).message) ?? [];
    return [Number(line), Number(column)];
  }
  throw new Error('it was not refused');
}
