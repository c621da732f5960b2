/**
 * transforms-large-child — so many MiB through zstd and AES-256-GCM into files and back, in a process of
 * its own, so that its memory can be measured. Prints what it found as JSON.
 *
 * Of the built package, and no TypeScript itself: Node takes 30 MB to read that.
 */
import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';

const [path, built, mebibytes] = process.argv.slice(2);
const { createSpool } = await import(`${built}/index.js`);
const { compress, encrypt } = await import(`${built}/transforms/index.js`);

const BODY_BYTES = mebibytes * 2 ** 20;
const PART_BYTES = 2 ** 16;

/** Half of it text, half of it noise. */
async function* parts(hash) {
  const text = Buffer.alloc(PART_BYTES / 2, 'a line that comes again and again\n');
  for (let part = 0; part < BODY_BYTES / PART_BYTES; part += 1) {
    const bytes = Buffer.concat([text, randomBytes(PART_BYTES / 2)]);
    hash.update(bytes);
    yield bytes;
  }
}

const keys = { k1: Buffer.alloc(32, 7) };
const spool = createSpool({
  path,
  limits: { bodyBytes: 2 * BODY_BYTES },
  transforms: [compress('zstd'), encrypt({ keys })],
});
const given = createHash('sha256');
const { id } = await spool.enqueue({ topic: 'large', body: parts(given) });
const info = (await spool.get(id))?.envelope.body;
const read = createHash('sha256');
for await (const part of await spool.body(id)) read.update(part);
await spool.stop();
const status = await readFile('/proc/self/status', 'utf8');
const peakMB = (Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) * 1_024) / 1e6;
const isSame = given.digest('hex') === read.digest('hex');
process.stdout.write(JSON.stringify({ isSame, peakMB, info }));
