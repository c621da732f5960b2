/** words — arrays, patterns, bytes and errors as PostgreSQL says them. */

import { describe, expect, test } from 'vitest';
import { isRespoolError, topicMatches } from 'respool';
import { sampleEntry } from 'respool/testkit';
import { numberArray, textArray } from '../../../src/stores/postgres/row.ts';
import { readBytes } from '../../../src/stores/postgres/connection.ts';
import { storeError, troubleOf } from '../../../src/stores/postgres/errors.ts';
import { regexOf } from '../../../src/stores/postgres/conditions.ts';
import { withService } from '../../services/index.ts';
import { openClient, openStore, serverUrl } from './setup.ts';

const TEXTS = [
  '',
  'plain',
  'null',
  'NULL',
  'a,b',
  '{x}',
  'a"b\\c',
  ' space ',
  'ünï 🌍',
  "it's",
  '-',
  '.',
  '(1)',
];
const PATTERNS = [
  '#',
  'a',
  'a.*',
  'a.#',
  '#.b',
  '*.b',
  'a.#.c',
  '*',
  '#.x.#',
  'a-b',
  'a:b/c',
  'a_b',
];
const TOPICS = [
  'a',
  'a.b',
  'a.b.c',
  'a.x.c',
  'b',
  'x',
  'a-b',
  'a:b/c',
  'a_b',
  'axb',
  'a.x.y.c',
  'ab',
];

const codeError = (code: string) => Object.assign(new Error('said so'), { code });

describe('errors', () => {
  test.each([
    ['40001', 'again'],
    ['40P01', 'again'],
    ['55P03', 'again'],
    ['08000', 'lost'],
    ['08P01', 'lost'],
    ['57P01', 'lost'],
    ['57P02', 'lost'],
    ['57P03', 'lost'],
    ['25006', 'lost'],
    ['53300', 'lost'],
    ['ECONNRESET', 'lost'],
    ['ECONNREFUSED', 'lost'],
    ['EPIPE', 'lost'],
    ['53100', 'full'],
    ['XX001', 'corrupt'],
    ['XX002', 'corrupt'],
    ['28P01', 'refused'],
    ['42501', 'refused'],
    ['57014', 'other'],
    ['23505', 'other'],
  ])('%s is "%s"', (code, trouble) => {
    expect(troubleOf(codeError(code))).toBe(trouble);
  });

  test.each([
    'Connection terminated unexpectedly',
    'Connection terminated',
    'timeout exceeded when trying to connect',
    'Client has encountered a connection error and is not queryable',
  ])('what the client says in words is known: %s', (text) => {
    expect(troubleOf(new Error(text))).toBe('lost');
  });

  test('an error says what was tried, what the server said and what to do', () => {
    const error = storeError(codeError('53100'), 'insert entries');
    expect(isRespoolError(error, 'store.full')).toBe(true);
    expect(error.message).toContain('cannot insert entries: said so (53100)');
    const away = storeError(codeError('ECONNREFUSED'), 'open the store');
    expect(isRespoolError(away, 'store.unavailable')).toBe(true);
    expect(away.message).toContain('if it never was, check the URL');
  });
});

test('bytes are read in both forms that a server may write them in', () => {
  expect([...readBytes('\\x00ff41')]).toEqual([0, 255, 65]);
  expect([...readBytes('A\\\\\\000\\377z')]).toEqual([65, 92, 0, 255, 122]);
  expect([...readBytes('')]).toEqual([]);
});

withService('postgres', () => {
  test('arrays of texts and numbers come back as they were', async () => {
    const client = await openClient();
    const sql = 'SELECT $1::text[] AS texts, $2::int8[]::text AS numbers';
    const list = [...TEXTS, null];
    const found = await client.query(sql, [textArray(list), numberArray([1, null, -5])]);
    expect(found.rows[0]).toEqual({ texts: list, numbers: '{1,NULL,-5}' });
  });

  test('patterns mean the same to the server as to us', async () => {
    const client = await openClient();
    for (const pattern of PATTERNS) {
      for (const topic of TOPICS) {
        const sql = "SELECT ('.' || $1::text) ~ $2::text AS fits";
        const found = await client.query(sql, [topic, regexOf(pattern)]);
        expect(found.rows[0].fits, `${pattern} and ${topic}`).toBe(topicMatches(pattern, topic));
      }
    }
  });

  test('bytes are read right where the server writes them with escapes', async () => {
    const url = `${await serverUrl()}?options=-c%20bytea_output%3Descape`;
    const store = await openStore({ url });
    const bytes = Uint8Array.from({ length: 256 }, (_, n) => n);
    await store.insert([sampleEntry('a', { bytes })]);
    expect([...((await store.get('a'))?.inlineBody ?? [])]).toEqual([...bytes]);
  });

  test('a wrong number or a zero character is refused by itself, not with its neighbours', async () => {
    const store = await openStore();
    const results = await Promise.allSettled([
      store.insert([sampleEntry('a')]),
      store.insert([sampleEntry('b', { attempts: 2 ** 40 })]),
      store.insert([sampleEntry('c', { destination: 'x\0y' })]),
      store.insert([sampleEntry('d', { dueAt: Number.NaN })]),
      store.insert([sampleEntry('e')]),
    ]);
    expect(results.map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'rejected',
      'rejected',
      'fulfilled',
    ]);
    expect(await store.get('x\0y')).toBeUndefined();
  });

  test('an inline body above the limit is refused', async () => {
    const store = await openStore();
    const bytes = new Uint8Array(store.traits.inlineMaxBytes + 1);
    await expect(store.insert([sampleEntry('a', { bytes })])).rejects.toMatchObject({
      code: 'limit.exceeded',
    });
  });
});
