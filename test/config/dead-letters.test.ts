/** What a configuration says of dead letters: every key has its effect, and bad ones are refused. */
import { describe, expect, test } from 'vitest';
import { describeConfig } from '../../src/config/describe.ts';
import { readPage, tableUnder } from '../docs/pages.ts';
import { load, refusal } from './setup.ts';

const when = { category: 'network' };

/** The rule as it is understood. */
async function ruleOf(rule: object, more: object = {}) {
  const { config } = await load({
    config: { deadLetters: { ...more, rules: [{ name: 'r', when, ...rule }] } },
  });
  return config.deadLetters.rules[0];
}

test('a configuration that says nothing has no rules, and parks after three replays', async () => {
  const { config } = await load({ config: {} });
  expect(config.deadLetters).toEqual({ categories: [], rules: [], replaysMax: 3 });
});

test('a rule that says only when has the defaults of the documentation', async () => {
  expect(await ruleOf({})).toEqual({
    name: 'r',
    when,
    every: '5m',
    rate: 10,
    times: 3,
    max: 1_000,
    canary: 1,
  });
});

test('a rule keeps what it says', async () => {
  const said = {
    when: { group: 'g', code: 'c', topic: 'a.*', queue: 'dlq.*', olderThan: '1m' },
    healthy: { http: 'https://example.com/health' },
    every: '1s',
    rate: 1,
    times: 7,
    max: 5,
    canary: 0,
  };
  expect(await ruleOf(said)).toEqual({ name: 'r', ...said });
  expect(await ruleOf({ when: { queue: 'q' }, healthy: 'consumers' })).toMatchObject({
    healthy: 'consumers',
  });
});

test('a rule that says no times takes those of all replays', async () => {
  expect(await ruleOf({}, { replaysMax: 9 })).toMatchObject({ times: 9 });
});

test('categories, the limit of replays and the parked queue are taken', async () => {
  const categories = [{ category: 'network', code: 'erp.*' }];
  const { config } = await load({
    config: { deadLetters: { categories, parkedQueue: 'parked' } },
    env: { RESPOOL_DEAD_LETTERS_REPLAYS_MAX: '5' },
  });
  expect(config.deadLetters).toEqual({
    categories,
    rules: [],
    replaysMax: 5,
    parkedQueue: 'parked',
  });
});

test('numbers of a rule may come from the environment', async () => {
  const { config } = await load({
    yaml: 'deadLetters: { rules: [{ name: r, when: { code: c }, rate: "${RATE}" }] }',
    env: { RATE: '50' },
  });
  expect(config.deadLetters.rules[0]?.rate).toBe(50);
});

test('what holds is shown with who said it', async () => {
  const loaded = await load({
    config: {
      deadLetters: {
        rules: [{ name: 'r', when, healthy: { http: 'http://a:hidden-word@h/' }, rate: 3 }],
      },
    },
  });
  const lines = describeConfig(loaded).filter(({ key }) => key.startsWith('deadLetters'));
  const shown = Object.fromEntries(lines.map(({ key, value, from }) => [key, [value, from]]));
  expect(shown['deadLetters.rules[0].rate']?.[0]).toBe(3);
  expect(shown['deadLetters.rules[0].rate']?.[1]).toContain('file');
  expect(shown['deadLetters.rules[0].every']).toEqual(['5m', 'default']);
  expect(shown['deadLetters.rules[0].when.category']?.[0]).toBe('network');
  expect(shown['deadLetters.replaysMax']).toEqual([3, 'default']);
  expect(JSON.stringify(lines)).not.toContain('hidden-word');
});

describe('a bad value is refused with its key, and with what to do', () => {
  const cases: [object, string[]][] = [
    [{ rule: [] }, ['"deadLetters.rule"', 'did you mean "rules"']],
    [{ replaysMax: 0 }, ['"deadLetters.replaysMax"', '1 to 1000']],
    [{ parkedQueue: '' }, ['"deadLetters.parkedQueue"', 'the name of a queue']],
    [{ parkedQueue: 'amq.x' }, ['"deadLetters.parkedQueue"']],
    [{ categories: {} }, ['"deadLetters.categories"', 'a list']],
    [{ categories: [{ category: 'odd', code: 'x' }] }, ['"deadLetters.categories[0].category"']],
    [{ rules: {} }, ['"deadLetters.rules"', 'a list of at most 100 rules']],
    [{ rules: ['x'] }, ['"deadLetters.rules[0]"', '{ name, when, … }']],
  ];
  test.each(cases)('%j', async (deadLetters, words) => {
    const text = await refusal({ config: { deadLetters } });
    for (const word of [...words, 'respool.config.json']) expect(text).toContain(word);
  });

  const rules: [object, string[]][] = [
    [{ when, wehn: 1 }, ['rules[0].wehn"', 'did you mean "when"']],
    [{ name: 'a b', when }, ['rules[0].name"', 'letters, digits']],
    [{ name: undefined, when }, ['rules[0].name"']],
    [{}, ['rules[0].when"', 'at least one of group, category']],
    [{ when: {} }, ['rules[0].when"', "{ topic: '#' } means every letter"]],
    [{ when: { quue: 'x' } }, ['rules[0].when.quue"', 'did you mean "queue"']],
    [{ when: { group: '' } }, ['rules[0].when.group"']],
    [{ when: { category: 'netwrok' } }, ['"netwrok"', 'rules[0].when.category"', 'network']],
    [{ when: { code: 5 } }, ['rules[0].when.code"']],
    [{ when: { topic: 'a..b' } }, ['rules[0].when.topic"', 'dot-separated words']],
    [{ when: { queue: '' } }, ['rules[0].when.queue"', '1 to 256 characters']],
    [{ when: { olderThan: 'x' } }, ['rules[0].when.olderThan"']],
    [{ when, healthy: 'maybe' }, ['rules[0].healthy"', "'consumers'", '{ http: url }']],
    [{ when, healthy: 'consumers' }, ['rules[0].healthy"', 'about the spool', 'when.queue']],
    [{ when, healthy: { htp: 'x' } }, ['rules[0].healthy.htp"', '"http"']],
    [{ when, healthy: { http: 'ftp://x' } }, ['rules[0].healthy.http"', 'https://host/health']],
    [{ when, every: '1ms' }, ['rules[0].every"', '1s to 1d']],
    [{ when, rate: 0 }, ['rules[0].rate"', '1 to 100000']],
    [{ when, times: 0 }, ['rules[0].times"', '1 to 1000']],
    [{ when, max: 0 }, ['rules[0].max"', '1 to 5000']],
    [{ when, canary: -1 }, ['rules[0].canary"', '0 to 1000']],
  ];
  test.each(rules)('a rule %j', async (rule, words) => {
    const text = await refusal({ config: { deadLetters: { rules: [{ name: 'r', ...rule }] } } });
    for (const word of words) expect(text).toContain(word);
  });

  test('two rules of one name', async () => {
    const rule = { name: 'r', when };
    const text = await refusal({ config: { deadLetters: { rules: [rule, rule] } } });
    expect(text).toContain('"deadLetters.rules[1].name": deadLetters.rules[0] has it already');
  });
});

test('the keys of a rule are those of the documentation', async () => {
  const page = readPage('docs/reference/config.md');
  const said = tableUnder(page, 'Dead letters').map(([key = '']) => key.replaceAll('`', ''));
  const text = await refusal({ config: { deadLetters: { rules: [{ unknown: 1 }] } } });
  expect(text).toContain(`known are ${said.join(', ')};`);
});
