/** What a configuration says of alerts: every key has its effect, and bad ones are refused. */
/* oxlint-disable unicorn/no-thenable -- The key of a configuration is called so; it holds data. */
import { expect, test } from 'vitest';
import { describeConfig } from '../../src/config/describe.ts';
import { patternsOverlap } from '../../src/core/topic.ts';
import { load, refusal } from './setup.ts';

const to = { ops: { http: { url: 'https://example.com/hook' } }, here: { log: 'warn' } };
const RULE = { name: 'r', when: 'disk < 10 %' };

async function alertsOf(alerts: object, more: object = {}) {
  const { config } = await load({ config: { alerts, ...more } });
  return config.alerts;
}

test('a configuration that says nothing has no alerts', async () => {
  expect(await alertsOf({})).toEqual({ every: '15s', to: {}, rules: [] });
});

test('a rule that names nobody tells everybody, and does nothing besides', async () => {
  const { rules } = await alertsOf({ to, rules: [RULE] });
  expect(rules).toMatchObject([
    { name: 'r', to: ['ops', 'here'], actions: [], when: { unit: 'percent', value: 10 } },
  ]);
});

test('rules keep what they say', async () => {
  const {
    every,
    to: receivers,
    rules,
  } = await alertsOf(
    {
      every: '5s',
      to: { ...to, page: { exec: ['page.sh', '--now'] } },
      rules: [
        { ...RULE, to: 'page', then: { pause: 'mail.#' } },
        {
          name: 'R.2_x-y',
          when: 'bounce rate of mail.send > 5 % for 5m',
          to: ['here', 'ops', 'here'],
          then: [{ pause: 'mail.*', until: 'operator' }, { hold: 'mail.a' }, { replay: 'again' }],
        },
      ],
    },
    {
      routes: [{ topic: 'mail.#', deliver: { exec: ['true'] } }],
      deadLetters: { rules: [{ name: 'again', when: { category: 'network' } }] },
    },
  );
  expect(every).toBe('5s');
  expect(Object.entries(receivers).map(([name, { kind, level }]) => [name, kind, level])).toEqual([
    ['ops', 'http', undefined],
    ['here', 'log', 'warn'],
    ['page', 'exec', undefined],
  ]);
  expect(rules[0]).toMatchObject({
    to: ['page'],
    actions: [{ kind: 'pause', topic: 'mail.#', until: 'resolved' }],
  });
  expect(rules[1]).toMatchObject({
    to: ['here', 'ops'],
    actions: [
      { kind: 'pause', topic: 'mail.*', until: 'operator' },
      { kind: 'hold', topic: 'mail.a' },
      { kind: 'replay', rule: 'again' },
    ],
  });
});

const route = { routes: [{ topic: 'mail.#', deliver: { exec: ['true'] } }] };

