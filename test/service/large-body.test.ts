/** A body far larger than memory should hold, from a post to a receiver. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { request } from 'node:http';
import { expect, test } from 'vitest';
import { longOr } from '../long.ts';
import { folder, receiver, route, serve, until } from './binary.ts';

const BODY_MIB = longOr(1_024, 320);
const BODY_BYTES = BODY_MIB * 2 ** 20;
/** Less than the body has. */
const MEMORY_MAX_MIB = 250;

test(`${BODY_MIB} MiB are taken as a stream and delivered as a stream, in little memory`, async () => {
  const received = createHash('sha256');
  let bytes = 0;
  let isDone = false;
  const { url } = await receiver((incoming, response) => {
    incoming.on('data', (part: Buffer) => {
      received.update(part);
      bytes += part.byteLength;
    });
    incoming.on('end', () => {
      isDone = true;
      response.end();
    });
  });
  const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
  const cwd = await folder({
    limits: { bodyBytes: 2 * BODY_BYTES },
    // Signed: the signature needs the whole body before its first byte is sent.
    routes: [route('large', url, {}, { secret, timeout: '5m' })],
  });
  const service = await serve(cwd);
  const sent = createHash('sha256');
  const answer = await post(`${service.url}/v1/topics/large/messages`, sent);
  expect(answer).toBe(201);
  await until(async () => isDone);
  expect(bytes).toBe(BODY_BYTES);
  expect(received.digest('hex')).toBe(sent.digest('hex'));
  expect(await peakMiB(service.pid)).toBeLessThan(MEMORY_MAX_MIB);
});

/** Chunked, so that nobody knows the length before the end. */
function post(url: string, hash: ReturnType<typeof createHash>): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { method: 'POST' }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    outgoing.on('error', reject);
    const part = Buffer.alloc(2 ** 20);
    let at = 0;
    const more = (): void => {
      while (at < BODY_BYTES) {
        part.writeUInt32LE(at / part.byteLength);
        const copy = Buffer.from(part);
        hash.update(copy);
        at += copy.byteLength;
        if (!outgoing.write(copy)) {
          outgoing.once('drain', more);
          return;
        }
      }
      outgoing.end();
    };
    more();
  });
}

/** The most memory the process ever had. */
async function peakMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1_024;
}
