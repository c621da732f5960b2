/** Every option: what is refused, what is assumed, and what it changes on the wire. */
import dns from 'node:dns';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { isRespoolError } from 'respool';
import { type S3Options, s3 } from 'respool/stores/s3';
import { SimClock } from 'respool/testkit';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { chunksOf, clientOf } from './setup.ts';
import { stubClient } from './stub.ts';

const MIB = 2 ** 20;

describe('refused at once is', () => {
  test.each<[string, S3Options | Record<string, unknown>, RegExp]>([
    ['a name that is no option', { bucket: 'b1', buket: 1 }, /no option "buket"/],
    ['no bucket', {}, /"bucket"/],
    ['a bucket that is no name', { bucket: 'a b' }, /"bucket"/],
    ['a prefix with a slash at its beginning', { bucket: 'b1', prefix: '/a' }, /"prefix"/],
    ['parts below 5 MiB', { bucket: 'b1', partBytes: MIB }, /"partBytes"/],
    ['no part at once', { bucket: 'b1', partsAtOnce: 0 }, /"partsAtOnce"/],
    ['no attempt', { bucket: 'b1', attemptsMax: 0 }, /"attemptsMax"/],
    ['no connection', { bucket: 'b1', connections: 0 }, /"connections"/],
    ['a time limit below a second', { bucket: 'b1', requestTimeout: 5 }, /"requestTimeout"/],
    ['an archive', { bucket: 'b1', storageClass: 'GLACIER' }, /archive/],
    ['a storage class that is no name', { bucket: 'b1', storageClass: 'a b' }, /"storageClass"/],
    ['a strange word for checksums', { bucket: 'b1', checksums: 'no' }, /"checksums"/],
    ['a strange durability', { bucket: 'b1', durability: 'high' }, /"durability"/],
    ['an endpoint that is no URL', { bucket: 'b1', endpoint: 'key:secret@x' }, /"endpoint"/],
    ['a region beside a client', { bucket: 'b1', client: stubClient(), region: 'x' }, /"client"/],
    ['a url with keys', { url: 's3://key:secret@bucket' }, /"url"/],
    ['a url of something else', { url: 'http://bucket' }, /"url"/],
    ['a strange option in a url', { url: 's3://bucket?colour=red' }, /"colour"/],
  ])('%s', (_, options, text) => {
    try {
      s3(options);
      expect.unreachable();
    } catch (error) {
      expect(isRespoolError(error, 'config.invalid')).toBe(true);
      expect(String(error)).toMatch(text);
      // A secret is never repeated.
      expect(String(error)).not.toContain('secret@');
    }
  });
});

describe('durability', () => {
  test('is node-loss for AWS, and server for any other unless it is said', () => {
    const promise = (options: S3Options): string =>
      s3({ bucket: 'b1', ...options }).traits.durability;
    expect(promise({})).toBe('node-loss');
    expect(promise({ endpoint: 'https://s3.eu-west-1.amazonaws.com' })).toBe('node-loss');
    expect(promise({ endpoint: 'https://amazonaws.com.example.org' })).toBe('server');
    expect(promise({ endpoint: 'http://127.0.0.1:9000' })).toBe('server');
    expect(promise({ endpoint: 'http://127.0.0.1:9000', durability: 'power-loss' })).toBe(
      'power-loss',
    );
    expect(promise({ client: stubClient() })).toBe('server');
    expect(promise({ client: clientOf('http://a:b@127.0.0.1:9') })).toBe('server');
  });

  test('of a client of yours follows from its endpoint', async () => {
    const { S3Client } = await import('@aws-sdk/client-s3');
    const client = new S3Client({ region: 'eu-west-1' });
    expect(s3({ bucket: 'b1', client }).traits.durability).toBe('node-loss');
    client.destroy();
  });
});

