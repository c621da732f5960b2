/** No request to an address that is not public, in whatever form it comes (S6). */
import { describe, expect, test } from 'vitest';
import { whyRefused } from '../../src/deliver/http/destination.ts';
import { http } from 'respool/deliver';
import { makeHttp } from '../../src/deliver/http/http.ts';
import { answer, brief, receiver } from './setup.ts';

const REFUSED: readonly (readonly [address: string, why: string])[] = [
  ['0.0.0.0', 'unspecified'],
  ['0.1.2.3', 'unspecified'],
  ['10.0.0.1', 'private'],
  ['10.255.255.255', 'private'],
  ['100.64.0.1', 'shared by a carrier'],
  ['100.100.100.200', 'shared by a carrier'],
  ['100.127.255.255', 'shared by a carrier'],
  ['127.0.0.1', 'loopback'],
  ['127.255.255.254', 'loopback'],
  ['168.63.129.16', 'cloud metadata'],
  ['169.254.169.254', 'link-local'],
  ['172.16.0.1', 'private'],
  ['172.31.255.255', 'private'],
  ['192.0.0.192', 'reserved'],
  ['192.0.2.1', 'documentation'],
  ['192.88.99.1', 'reserved'],
  ['192.168.1.1', 'private'],
  ['198.18.0.1', 'benchmarking'],
  ['198.19.255.255', 'benchmarking'],
  ['198.51.100.7', 'documentation'],
  ['203.0.113.9', 'documentation'],
  ['224.0.0.1', 'multicast'],
  ['239.255.255.255', 'multicast'],
  ['240.0.0.1', 'reserved'],
  ['255.255.255.255', 'broadcast'],
  ['::', 'unspecified'],
  ['::1', 'loopback'],
  ['0:0:0:0:0:0:0:1', 'loopback'],
  ['::127.0.0.1', 'reserved'],
  ['::7f00:1', 'reserved'],
  ['::ffff:127.0.0.1', 'loopback'],
  ['::ffff:7f00:1', 'loopback'],
  ['0:0:0:0:0:ffff:a9fe:a9fe', 'link-local'],
  ['::ffff:10.0.0.1', 'private'],
  ['::ffff:0:127.0.0.1', 'reserved'],
  ['64:ff9b::127.0.0.1', 'loopback'],
  ['64:ff9b::a9fe:a9fe', 'link-local'],
  ['64:ff9b:1::808:808', 'reserved'],
  ['2002:7f00:1::', 'loopback'],
  ['2002:a9fe:a9fe::1', 'link-local'],
  ['2002:c0a8:101::1', 'private'],
  ['2001::1', 'reserved'],
  ['2001:0:808:808::1', 'reserved'],
  ['2001:10::1', 'reserved'],
  ['2001:db8::1', 'documentation'],
  ['3fff:1::1', 'documentation'],
  ['100::1', 'reserved'],
  ['5f00::1', 'reserved'],
  ['fc00::1', 'private'],
  ['fd00:ec2::254', 'private'],
  ['fe80::1', 'link-local'],
  ['febf::1', 'link-local'],
  ['fe80::1%eth0', 'not an address'],
  ['fec0::1', 'private'],
  ['ff02::1', 'multicast'],
  ['localhost', 'not an address'],
  ['', 'not an address'],
];

const PUBLIC = [
  '1.1.1.1',
  '8.8.8.8',
  '9.255.255.255',
  '11.0.0.0',
  '100.63.255.255',
  '100.128.0.0',
  '126.255.255.255',
  '128.0.0.0',
  '168.63.129.17',
  '169.253.255.255',
  '172.15.255.255',
  '172.32.0.0',
  '192.0.1.0',
  '192.167.255.255',
  '198.17.255.255',
  '198.20.0.0',
  '223.255.255.255',
  '::ffff:8.8.8.8',
  '64:ff9b::808:808',
  '2002:808:808::1',
  '2001:200::1',
  '2001:4860:4860::8888',
  '2606:4700:4700::1111',
  '2a00:1450:4001:80b::200e',
];

describe('an address', () => {
  test.each(REFUSED)('%s is refused: %s', (address, why) => {
    expect(whyRefused(address)).toBe(why);
  });

  test.each(PUBLIC)('%s is public', (address) => {
    expect(whyRefused(address)).toBeUndefined();
  });
});

