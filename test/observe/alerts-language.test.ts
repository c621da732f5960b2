/** The language of conditions: what is read, what is written again, what is said of mistakes. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isRespoolError } from 'respool';
import { parseCondition, printCondition } from 'respool/observe';
import { fulfils } from '../../src/observe/alerts/condition.ts';

const EXAMPLES: readonly (readonly [text: string, printed: string])[] = [
  ['bounce rate > 5 % for 5m', 'bounce rate > 5 % for 5m'],
  ['oldest deferred > 2h', 'oldest deferred > 2h'],
  ['dead queue > 0', 'dead queue > 0'],
  ['outbox lag > 30s', 'outbox lag > 30s'],
  ['disk < 10 %', 'disk < 10 %'],
  ['disk < 2 GiB', 'disk < 2 GiB'],
  ['disk<1.5GB for 1m', 'disk < 1500 MB for 1m'],
  ['failure rate of mail.# over 10m >= 12.5%', 'failure rate of mail.# over 10m >= 12.5 %'],
  ['failure rate >= 1 % over 1h for 90s', 'failure rate over 1h >= 1 % for 1m30s'],
  ['bounce rate over 5m > 1 %', 'bounce rate > 1 %'],
  ['count deferred > 1000', 'count deferred > 1000'],
  ['messages held of mail.* > 0', 'count held of mail.* > 0'],
  ['Count BOUNCE >= 1', 'count bounce >= 1'],
  ['oldest incoming of a.b <= 1h 30m', 'oldest incoming of a.b <= 1h30m'],
  ['dead queue "orders.dlq" > 0', 'dead queue "orders.dlq" > 0'],
  ['dead queue orders.dlq > 0', 'dead queue "orders.dlq" > 0'],
  ['queue "two words" > 100 for 10s', 'queue "two words" > 100 for 10s'],
  ['outbox backlog > 5000', 'outbox backlog > 5000'],
  ['store down for 30s', 'store down for 30s'],
  ['consumer down', 'consumer down'],
  ['consumer of "orders" down for 1m', 'consumer of "orders" down for 1m'],
  ['relay down', 'relay down'],
  ['time to full < 1h', 'time to full < 1h'],
  ['time to drain > 6h', 'time to drain > 6h'],
  ['time to drain of outbox > 6h', 'time to drain of outbox > 6h'],
  ['time to drain of "orders" > 6h', 'time to drain of "orders" > 6h'],
];

test.each(EXAMPLES)('the condition %j is read, and written as %j', (text, printed) => {
  const condition = parseCondition(text);
  expect(printCondition(condition)).toBe(printed);
  expect(parseCondition(printed)).toEqual(condition);
});

const MISTAKES: readonly (readonly [text: unknown, said: RegExp])[] = [
  ['', /something is missing at its end; allowed is bounce rate \| failure rate/],
  ['bounce rat > 5 %', /at character 1, "bounce" cannot stand there; allowed is bounce rate/],
  ['bounce rate', /something is missing at its end; allowed is > \| >= \| < \| <=, or "of"/],
  ['bounce rate > 5', /at character 15, "5" .* a percentage from 0 to 100 with its sign/],
  ['bounce rate > 101 %', /"101 %" cannot stand there; allowed is a percentage/],
  ['bounce rate = 5 %', /at character 13, "=" cannot stand there; allowed is > \| >=/],
  ['bounce rate > 5 % for', /something is missing at its end; allowed is a span of 1s to 30d/],
  ['bounce rate > 5 % for ever', /at character 23, "ever" .* a span of 1s to 30d after "for"/],
  ['bounce rate > 5 % for 0s', /a span of 1s to 30d after "for", such as 5m or 1h30m/],
  ['bounce rate > 5 % over 2d', /a span of 1s to 1d after "over"/],
  ['oldest > 2h', /at character 8, ">" .* incoming \| active \| deferred \| held/],
  ['oldest deferred > 5 %', /a span, such as 30s or 2h/],
  ['count deferred of a..b > 1', /a topic: words with dots/],
  ['count deferred > 1.5', /a whole number, such as 100/],
  ['queue > 5', /the name of a queue, such as "orders"/],
  ['queue "orders > 5', /at character 7, "\\"" cannot stand there; allowed is a second "/],
  ['disk < 5', /a percentage .* or a size, such as 2 GiB/],
  ['disk of a < 5 %', /at character 6, "of" .* disk is of one thing only/],
  ['store > 5', /at character 7, ">" cannot stand there; allowed is down/],
  ['store down for 30s and more', /a span of 1s to 30d/],
  ['dead queue > 0 now', /"0 now" cannot stand there; allowed is a whole number/],
  ['bounce rate > 5 % for 5m over 5m', /at character 26, "over" .* or the end/],
  ['bounce rate > -5 %', /"-5 %" cannot stand there; allowed is a percentage/],
  ['bounce rate > NaN %', /"NaN %" cannot stand there; allowed is a percentage/],
  ['bounce rate > 1e1 %', /"1e1 %" cannot stand there; allowed is a percentage/],
  ['bounce rate > ٥ %', /"٥ %" cannot stand there; allowed is a percentage/],
  ['count held > Infinity', /"Infinity" cannot stand there; allowed is a whole number/],
  [`count held > ${'9'.repeat(16)}`, /cannot stand there; allowed is a whole number/],
  ['count held > -1', /"-1" cannot stand there; allowed is a whole number/],
  ['bounce rate > 5 % for 5', /"5" cannot stand there; allowed is a span of 1s to 30d after "for"/],
  ['oldest deferred > 2', /"2" cannot stand there; allowed is a span, such as 30s or 2h/],
  ['oldest deferred > 99999999d', /allowed is a span/],
  ['disk < 2 gib', /"2 gib" cannot stand there; allowed is .* a size, such as 2 GiB/],
  [7, /cannot read 7 as a condition: allowed is a text of up to 500/],
  ['x'.repeat(501), /allowed is a text of up to 500 characters/],
];

test.each(MISTAKES)('the mistake in %j is named, with what is allowed', (text, said) => {
  expect(() => parseCondition(text)).toThrow(said);
});

test('what is read and written is read as the same, whatever it is made of', () => {
  const word = fc.constantFrom(
    ...'bounce rate failure count messages oldest deferred held dead queue outbox lag disk'.split(
      ' ',
    ),
    ...'store consumer relay down time to full drain of over for > >= < <= 5 % 5% 2h 10 GiB'.split(
      ' ',
    ),
    ...'"a b" mail.# orders backlog 30s 1.5 "" 0'.split(' '),
  );
  fc.assert(
    fc.property(fc.array(word, { maxLength: 12 }), (words) => {
      const text = words.join(' ');
      try {
        const condition = parseCondition(text);
        expect(parseCondition(printCondition(condition))).toEqual(condition);
      } catch (error) {
        expect(isRespoolError(error, 'config.invalid')).toBe(true);
      }
    }),
    { numRuns: 3_000 },
  );
});

test('junk is refused with a word about what is allowed, and never crashes', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.string({ unit: 'binary' }), fc.anything()), (junk) => {
      try {
        parseCondition(junk);
      } catch (error) {
        if (!isRespoolError(error, 'config.invalid')) throw error;
        expect(error.message).toContain('allowed is');
      }
    }),
  );
});

test.each([
  ['disk > 10 %', 10, false],
  ['disk >= 10 %', 10, true],
  ['disk < 10 %', 10, false],
  ['disk <= 10 %', 10, true],
  ['disk > 10 %', 10.1, true],
  ['disk < 10 %', 9.9, true],
])('%s at %d is %s', (text, value, holds) => {
  expect(fulfils(parseCondition(text), value)).toBe(holds);
});
