/** Failures of receivers that answer in JSON: one group for each cause, whatever varies. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { fingerprint } from 'respool';
import { normalise } from '../../src/core/fingerprint.ts';

const print = (reason: string): string => fingerprint('http.400', reason);
const said = (body: string): string => `shop.example answered 400: ${body}`;

describe('one cause is one group', () => {
  test.each<[string, string, string]>([
    [
      'Stripe: ids, amounts, addresses of logs',
      '{"error":{"code":"resource_missing","doc_url":"https://stripe.com/docs/error-codes/resource-missing","message":"No such customer: \'cus_NffrFeUfNV2Hib\'","request_log_url":"https://dashboard.stripe.com/logs/req_8fJk2LmNop?t=1699","type":"invalid_request_error"}}',
      '{"error":{"code":"resource_missing","doc_url":"https://stripe.com/docs/error-codes/resource-missing","message":"No such customer: \'cus_9s6XKzkNRiz8i3\'","request_log_url":"https://dashboard.stripe.com/logs/req_a1B2c3D4e5?t=17","type":"invalid_request_error"}}',
    ],
    [
      'Stripe: layout',
      '{\n  "error": {\n    "message": "Your card was declined.",\n    "type": "card_error"\n  }\n}\n',
      '{"error":{"message":"Your card was declined.","type":"card_error"}}',
    ],
    [
      'Spring: time, path with an id, trace',
      '{"timestamp":"2026-11-18T10:00:00.123+00:00","status":400,"error":"Bad Request","trace":"java.lang.A: x at B(C.java:12)","path":"/orders/17/items"}',
      '{"timestamp":"2026-11-19T23:59:59.9Z","status":400,"error":"Bad Request","trace":"java.lang.A: y at D(E.java:99)","path":"/orders/18/items"}',
    ],
    [
      'Rails: numbers',
      '{"errors":{"amount":["must be less than 100.50"]}}',
      '{"errors":{"amount":["must be less than 7"]}}',
    ],
    [
      'Go: uuid and request id of letters only',
      '{"code":5,"message":"order 0198c0de-0000-7000-8000-000000000001 not found","requestId":"abcdefgh"}',
      '{"code":5,"message":"order 0198C0DE-ffff-7fff-8fff-00000000ffff not found","requestId":"zyxwvuts"}',
    ],
    [
      'Go: quoted JSON within a text',
      String.raw`rpc error: desc = "{\"error\":\"no stock for item 42\",\"trace_id\":\"aa\"}"`,
      String.raw`rpc error: desc = "{\"error\":\"no stock for item 7\",\"trace_id\":\"bb\"}"`,
    ],
    [
      'GraphQL: places',
      '{"errors":[{"message":"Cannot query field \\"nmae\\" on type \\"User\\".","locations":[{"line":2,"column":3}]}]}',
      '{"errors":[{"message":"Cannot query field \\"nmae\\" on type \\"User\\".","locations":[{"line":71,"column":30}]}]}',
    ],
    [
      'addresses of people and machines',
      '{"message":"ann@example.org from 10.0.0.1 and 2001:db8::1 is blocked"}',
      '{"message":"bob.smith@mail.example.com from 192.168.7.12 and fe80::1a2b:3c4d is blocked"}',
    ],
    [
      'e-mail addresses with digits and ids in them',
      '{"message":"no mailbox for ann1@example.org"}',
      '{"message":"no mailbox for bob.x7k2m9@mail2.example.com"}',
    ],
    [
      'a list of ids without digits',
      '{"error":"not found","order_ids":["abc","def"]}',
      '{"error":"not found","order_ids":["ghi","jkl"]}',
    ],
    [
      'tokens and hashes',
      '{"message":"digest deadbeefdeadbeef00 of eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9 is wrong"}',
      '{"message":"digest 0123456789abcdef0123456789abcdef of eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9 is wrong"}',
    ],
    [
      'texts about ids that name them',
      '{"errors":{"customer_id":["cus_8fJk2LmN3 is not known"]}}',
      '{"errors":{"customer_id":["cus_77aKe2Xy1 is not known"]}}',
    ],
    [
      'a reason that names a number',
      '{"reason":"order 17 is not found"}',
      '{"reason":"order 18 is not found"}',
    ],
    [
      'dates with the name of the month',
      '{"message":"card expired on Jan 2, 2026","until":"2 January 2026","of":"02-Jan-2026"}',
      '{"message":"card expired on December 31st 2027","until":"1st Sept. 2027","of":"9-NOV-2031"}',
    ],
    [
      'times before and after noon',
      '{"message":"closed since 10:15 AM","from":"9:00 a.m."}',
      '{"message":"closed since 3:20:07pm","from":"11:30 p.m."}',
    ],
    [
      'numbers with exponents',
      '{"amount":3e10,"message":"1e+21 is too large"}',
      '{"amount":17,"message":"-2.5E7 is too large"}',
    ],
    ['ids like numbers', '{"message":"no order 123e456"}', '{"message":"no order 12fe45a"}'],
    ['amounts', '{"code":"E1001","amount":12.5}', '{"code":"E1001","amount":13.70}'],
    [
      'a code that is an id',
      '{"code":"0198c0de-0000-7000-8000-000000000001"}',
      '{"code":"0198c0de-ffff-7fff-8fff-00000000ffff"}',
    ],
    [
      'errors of GraphQL with letters only in an id',
      '{"errors":[{"message":"no","trace_id":"abcdefgh"}]}',
      '{"errors":[{"message":"no","trace_id":"zyxwvuts"}]}',
    ],
    ['a text alone with an id', '"no order ord_8fJk2LmN3"', '"no order ord_7aKe2Xy19"'],
    [
      'cut within a word of the last text',
      '{"message":"the country of the customer is miss…',
      '{"message":"the country of the customer is missi…',
    ],
    [
      'HTML: ids in attributes and numbers',
      '<html><head><title>502 Bad Gateway</title></head><body data-ray="7f1a">ray 12</body></html>',
      '<html><head><title>502 Bad Gateway</title></head><body data-ray="99cc">ray 7</body></html>',
    ],
  ])('%s', (_, one, other) => {
    expect(normalise(said(one))).toBe(normalise(said(other)));
    expect(print(said(one))).toBe(print(said(other)));
  });
});

describe('different causes are different groups', () => {
  test.each<[string, string, string]>([
    ['one text', '{"error":"country is missing"}', '{"error":"card was stolen"}'],
    ['a list', '["country is missing"]', '["card was stolen"]'],
    ['a text alone', '"country is missing"', '"card was stolen"'],
    ['a text alone that is cut', '"country is missing in th…', '"card was stolen in t…'],
    ['a list that begins with a number', '[1,"country is missing"]', '[1,"card was stolen"]'],
    ['a list that begins with null', '[null, "no country"]', '[null, "no card"]'],
    [
      'Rails: texts about an id',
      '{"errors":{"customer_id":"is missing"}}',
      '{"errors":{"customer_id":"is not known"}}',
    ],
    [
      'Rails: lists of texts about an id',
      '{"order_id":["must exist"]}',
      '{"order_id":["has been paid already"]}',
    ],
    ['Django: one word about an id', '{"order_id":["blank"]}', '{"order_id":["inactive"]}'],
    ['fields: one word', '{"errors":{"orderId":"locked"}}', '{"errors":{"orderId":"closed"}}'],
    [
      'months without a date, and words like them',
      '{"message":"may 2 orders be sent"}',
      '{"message":"march 2 orders be sent"}',
    ],
    ['months of a report', '{"message":"no report of May"}', '{"message":"no report of June"}'],
    ['letters before a number', '{"message":"no plan A-1"}', '{"message":"no plan B-1"}'],
    ['codes: with an exponent', '{"code":"1E5"}', '{"code":"2E5"}'],
    ['codes: numbers with an exponent', '{"code":1e5}', '{"code":2e5}'],
    ['a token', '{"token":"expired"}', '{"token":"revoked"}'],
    ['a signature', '{"signature":"is too old"}', '{"signature":"does not match"}'],
    ['a name of words', '{"customer_id":"not_found"}', '{"customer_id":"is_required"}'],
    ['codes: letter and digits', '{"code":"E1001"}', '{"code":"E2002"}'],
    ['codes: last digit', '{"code":"AUTH-4011"}', '{"code":"AUTH-4012"}'],
    ['codes: numbers', '{"code":1001}', '{"code":2002}'],
    ['codes: of SQL', '{"error_code":"22P02"}', '{"error_code":"42P01"}'],
    ['codes: of Windows', '{"errorCode":"0x80070057"}', '{"errorCode":"0x80070005"}'],
    ['codes: negative', '{"error":{"code":-32601}}', '{"error":{"code":-32602}}'],
    ['codes: errors in a list', '{"errors":["E1001"]}', '{"errors":["E2002"]}'],
    ['codes: an error that is a number', '{"error":17}', '{"error":18}'],
    ['a status of the receiver', '{"status":409,"ok":false}', '{"status":422,"ok":false}'],
    ['a reason with digits', '{"reason":"3ds_failed"}', '{"reason":"2fa_failed"}'],
    [
      'Stripe: codes and parameters',
      '{"error":{"code":"parameter_missing","param":"country","type":"invalid_request_error"}}',
      '{"error":{"code":"parameter_missing","param":"email","type":"invalid_request_error"}}',
    ],
    [
      'Stripe: reasons of the bank',
      '{"error":{"code":"card_declined","decline_code":"stolen_card"}}',
      '{"error":{"code":"card_declined","decline_code":"insufficient_funds"}}',
    ],
    [
      'Spring: messages',
      '{"timestamp":"2026-11-18T10:00:00Z","status":400,"message":"country must not be null"}',
      '{"timestamp":"2026-11-18T10:00:00Z","status":400,"message":"zip must not be null"}',
    ],
    [
      'Rails: fields',
      `{"errors":{"country":["can't be blank"]}}`,
      `{"errors":{"email":["can't be blank"]}}`,
    ],
    ['Rails: rules', '{"errors":{"zip":["is too short"]}}', `{"errors":{"zip":["isn't known"]}}`],
    [
      'Go: quoted JSON within a text',
      String.raw`rpc error: desc = "{\"error\":\"country is missing\"}"`,
      String.raw`rpc error: desc = "{\"error\":\"card was stolen\"}"`,
    ],
    ['Python: single quotes', "{'detail': 'country is missing'}", "{'detail': 'card was stolen'}"],
    [
      'GraphQL: fields',
      '{"errors":[{"message":"Cannot query field \\"nmae\\" on type \\"User\\"."}]}',
      '{"errors":[{"message":"Cannot query field \\"emial\\" on type \\"User\\"."}]}',
    ],
    [
      'GraphQL: codes',
      '{"errors":[{"extensions":{"code":"UNAUTHENTICATED"}}]}',
      '{"errors":[{"extensions":{"code":"BAD_USER_INPUT"}}]}',
    ],
    ['a name that only ends like one of an id', '{"invalid":"country"}', '{"invalid":"email"}'],
    [
      'addresses of documentation',
      '{"type":"https://example.com/probs/out-of-credit"}',
      '{"type":"https://example.com/probs/out-of-stock"}',
    ],
    [
      'cut in the middle',
      '{"error":"country is missing in the addr…',
      '{"error":"card was stolen in th…',
    ],
    [
      'HTML: titles',
      '<html><title>502 Bad Gateway</title></html>',
      '<html><title>Access denied</title></html>',
    ],
  ])('%s', (_, one, other) => {
    expect(print(said(one))).not.toBe(print(said(other)));
  });
});

describe('whatever varies', () => {
  const hex = fc.stringMatching(/^[0-9a-f]{16,40}$/);
  const base62 = fc.stringMatching(/^[A-Za-z]{3}\d[A-Za-z]\d[A-Za-z0-9]{4,12}$/);
  const letters = fc.stringMatching(/^[a-z]{8,12}$/);
  const number = fc.integer({ min: 0, max: 10_000_000 }).map(String);
  const time = fc
    .date({ min: new Date(0), max: new Date('2100-01-01'), noInvalidDate: true })
    .map((at) => at.toISOString());
  const email = fc.stringMatching(/^[a-z][a-z0-9.]{1,12}@[a-z]{2,8}\.example$/);
  const id = fc.oneof(fc.uuid(), hex, base62, letters, number);
  // A receiver writes the ids of one kind in one way.
  const inText = fc.oneof(
    ...[fc.uuid(), hex, base62, number, time, email].map((kind) => fc.tuple(kind, kind)),
  );
  const amount = fc.integer({ min: 0, max: 99_999_999 }).map((cents) => (cents / 100).toFixed(2));
  const scenes = fc
    .tuple(inText, fc.tuple(id, id), fc.tuple(amount, amount), fc.tuple(time, time))
    .map(([texts, ids, amounts, times]) =>
      ([0, 1] as const).map((at) => ({
        inText: texts[at],
        id: ids[at],
        amount: amounts[at],
        time: times[at],
      })),
    );
  type Scene = { id: string; inText: string; amount: string; time: string };
  const bodies: ((scene: Scene) => string)[] = [
    ({ id, inText, amount }) =>
      JSON.stringify({ error: { code: 'E1001', message: `no order ${inText}` }, request_id: id }) +
      ` ${amount}`,
    ({ id, inText, amount, time }) =>
      `{"code":1001,"timestamp":"${time}","orderId":"${id}","amount":${amount},"at":"${inText}"}`,
    ({ inText }) => JSON.stringify({ errors: { customer_id: [`${inText} is not known`] } }),
    ({ id, amount }) => `[${amount},"country is missing",{"trace_id":"${id}"}]`,
    ({ inText }) => JSON.stringify(`card of ${inText} was stolen`),
  ];

  test('the same cause stays one group', () => {
    fc.assert(
      fc.property(fc.constantFrom(...bodies), scenes, (body, both) => {
        expect(new Set(both.map((one) => normalise(said(body(one))))).size).toBe(1);
      }),
    );
  });

  test('another cause is another group', () => {
    const words = fc.constantFrom(
      'is missing',
      'is not known',
      'must exist',
      'was stolen',
      'blank',
    );
    const name = fc.constantFrom('customer_id', 'orderId', 'token', 'signature', 'country');
    fc.assert(
      fc.property(name, words, words, (field, one, other) => {
        fc.pre(one !== other);
        for (const shape of [(text: string) => [text], (text: string) => text]) {
          const bodyOf = (text: string) => JSON.stringify({ errors: { [field]: shape(text) } });
          expect(print(said(bodyOf(one)))).not.toBe(print(said(bodyOf(other))));
        }
      }),
    );
  });
});

test('a normalised answer shows the words, and marks what was taken out', () => {
  const body =
    '{"error": {"message": "No such order: \'ord_8fJk2LmN3\'", "amount": 12.5, "request_id": "x"}}';
  expect(normalise(said(body))).toBe(
    `shop.example answered <n>: {"error":{"message":"no such order: 'ord_<id>'",` +
      '"amount":<n>,"request_id":<value>}}',
  );
});

test.each([
  ['brackets', '['.repeat(100_000)],
  ['braces and quotes', '{"'.repeat(50_000)],
  ['quotes', '"'.repeat(100_000)],
  ['backslashes', `{"a":"${'\\'.repeat(100_000)}`],
  ['one long word', `{"a":"${'a1'.repeat(50_000)}"}`],
  ['dates', `{"a":"${'1 jan 1'.repeat(50_000)}"}`],
  ['exponents', `{"a":"${'1e1.1'.repeat(50_000)}"}`],
  ['hexadecimal and colons', `{"a":"${'a:'.repeat(50_000)}"}`],
])('%s without end are no trouble', (_, reason) => {
  expect(print(reason)).toMatch(/^[0-9a-z]{11}$/);
});