describe('a URL of the options', () => {
  test.each([
    'http://127.0.0.1/',
    'http://127.1/',
    'http://2130706433/',
    'http://0x7f000001/',
    'http://0x7f.1/',
    'http://0177.0.0.1/',
    'http://017700000001/',
    'http://①②⑦.0.0.1/',
    'http://127.0.0.1./',
    'http://0/',
    'http://169.254.169.254/latest/meta-data/',
    'http://2852039166/',
    'http://[::1]/',
    'http://[::]/',
    'http://[::ffff:127.0.0.1]/',
    'http://[::ffff:a9fe:a9fe]/',
    'http://[64:ff9b::7f00:1]/',
    'http://[2002:7f00:1::]/',
    'http://[fd00:ec2::254]/',
    'http://[fe80::1]/',
    'https://10.0.0.1:8443/',
    'http://localhost:3000/',
    'http://LOCALHOST/',
    'http://localhost./',
    'http://app.localhost/',
  ])('%s is refused at once', (url) => {
    expect(() => http({ url })).toThrow(
      expect.objectContaining({
        code: 'config.invalid',
        message: expect.stringMatching(/is not public \(.+\); if that is intended, name it in the/),
      }),
    );
    expect(() => http({ urls: { a: url } })).toThrow('as "urls.a"');
  });

  test.each([
    ['http://127.1:8080/', '127.0.0.1'],
    ['http://127.0.0.1:8080/', '127.0.0.1:8080'],
    ['http://127.0.0.1/', '127.0.0.1:80'],
    ['https://127.0.0.1/', '127.0.0.1:443'],
    ['http://[::1]:8080/', '::1'],
    ['http://[::1]:8080/', '[::1]'],
    ['http://[::1]:8080/', '[::1]:8080'],
    ['http://localhost/', 'LocalHost'],
  ])('%s is taken when "%s" is allowed', (url, host) => {
    expect(http({ url, allow: [host] }).describe()).toMatchObject({ allow: [host] });
  });

  test.each([
    ['http://127.0.0.1:8080/', '127.0.0.1:8081'],
    ['http://127.0.0.1/', '127.0.0.2'],
    ['http://localhost/', '127.0.0.1'],
    ['http://a.localhost/', 'localhost'],
  ])('%s is not taken when only "%s" is allowed', (url, host) => {
    expect(() => http({ url, allow: [host] })).toThrow('is not public');
  });

  test.each(['*', '*.internal', '10.0.0.0/8', 'http://a', 'a b', '', 'a:b', 'a/b', 'u@a', '[::1'])(
    '"%s" cannot be allowed: names are exact',
    (host) => {
      expect(() => http({ url: 'https://example.com', allow: [host] })).toThrow(
        expect.objectContaining({ code: 'config.invalid' }),
      );
    },
  );
});

describe('a name', () => {
  const found = (...addresses: string[]) =>
    addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));

  test.each([
    [['127.0.0.1']],
    [['8.8.8.8', '127.0.0.1']],
    [['127.0.0.1', '8.8.8.8']],
    [['2606:4700:4700::1111', '::ffff:10.0.0.1']],
    [['169.254.169.254']],
  ])('that leads to %j holds the message, and no connection is made', async (addresses) => {
    const { port, connections } = await receiver();
    const handler = makeHttp(
      { url: `http://hook.example:${port}/` },
      { resolve: async () => found(...addresses) },
    );
    const bad = addresses.find((address) => whyRefused(address) !== undefined);
    expect(await brief(handler)).toBe(
      `held http.address: no request to "hook.example" (${bad}): the address is not public ` +
        `(${whyRefused(bad ?? '')}); if that is intended, name the host in the option "allow": ` +
        "['hook.example']",
    );
    expect(connections()).toBe(0);
  });

  test('that is allowed may lead anywhere, on the allowed port', async () => {
    const { port, seen } = await receiver();
    const url = `http://hook.internal:${port}/`;
    const resolve = async () => found('127.0.0.1');
    for (const allow of [['hook.internal'], [`hook.internal:${port}`]]) {
      expect(await brief(makeHttp({ url, allow }, { resolve }))).toBe('delivered');
    }
    expect(seen).toHaveLength(2);
    const elsewhere = makeHttp({ url, allow: ['hook.internal:1'] }, { resolve });
    expect(await brief(elsewhere)).toContain('held http.address');
    // Allowed is the name, not what it leads to.
    const byAddress = makeHttp({ url, allow: ['127.0.0.1'] }, { resolve });
    expect(await brief(byAddress)).toContain('held http.address');
  });

  test('that changes its address after the check gains nothing: there is one look-up', async () => {
    const { port, seen } = await receiver(answer(200, '', { connection: 'close' }));
    const answers = ['127.0.0.1', '127.0.0.2', '127.0.0.2'];
    let lookups = 0;
    const handler = makeHttp(
      { url: `http://rebind.example:${port}/` },
      {
        // In this test 127.0.0.1 stands for a public address and 127.0.0.2 for a private one.
        whyRefused: (address) => (address === '127.0.0.1' ? undefined : 'private'),
        resolve: async () => {
          const address = answers[lookups] ?? '127.0.0.2';
          lookups += 1;
          return found(address);
        },
      },
    );
    expect(await brief(handler)).toBe('delivered');
    expect([lookups, seen.length]).toEqual([1, 1]);
    // The next connection looks the name up anew, and is refused.
    expect(await brief(handler)).toContain('held http.address: no request to "rebind.example"');
    expect([lookups, seen.length]).toEqual([2, 1]);
  });

  test('keeps its connection while it is open, without another look-up', async () => {
    const { port, seen, connections } = await receiver();
    let lookups = 0;
    const handler = makeHttp(
      { url: `http://hook.internal:${port}/`, allow: ['hook.internal'] },
      {
        resolve: async () => {
          lookups += 1;
          return found('127.0.0.1');
        },
      },
    );
    for (let at = 0; at < 20; at += 1) await brief(handler);
    expect(seen).toHaveLength(20);
    expect(lookups).toBe(connections());
    expect(lookups).toBeLessThanOrEqual(2);
  });

  test('without any address cannot be reached', async () => {
    const handler = makeHttp({ url: 'http://hook.example/' }, { resolve: async () => [] });
    expect(await brief(handler)).toContain('transient http.unreachable');
  });

  test('is looked up by the system unless told otherwise', async () => {
    const { port, seen } = await receiver();
    const url = `http://localhost:${port}/`;
    expect(await brief(http({ url, allow: ['localhost'] }))).toBe('delivered');
    expect(seen).toHaveLength(1);
  });
});

test('an address in the URL is checked again when the connection is made', async () => {
  const { url, connections } = await receiver();
  const handler = makeHttp(
    { url: url.replace('127.0.0.1', '8.8.8.8') },
    { whyRefused: (address) => (address === '8.8.8.8' ? 'private' : undefined) },
  );
  expect(await brief(handler)).toContain('held http.address: no request to "8.8.8.8"');
  expect(connections()).toBe(0);
});
