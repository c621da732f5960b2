import fc from 'fast-check';
import { expect, test } from 'vitest';
import { KeyRing } from '../../src/transforms/key-ring.ts';
import { isToken, keyIdOf, SealCipher } from '../../src/transforms/seal-cipher.ts';

/** The bytes 1 to 32. */
const KEY = 'AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=';
const HEADERS = ['message', '0198-a', 'headers'];

function cipherOf(textsPerSalt?: number): SealCipher {
  return new SealCipher(KeyRing.forWriting('the seal', { keys: { k1: KEY } }), textsPerSalt);
}

const bytesOf = (sealed: string) => Buffer.from(sealed.split(':')[2] ?? '', 'base64url');

test('what the first version sealed still opens, and its tokens are still the same', () => {
  const cipher = cipherOf();
  const sealed =
    'v1:k1:ntDJxoSnSJDqcLB-_Z8QF65BhV3NuIW8CObQQiO5j6HWH4wbRov6ls4C824SWuHHbAGEuwA46SW7FoPTcg';
  expect(cipher.unseal(HEADERS, sealed)).toBe('{"tenant":"acme"}');
  expect(cipher.token('code', 'smtp.550')).toBe('sealed.6T8113v6Wo649O3q');
  expect(cipher.token('fingerprint', 'abc')).toBe('sealed.tn7SM1rWpxgzWFWJ');
  expect(cipher.token('destination', 'mx1')).toBe('sealed.usidpW8hbVc2e5V7');
});

test('any text in any place opens there, and in no other place', () => {
  const cipher = cipherOf();
  const place = fc.array(fc.string({ unit: 'binary' }), { minLength: 1, maxLength: 3 });
  fc.assert(
    fc.property(place, place, fc.string({ unit: 'grapheme' }), (here, there, text) => {
      const sealed = cipher.seal(here, text);
      expect(keyIdOf(sealed)).toBe('k1');
      expect(cipher.unseal(here, sealed)).toBe(text);
      if (JSON.stringify(here) === JSON.stringify(there)) return;
      expect(() => cipher.unseal(there, sealed)).toThrow('does not open');
    }),
  );
});

test('no two texts of one salt share a nonce, over many refills of the pool', () => {
  const cipher = cipherOf();
  const nonces = new Set<string>();
  for (let n = 0; n < 2_000; n += 1) {
    nonces.add(bytesOf(cipher.seal(HEADERS, 'same')).toString('hex', 0, 28));
  }
  expect(nonces.size).toBe(2_000);
});

test('a salt is used for as many texts as it is good for, then there is another', () => {
  const cipher = cipherOf(2);
  const sealed = Array.from({ length: 5 }, (_, n) => cipher.seal(HEADERS, String(n)));
  const salts = sealed.map((text) => bytesOf(text).toString('hex', 0, 16));
  expect(salts[1]).toBe(salts[0]);
  expect(new Set(salts).size).toBe(3);
  expect(sealed.map((text) => cipher.unseal(HEADERS, text))).toEqual(['0', '1', '2', '3', '4']);
});

test('another cipher with the same key opens what this one sealed, under more salts than are kept', () => {
  const cipher = cipherOf(1);
  const sealed = Array.from({ length: 1_200 }, (_, n) => cipher.seal(HEADERS, String(n)));
  const other = cipherOf();
  for (const [n, text] of sealed.entries()) expect(other.unseal(HEADERS, text)).toBe(String(n));
  expect(other.unseal(HEADERS, sealed[0] ?? '')).toBe('0');
});

test('a token is known as one; codes of people are not', () => {
  expect(isToken(cipherOf().token('code', 'x'))).toBe(true);
  for (const word of ['smtp.550', 'sealed', 'sealed.', 'sealed.soon']) {
    expect(isToken(word)).toBe(false);
  }
});
