/** The word under which failures that are alike are counted. */
import { describe, expect, test } from 'vitest';
import { fingerprint } from 'respool';
import { normalise } from '../../src/core/fingerprint.ts';

describe('a fingerprint', () => {
  // It is stored and compared across processes and versions: these values never change.
  test.each<[string, string, string]>([
    ['', '', '1jwkt08uwi3'],
    ['error', '', '0svpdoxg56z'],
    ['timeout', 'the handler did not finish within 30s', '1p1cvnwcskw'],
    ['smtp.451', 'greylisted, try again in 300 seconds', '199sk9md2lv'],
    ['http.503', 'upstream said "busy" to user-42@example.org', '0bj2cvusd1g'],
    ['econnrefused', 'connect ECONNREFUSED 127.0.0.1:25', '1b4minucx1q'],
    ['holder.lost', '0198c0de-0000-7000-8000-000000000001 was lost', '1wc8l30cfby'],
    ['übel', 'Größe überschritten 😀', '1f7vg4z6lte'],
  ])('of %j and %j never changes', (code, reason, word) => {
    expect(fingerprint(code, reason)).toBe(word);
  });

  test('has 11 characters of a file name', () => {
    for (let at = 0; at < 200; at += 1) {
      expect(fingerprint(`c${'x'.repeat(at)}`, 'why')).toMatch(/^[0-9a-z]{11}$/);
    }
  });

  test.each<[string, string, string]>([
    ['numbers', 'timeout after 30 ms', 'timeout after 12345 ms'],
    ['ids', 'no 0198c0de-0000-7000-8000-000000000001', 'no 0198C0DE-ffff-7fff-8fff-00000000ffff'],
    ['addresses', 'bad rcpt a.b@example.org', 'bad rcpt xyz@mail.example.com'],
    ['hex words', 'digest deadbeefdeadbeef00', 'digest 0123456789abcdef0123456789abcdef'],
    ['double quotes', 'unknown user "ann"', 'unknown user "bob smith"'],
    ['single quotes', "no column 'a'", "no column 'total_b'"],
    ['white space', 'line one\n  line two', 'line one line two '],
    ['capitals', 'Connection Reset', 'connection reset'],
    ['hosts and ports', 'connect 10.0.0.1:25', 'connect 192.168.7.12:2525'],
  ])('is the same when only %s differ', (_, one, other) => {
    expect(fingerprint('x', one)).toBe(fingerprint('x', other));
  });

  test('differs by code and by words', () => {
    expect(fingerprint('a', 'same')).not.toBe(fingerprint('b', 'same'));
    expect(fingerprint('a', 'disk full')).not.toBe(fingerprint('a', 'disk gone'));
    expect(fingerprint('ab', 'c')).not.toBe(fingerprint('a', 'bc'));
  });

  test('ten thousand time-outs of ten thousand messages are one group', () => {
    const words = new Set<string>();
    for (let at = 0; at < 10_000; at += 1) {
      words.add(fingerprint('timeout', `message "m-${at}" to u${at}@host${at}.org after ${at} ms`));
    }
    expect(words.size).toBe(1);
  });

  test('ten thousand different codes are ten thousand groups', () => {
    const words = new Set<string>();
    for (let at = 0; at < 10_000; at += 1) words.add(fingerprint(`code-${at}`, 'same'));
    expect(words.size).toBe(10_000);
  });
});

test('a normalised reason shows what was taken out', () => {
  const reason =
    '  User "Ann" <ann@example.org> (0198c0de-0000-7000-8000-000000000001)\n failed 3 times ';
  expect(normalise(reason)).toBe('user <text> <<address>> (<id>) failed <n> times');
});
