/** What holds for any header and any address, not only for those we thought of (S4, S6). */
import { isIPv4 } from 'node:net';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { whyRefused } from '../../src/deliver/http/destination.ts';
import { http } from 'respool/deliver';
import { brief, receiver } from './setup.ts';

const OURS =
  /^(?:host|connection|user-agent|content-(?:type|length)|idempotency-key|respool-(?:id|attempt|topic))$/;

test('whatever a message header says, it arrives as that header or not at all', async () => {
  const { url, seen } = await receiver();
  const handler = http({ url, allow: ['127.0.0.1'], forward: ['x-one'] });
  const dangerous = fc.constantFrom('\r\n', '\n', '\r', '\0', ': ', 'x-two: 1', '\r\n\r\nGET / ');
  const value = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.array(fc.oneof(dangerous, fc.string()), { maxLength: 6 }).map((parts) => parts.join('')),
  );
  await fc.assert(
    fc.asyncProperty(value, value, async (one, type) => {
      seen.length = 0;
      const headers = { 'x-one': one, 'content-type': type, 'x-two': 'kept' };
      const line = await brief(handler, { headers });
      if (line !== 'delivered') {
        expect(line).toContain('permanent http.header');
        expect(seen).toEqual([]);
        return;
      }
      expect(seen).toHaveLength(1);
      const got = seen[0]?.headers ?? {};
      expect(Object.keys(got).filter((name) => !OURS.test(name))).toEqual(['x-one']);
      const arrived = Buffer.from(String(got['x-one']), 'latin1').toString();
      expect(arrived).toBe(trimmed(one));
      expect(seen[0]?.body.toString()).toBe('{"hello":1}');
    }),
    { numRuns: 300 },
  );
});

test('an address wrapped into IPv6 is judged as the address itself', () => {
  fc.assert(
    fc.property(fc.ipV4(), (address) => {
      expect(isIPv4(address)).toBe(true);
      const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number);
      const [high, low] = [(a * 256 + b).toString(16), (c * 256 + d).toString(16)];
      const wrapped = [
        `::ffff:${address}`,
        `::ffff:${high}:${low}`,
        `0:0:0:0:0:ffff:${high}:${low}`,
        `64:ff9b::${high}:${low}`,
        `64:ff9b::${address}`,
        `2002:${high}:${low}::1`,
      ];
      for (const one of wrapped) expect(whyRefused(one), one).toBe(whyRefused(address));
    }),
    { numRuns: 1_000 },
  );
});

test('an address means the same in every way to write it', () => {
  fc.assert(
    fc.property(fc.ipV6(), (address) => {
      const normal = new URL(`http://[${address}]/`).hostname.slice(1, -1);
      expect(whyRefused(normal), address).toBe(whyRefused(address));
    }),
    { numRuns: 1_000 },
  );
});

/** HTTP takes blanks and tabs around a value away. */
function trimmed(text: string): string {
  return text.replaceAll(/^[ \t]+|[ \t]+$/g, '');
}