test.each<[object, object, RegExp]>([
  [{ to: [] }, {}, /as "alerts.to": allowed is receivers by name/],
  [{ to: { 'a b': { log: 'warn' } } }, {}, /cannot use "a b" as "alerts.to": .* 1 to 64 letters/],
  [{ to: { a: {} } }, {}, /as "alerts.to.a": allowed is \{ http/],
  [{ to: { a: { log: 'loud' } } }, {}, /"loud" as "alerts.to.a.log": allowed is error \| warn/],
  [{ to: { a: { mail: 'x' } } }, {}, /no key "alerts.to.a.mail".*known are http, exec, log/],
  [{ to: { a: { http: { url: 'ftp://x' } } } }, {}, /as "alerts.to.a.http.url"/],
  [{ to: { a: { log: 'warn', exec: ['a'] } } }, {}, /as "alerts.to.a": allowed is/],
  [
    { rules: [RULE] },
    {},
    /"alerts.rules\[0\].to": there are no receivers; name some as "alerts.to"/,
  ],
  [{ to, rules: {} }, {}, /as "alerts.rules": allowed is a list of at most 200/],
  [{ to, rules: [7] }, {}, /cannot use 7 as "alerts.rules\[0\]"/],
  [{ to, rules: [{ ...RULE, name: 'a b' }] }, {}, /"alerts.rules\[0\].name": .* 1 to 64 letters/],
  [{ to, rules: [RULE, RULE] }, {}, /rules\[1\].name": alerts.rules\[0\] has it already/],
  [
    { to, rules: [{ ...RULE, wehn: 1 }] },
    {},
    /no key "alerts.rules\[0\].wehn" \(did you mean "when"/,
  ],
  [
    { to, rules: [{ ...RULE, when: 'disk < 10' }] },
    {},
    /"alerts.rules\[0\].when": cannot read the condition "disk < 10": at character 8, "10"/,
  ],
  [{ to, rules: [{ ...RULE, to: 'opps' }] }, {}, /no such receiver.*"ops".*known are ops, here/],
  [{ to, rules: [{ ...RULE, to: [] }] }, {}, /as "alerts.rules\[0\].to": allowed is the name/],
  [{ to, rules: [{ ...RULE, to: 7 }] }, {}, /cannot use 7 as "alerts.rules\[0\].to"/],
  [{ to, rules: [{ ...RULE, then: {} }] }, {}, /as "alerts.rules\[0\].then": allowed is \{ pause/],
  [{ to, rules: [{ ...RULE, then: { pause: '#' } }] }, {}, /notifications have topics that fit it/],
  [{ to, rules: [{ ...RULE, then: { hold: 'a..b' } }] }, {}, /then.hold": .* dot-separated words/],
  [{ to, rules: [{ ...RULE, then: { pause: 'sms.#' } }] }, route, /no route takes any such topic/],
  [{ to, rules: [{ ...RULE, then: { hold: 'a', until: 'x' } }] }, {}, /only a pause ends/],
  [{ to, rules: [{ ...RULE, then: { pause: 'a', until: 'x' } }] }, {}, /resolved \| operator/],
  [{ to, rules: [{ ...RULE, then: { replay: 'x' } }] }, {}, /no such rule in "deadLetters.rules"/],
  [{ to, rules: [{ ...RULE, when: 'count held of sms.* > 0' }] }, route, /no route takes any such/],
  [{ every: '10ms' }, {}, /"alerts.every": allowed is 1s to 1d/],
])('%j is refused, with what is allowed', async (alerts, more, said) => {
  expect(await refusal({ config: { alerts, ...more } })).toMatch(said);
});

test('a condition about a consumer names one of the configuration', async () => {
  const consumers = [{ url: 'amqp://x', queue: 'orders', deliver: { exec: ['true'] } }];
  const rules = (queue: string) => [{ ...RULE, when: `consumer of "${queue}" down` }];
  await alertsOf({ to, rules: rules('orders') }, { consumers });
  const said = await refusal({ config: { alerts: { to, rules: rules('other') }, consumers } });
  expect(said).toMatch(/no such consumer of a queue; known are orders/);
});

test('alerts are shown without secrets', async () => {
  const loaded = await load({
    config: {
      alerts: {
        to: {
          ops: {
            http: {
              url: 'https://example.com/T0123456789abcdefXYZ',
              secret: 'hush-hush-hush-hush',
            },
          },
          here: { log: 'info' },
        },
        rules: [{ ...RULE, then: { pause: 'a.#' } }],
      },
    },
  });
  const lines = describeConfig(loaded).filter(({ key }) => key.startsWith('alerts.'));
  const text = JSON.stringify(lines);
  expect(text).not.toContain('hush');
  expect(text).not.toContain('T0123456789abcdefXYZ');
  expect(lines).toMatchObject([
    { key: 'alerts.every', value: '15s' },
    { key: 'alerts.to.ops', value: { kind: 'http' } },
    { key: 'alerts.to.here', value: { log: 'info' } },
    { key: 'alerts.rules[0].name', value: 'r' },
    { key: 'alerts.rules[0].when', value: 'disk < 10 %' },
    { key: 'alerts.rules[0].to[0]', value: 'ops' },
    { key: 'alerts.rules[0].to[1]', value: 'here' },
    { key: 'alerts.rules[0].then[0].pause', value: 'a.#' },
    { key: 'alerts.rules[0].then[0].until', value: 'resolved' },
  ]);
});

test.each([
  ['a.b', 'a.b', true],
  ['a.*', '*.b', true],
  ['a.#', '#.b', true],
  ['#', 'a.b.c', true],
  ['a.#.c', 'a.c', true],
  ['a.*', 'a', false],
  ['a.#', 'b.#', false],
  ['a.b', 'a.c', false],
  ['*.*', 'a.b.c', false],
])('%s and %s can fit one topic: %s', (one, other, meets) => {
  expect(patternsOverlap(one, other)).toBe(meets);
  expect(patternsOverlap(other, one)).toBe(meets);
});
