/** What servers answer besides the usual, byte by byte, through the real package. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type S3Bodies, type S3Options, s3 } from 'respool/stores/s3';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { bytesOf, chunksOf, pieces } from './setup.ts';

const MIB = 2 ** 20;
const PART = 5 * MIB;
const SLOW_DOWN =
  '<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>';
const BROKEN = '<Error><Code>InternalError</Code><Message>We are sorry.</Message></Error>';

/** What a request asks for, in a word. */
type Kind = 'probe' | 'put' | 'head' | 'begin' | 'part' | 'end' | 'abort' | 'get' | 'other';
type Answer = readonly [status: number, xml: string];

let server: Server | undefined;
let opened: S3Bodies | undefined;

afterEach(async () => {
  vi.unstubAllEnvs();
  await opened?.close();
  server?.closeAllConnections();
  await new Promise((resolve) => (server === undefined ? resolve(0) : server.close(resolve)));
  server = undefined;
});

describe('the end of an upload that is answered with 200 and an error inside', () => {
  test('is tried again by the package, and the body is there', async () => {
    let ends = 0;
    const { store, kinds } = await setup((kind) => {
      if (kind !== 'end') return undefined;
      ends += 1;
      return ends === 1 ? [200, BROKEN] : undefined;
    });
    expect(await store.put('a', pieces(PART + 1))).toEqual({ size: PART + 1 });
    expect(kinds.filter((kind) => kind === 'end')).toHaveLength(2);
    expect(kinds).not.toContain('abort');
    expect((await bytesOf(store, 'a')).byteLength).toBe(PART + 1);
  });

  test('and stays so, is a put that failed: nothing is there, and the upload is ended', async () => {
    const { store, kinds } = await setup((kind) => (kind === 'end' ? [200, BROKEN] : undefined), {
      attemptsMax: 1,
    });
    await expect(store.put('a', pieces(PART + 1))).rejects.toMatchObject({
      code: 'store.unavailable',
      message: expect.stringContaining('InternalError'),
    });
    expect(kinds.slice(-3)).toEqual(['end', 'head', 'abort']);
    await expect(bytesOf(store, 'a')).rejects.toMatchObject({ code: 'body.missing' });
  });
});

describe('a server that answers 304 where 412 is meant', () => {
  const notModified = (kind: Kind, request: IncomingMessage, isThere: boolean) => {
    const isRefused = request.headers['if-none-match'] === '*' && isThere;
    return isRefused && (kind === 'put' || kind === 'probe') ? ([304, ''] as const) : undefined;
  };

  test('is found to keep to the condition', async () => {
    const { store } = await setup(notModified);
    const found = (await store.diagnose()).find(({ id }) => id === 'conditional-writes');
    expect(found?.level).toBe('ok');
  });

  test('refuses a body that is there already', async () => {
    const { store } = await setup(notModified);
    await store.put('a', chunksOf('first'));
    await expect(store.put('a', chunksOf('second'))).rejects.toMatchObject({
      code: 'message.duplicate',
    });
    expect(Buffer.from(await bytesOf(store, 'a')).toString()).toBe('first');
  });
});

describe('a server that asks to slow down', () => {
  test.each([
    ['a body in one part', 'put', 5],
    ['a part', 'part', PART + 1],
    ['the end of an upload', 'end', PART + 1],
  ] as const)('is sent %s again', async (_, slow, size) => {
    let tries = 0;
    const { store } = await setup((kind) => {
      if (kind !== slow) return undefined;
      tries += 1;
      return tries === 1 ? [503, SLOW_DOWN] : undefined;
    });
    expect(await store.put('a', pieces(size))).toEqual({ size });
    expect(tries).toBeGreaterThan(1);
    expect((await bytesOf(store, 'a')).byteLength).toBe(size);
  });

  test('for longer than there are tries, is unavailable for now', async () => {
    let puts = 0;
    const { store } = await setup(
      (kind) => {
        if (kind !== 'put') return undefined;
        puts += 1;
        return [503, SLOW_DOWN];
      },
      { attemptsMax: 2 },
    );
    await expect(store.put('a', chunksOf('x'))).rejects.toMatchObject({
      code: 'store.unavailable',
      message: expect.stringContaining('slow down'),
    });
    expect(puts).toBe(2);
  });
});

