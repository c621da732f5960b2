/** Receivers that quote the secrets of a request: what they say is kept, the secrets are not. */
import { describe, expect, test } from 'vitest';
import { http, type HttpOptions } from 'respool/deliver';
import { answer, makeDelivery, receiver } from './setup.ts';

const allow = ['127.0.0.1'];

/** All that stays of an answer that says `said`. */
async function kept(said: string, options: Partial<HttpOptions>, query = '', status = 500) {
  const { url } = await receiver(answer(status, said));
  const { delivery, notes } = makeDelivery({ headers: { 'x-token': 'forwarded-canary' } });
  const outcome = await http({ ...options, url: `${url}${query}`, allow })(delivery);
  return { notes, all: JSON.stringify([outcome, notes]) };
}

const basic = Buffer.from('ann:canary words').toString('base64');
const key = Buffer.from('canary canary canary');
const cases: readonly (readonly [string, Partial<HttpOptions>, string, string])[] = [
  ['a token', { headers: { authorization: 'Bearer canary' } }, 'canary', ''],
  ['a user and password', { headers: { authorization: `Basic ${basic}` } }, basic, ''],
  ['a password', { headers: { authorization: `Basic ${basic}` } }, 'canary words', ''],
  ['a cookie', { headers: { cookie: 'a=1; sid=canary' } }, 'canary', ''],
  ['a key with escaped slashes', { headers: { 'x-api-key': 'can/ary' } }, 'can\\/ary', ''],
  ['a key in a URL', { headers: { 'x-api-key': 'can/ary' } }, 'can%2fary', ''],
  ['a quoted key', { headers: { 'x-api-key': 'can"ary' } }, 'can\\"ary', ''],
  [
    'a key in UTF-8',
    { headers: { 'x-api-key': Buffer.from('cänary').toString('latin1') } },
    'cänary',
    '',
  ],
  ['a header of the message', { forward: ['x-token'] }, 'forwarded-canary', ''],
  ['a signing key', { secret: 'canary canary canary' }, 'canary canary canary', ''],
  [
    'a signing key in base64',
    { secret: `whsec_${key.toString('base64')}` },
    key.toString('base64'),
    '',
  ],
  ['a parameter', {}, 'canary', '?sig=canary'],
  ['an encoded parameter', {}, 'canary%26x', '?token=canary%26x'],
  ['a decoded parameter', {}, 'canary&x', '?token=canary%26x'],
  ['a path', {}, 'canary0123456789', '/canary0123456789?a=1'],
];

describe('an answer that quotes', () => {
  test.each(cases)('%s is kept without it', async (_what, options, canary, query) => {
    for (const status of [200, 500]) {
      const { notes, all } = await kept(`you sent <${canary}>!`, options, query, status);
      expect(notes['http-response']).toBe('you sent <(secret)>!');
      expect(all).not.toContain(canary);
      expect(all.includes('answered 500: you sent <(secret)>!')).toBe(status === 500);
    }
  });

  test('all its headers does not show the scheme as a secret, nor the public key', async () => {
    const { notes } = await kept('Invalid Bearer token for message-1', {
      headers: { authorization: 'Bearer canary' },
    });
    expect(notes['http-response']).toBe('Invalid Bearer token for message-1');
  });

  test('a secret at the end of what is kept does not leave the start of it', async () => {
    const token = 'canary-0123456789-0123456789';
    for (let length = 230; length < 250; length += 1) {
      const said = `${'x'.repeat(length)}${token}`;
      const { all } = await kept(said, { headers: { 'x-api-key': token } });
      expect(all).not.toContain('canary');
    }
  });
});