describe('on the wire', () => {
  let server: Server | undefined;
  afterEach(async () => {
    vi.restoreAllMocks();
    server?.closeAllConnections();
    await new Promise((resolve) => (server === undefined ? resolve(0) : server.close(resolve)));
    server = undefined;
  });

  /** A server that says yes to everything, and what it was sent by one put. */
  async function requestsOf(options: S3Options, status = 200): Promise<IncomingMessage[]> {
    const requests: IncomingMessage[] = [];
    server = createServer((request, response) => {
      requests.push(request);
      request.resume().once('end', () => {
        const isSecondProbe = request.headers['if-none-match'] === '*' && isProbe(request);
        response.writeHead(isSecondProbe ? 412 : status).end();
      });
    });
    await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    const port = address === null || typeof address === 'string' ? 0 : address.port;
    const endpoint = `http://key:se%2Fcret@localhost:${port}`;
    const url = options.url?.replace('ENDPOINT', encodeURIComponent(endpoint));
    const store =
      url === undefined
        ? s3({ endpoint, bucket: 'bucket', attemptsMax: 1, ...options })
        : s3({ ...options, url });
    try {
      await store.open();
      await store.put('a', chunksOf('hello'));
    } catch (error) {
      if (status === 200) throw error;
    }
    await store.close();
    return requests;
  }

  const last = (requests: readonly IncomingMessage[]): IncomingMessage => {
    const found = requests.findLast(
      ({ method, url = '' }) => method === 'PUT' && !/probe/.test(url),
    );
    if (found === undefined) throw new Error('no body was put');
    return found;
  };

  test('keys, region, path style, prefix and shard, and no overwriting', async () => {
    const { url, headers } = last(await requestsOf({ region: 'mars-1', prefix: 'app' }));
    expect(url).toMatch(/^\/bucket\/app\/[0-9a-f]{2}\/a\b/);
    expect(headers.authorization).toMatch(/Credential=key\/\d+\/mars-1\/s3/);
    expect(headers['if-none-match']).toBe('*');
    expect(headers['x-amz-meta-respool-sha256']).toMatch(/^[0-9a-f]{64}$/);
  });

  test('credentials win over keys in the endpoint; the region of another server is assumed', async () => {
    const credentials = { accessKeyId: 'other', secretAccessKey: 'x', sessionToken: 'token' };
    const { headers } = last(await requestsOf({ credentials }));
    expect(headers.authorization).toMatch(/Credential=other\/\d+\/us-east-1\/s3/);
    expect(headers['x-amz-security-token']).toBe('token');
  });

  test('pathStyle: false puts the bucket into the name of the host', async () => {
    // The name bucket.localhost leads here by itself on most machines, and not on all.
    const address = { address: '127.0.0.1', family: 4 };
    vi.spyOn(dns, 'lookup').mockImplementation(((
      _: string,
      { all }: { readonly all?: boolean },
      done: (...given: unknown[]) => void,
    ) => (all === true ? done(null, [address]) : done(null, '127.0.0.1', 4))) as never);
    const { url, headers } = last(await requestsOf({ pathStyle: false }));
    expect(headers.host).toMatch(/^bucket\.localhost/);
    expect(url).toMatch(/^\/[0-9a-f]{2}\/a\b/);
  });

  test('storageClass is asked for; without it the bucket decides', async () => {
    const { headers } = last(await requestsOf({ storageClass: 'STANDARD_IA' }));
    expect(headers['x-amz-storage-class']).toBe('STANDARD_IA');
    server?.close();
    expect(last(await requestsOf({})).headers['x-amz-storage-class']).toBeUndefined();
  });

  test('checksums of the newer kind are sent, unless they are for when they are required', async () => {
    const isSent = ({ headers }: IncomingMessage): boolean =>
      Object.keys(headers).some((name) => /^x-amz-(?:sdk-)?checksum/.test(name));
    expect(isSent(last(await requestsOf({})))).toBe(true);
    server?.close();
    expect(isSent(last(await requestsOf({ checksums: 'when-required' })))).toBe(false);
  });

  test('attemptsMax is how often a request is tried', async () => {
    const requests = await requestsOf({ attemptsMax: 3 }, 503);
    expect(requests.map(({ method }) => method)).toEqual(['HEAD', 'HEAD', 'HEAD']);
  });

  test('a url says it all, and what stands beside it wins', async () => {
    const url =
      's3://bucket/from/url?endpoint=ENDPOINT&region=mars-1&storageClass=ONEZONE_IA' +
      '&checksums=when-required&partBytes=6000000&partsAtOnce=2&requestTimeout=5s' +
      '&attemptsMax=2&connections=9&createBucket=true&pathStyle=true&durability=power-loss';
    const { url: path, headers } = last(await requestsOf({ url, prefix: 'beside' }));
    expect(path).toMatch(/^\/bucket\/beside\/[0-9a-f]{2}\/a\b/);
    expect(headers.authorization).toContain('/mars-1/');
    expect(headers['x-amz-storage-class']).toBe('ONEZONE_IA');
    expect(s3({ url: 's3://bucket?durability=power-loss' }).traits.durability).toBe('power-loss');
  });
});

test('requestTimeout ends a request to a server that never answers, by the clock given', async () => {
  const clock = new SimClock();
  const client = stubClient({
    before: (name) =>
      name === 'HeadBucket' ? new Promise<void>(() => undefined) : Promise.resolve(),
  });
  const store = s3({ client, bucket: 'bucket', requestTimeout: '7s', clock });
  const opening = expect(store.open()).rejects.toMatchObject({
    code: 'store.unavailable',
    message: expect.stringContaining('7000 ms'),
  });
  // The request is on its way when the client has been asked.
  while (client.requests.length === 0) await new Promise((resolve) => setImmediate(resolve));
  await clock.advance(7_000);
  await opening;
});

test('a client of yours is used, and stays open', async () => {
  let isDestroyed = false;
  const client = { ...stubClient(), destroy: () => void (isDestroyed = true) };
  const store = s3({ client, bucket: 'bucket' });
  await store.open();
  await store.put('a', chunksOf('x'));
  await store.close();
  expect(client.names()).toContain('PutObject');
  expect(isDestroyed).toBe(false);
});

test('logger is told of what is a danger when the store opens', async () => {
  const lines: string[] = [];
  const logger = {
    debug: () => undefined,
    info: (_: object, text: string) => void lines.push(`info ${text}`),
    warn: (_: object, text: string) => void lines.push(`warn ${text}`),
    error: () => undefined,
  };
  const rule = { ID: 'tidy', Status: 'Enabled', Filter: { Prefix: '' }, Expiration: { Days: 3 } };
  const client = stubClient({ lifecycle: [rule], versioning: 'Enabled', conditional: false });
  await s3({ client, bucket: 'bucket', logger }).open();
  expect(lines.filter((line) => line.startsWith('warn'))).toEqual([
    expect.stringContaining('"tidy" removes bodies after 3 days'),
  ]);
  expect(lines.some((line) => line.startsWith('info') && line.includes('versions'))).toBe(true);
  expect(lines.some((line) => line.includes('If-None-Match'))).toBe(true);
});

function isProbe({ url = '' }: IncomingMessage): boolean {
  return url.includes('probe/');
}