describe('an endpoint in the environment', () => {
  test.each(['AWS_ENDPOINT_URL', 'AWS_ENDPOINT_URL_S3'])(
    '%s leads to another server, of which no more is promised than is known',
    async (name) => {
      const { store, kinds } = await setup(
        () => undefined,
        { region: 'mars-1', pathStyle: true, credentials: KEYS },
        { variable: name },
      );
      expect(kinds.length).toBeGreaterThan(0);
      expect(store.traits.durability).toBe('server');
    },
  );

  test('does not change what was said to be promised', async () => {
    const options = { region: 'mars-1', pathStyle: true, credentials: KEYS } as const;
    const variable = { variable: 'AWS_ENDPOINT_URL' };
    const said = { ...options, durability: 'power-loss' as const };
    const { store } = await setup(() => undefined, said, variable);
    expect(store.traits.durability).toBe('power-loss');
  });
});

const KEYS = { accessKeyId: 'key', secretAccessKey: 'secret' };

/** A store on a server that answers as told, and as it should where nothing is told. */
async function setup(
  answer: (kind: Kind, request: IncomingMessage, isThere: boolean) => Answer | undefined,
  options: S3Options = {},
  { variable }: { readonly variable?: string } = {},
) {
  const kinds: Kind[] = [];
  const objects = new Map<string, Held>();
  const parts: Buffer[] = [];
  server = createServer((request, response) => {
    void bytesIn(request).then((bytes) => {
      const [path = ''] = (request.url ?? '').split('?');
      const kind = kindOf(request);
      kinds.push(kind);
      const told = answer(kind, request, objects.has(path));
      if (told === undefined) behave({ kind, path, bytes, objects, parts, request, response });
      else response.writeHead(told[0]).end(told[1]);
    });
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  const place = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  if (variable !== undefined) vi.stubEnv(variable, `http://${place}`);
  const where = variable === undefined ? { endpoint: `http://key:secret@${place}` } : {};
  const store = s3({ ...where, bucket: 'bucket', partBytes: PART, partsAtOnce: 1, ...options });
  opened = store;
  await store.open();
  return { store, kinds };
}

interface Held {
  readonly bytes: Buffer;
  readonly token: string;
}

interface Turn {
  readonly kind: Kind;
  readonly path: string;
  readonly bytes: Buffer;
  readonly objects: Map<string, Held>;
  readonly parts: Buffer[];
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

/** A server in good order, as far as these tests go. */
function behave({ kind, path, bytes, objects, parts, request, response }: Turn): void {
  const token = String(request.headers['x-amz-meta-respool-put'] ?? '');
  const isRefused = request.headers['if-none-match'] === '*' && objects.has(path);
  if ((kind === 'put' || kind === 'probe') && request.method === 'PUT') {
    if (!isRefused) objects.set(path, { bytes, token });
    response.writeHead(isRefused ? 412 : 200).end();
  } else if (kind === 'begin') {
    objects.set(`${path} begun`, { bytes, token });
    response.end('<R><UploadId>upload</UploadId></R>');
  } else if (kind === 'part') {
    parts.push(bytes);
    response.writeHead(200, { etag: `"${parts.length}"` }).end();
  } else if (kind === 'end') {
    const begun = objects.get(`${path} begun`);
    objects.set(path, { bytes: Buffer.concat(parts), token: begun?.token ?? '' });
    response.end('<CompleteMultipartUploadResult></CompleteMultipartUploadResult>');
  } else if (kind === 'head' || kind === 'get') {
    const held = objects.get(path);
    if (held === undefined) {
      response.writeHead(404).end(kind === 'get' ? '<Error><Code>NoSuchKey</Code></Error>' : '');
      return;
    }
    const headers = { 'content-length': held.bytes.byteLength };
    response.writeHead(200, { ...headers, 'x-amz-meta-respool-put': held.token });
    response.end(kind === 'get' ? held.bytes : undefined);
  } else response.end(kind === 'other' ? '<R></R>' : undefined);
}

function kindOf({ method = '', url = '' }: IncomingMessage): Kind {
  const [path = '', query = ''] = url.split('?');
  if (path === '/bucket' || path === '/bucket/') return 'other';
  if (path.includes('/probe/')) return 'probe';
  if (query.includes('uploads')) return 'begin';
  if (query.includes('partNumber')) return 'part';
  if (query.includes('uploadId')) return method === 'POST' ? 'end' : 'abort';
  return method === 'PUT' ? 'put' : method === 'HEAD' ? 'head' : 'get';
}

/** The bytes of a request, taken out of the frame that checksums come in. */
async function bytesIn(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const all = Buffer.concat(chunks);
  const framed = request.headers['x-amz-decoded-content-length'];
  if (framed === undefined) return all;
  const begin = all.indexOf('\r\n') + 2;
  return all.subarray(begin, begin + Number(framed));
}
