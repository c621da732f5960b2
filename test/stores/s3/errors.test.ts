/** What the answers of a server mean for the caller. */
import { s3 } from 'respool/stores/s3';
import { describe, expect, test } from 'vitest';
import { lifecycleFindings } from '../../../src/stores/s3/diagnose.ts';
import { chunksOf } from './setup.ts';
import { refusal, stubClient } from './stub.ts';

describe('a put that is refused with', () => {
  test.each([
    [500, 'InternalError', 'store.unavailable'],
    [503, 'SlowDown', 'store.unavailable'],
    [503, 'ServiceUnavailable', 'store.unavailable'],
    [429, 'TooManyRequestsException', 'store.unavailable'],
    [400, 'RequestTimeout', 'store.unavailable'],
    [0, 'ECONNREFUSED', 'store.unavailable'],
    [0, 'TimeoutError', 'store.unavailable'],
    [403, 'AccessDenied', 'config.invalid'],
    [403, 'SignatureDoesNotMatch', 'config.invalid'],
    [403, 'RequestTimeTooSkewed', 'config.invalid'],
    [404, 'NoSuchBucket', 'config.invalid'],
    [400, 'ExpiredToken', 'config.invalid'],
    [400, 'InvalidStorageClass', 'config.invalid'],
    [301, 'PermanentRedirect', 'config.invalid'],
    [403, 'QuotaExceeded', 'store.full'],
    [507, 'InsufficientStorage', 'store.full'],
    [400, 'EntityTooLarge', 'limit.exceeded'],
  ] as const)('%i %s is %s', async (status, name, code) => {
    let isOpen = false;
    const client = stubClient({
      before: (request) => {
        if (isOpen && request === 'PutObject') throw refusal(status, name);
      },
    });
    const store = s3({ client, bucket: 'bucket' });
    await store.open();
    isOpen = true;
    await expect(store.put('a', chunksOf('x'))).rejects.toMatchObject({
      code,
      message: expect.stringMatching(/^cannot write body "a": .+; .+/),
    });
  });
});

describe('a lifecycle rule', () => {
  const rule = (more: object) => [{ ID: 'r', Status: 'Enabled', ...more }];
  const days = { Expiration: { Days: 5 } };
  test.each([
    ['for everything', rule(days), true],
    ['for our prefix', rule({ Filter: { Prefix: 'app/' }, ...days }), true],
    ['for what begins as ours', rule({ Prefix: 'ap', ...days }), true],
    ['for a part of ours', rule({ Filter: { And: { Prefix: 'app/00/' } }, ...days }), true],
    ['with a date', rule({ Expiration: { Date: new Date(0) } }), true],
    ['that archives', rule({ Transitions: [{ StorageClass: 'DEEP_ARCHIVE' }] }), true],
    ['for another prefix', rule({ Filter: { Prefix: 'logs/' }, ...days }), false],
    ['for objects with a tag', rule({ Filter: { Tag: { Key: 'a' } }, ...days }), false],
    ['that is off', rule({ ...days, Status: 'Disabled' }), false],
    ['for markers only', rule({ Expiration: { ExpiredObjectDeleteMarker: true } }), false],
    ['that only moves', rule({ Transitions: [{ StorageClass: 'STANDARD_IA' }] }), false],
  ])('%s is a danger: %s', (_, rules, isDanger) => {
    const findings = lifecycleFindings(rules, 'app/');
    expect(findings.some(({ level }) => level === 'unsafe')).toBe(isDanger);
    for (const { level, todo } of findings) if (level === 'unsafe') expect(todo).toBeDefined();
  });

  test('that ends unfinished uploads is missed when there is none', () => {
    const aborts = { AbortIncompleteMultipartUpload: { DaysAfterInitiation: 7 } };
    const ids = (rules: object[]) =>
      lifecycleFindings(rules as never, '').map(({ id, level }) => `${id} ${level}`);
    expect(ids([])).toEqual(['lifecycle ok', 'unfinished-uploads note']);
    expect(ids(rule(aborts))).toEqual(['lifecycle ok']);
  });
});

test.each([
  [undefined, 'ok', 'keeps no versions'],
  ['Enabled', 'note', 'a removed body stays'],
  ['Suspended', 'note', 'leaves a marker'],
])('a bucket whose versions are %s is told: %s', async (versioning, level, words) => {
  const client = stubClient(versioning === undefined ? {} : { versioning });
  const store = s3({ client, bucket: 'spool' });
  await store.open();
  const found = (await store.diagnose()).find(({ id }) => id === 'versions');
  await store.close();
  expect(found).toMatchObject({ level, text: expect.stringContaining(words) });
});
