/** docs/reference/config.md says what the code does, and the examples of both pages load. */
import { describe, expect, test } from 'vitest';
import { readPage, tableUnder } from '../docs/pages.ts';
import { load, refusal } from './setup.ts';

const page = readPage('docs/reference/config.md');
const plain = (text = '') => text.replaceAll('`', '');

test('the keys of a route are those that are known', async () => {
  const said = tableUnder(page, 'Routes').map(([key]) => plain(key));
  const text = await refusal({ config: { routes: [{ unknown: 1 }] } });
  expect(text).toContain(`known are ${said.join(', ')};`);
});

test('the keys of a consumer are those that are known', async () => {
  const said = tableUnder(page, 'Consumers').map(([key]) => plain(key));
  const text = await refusal({ config: { consumers: [{ unknown: 1 }] } });
  expect(text).toContain(`known are ${said.join(', ')};`);
});

test('the options of the stores are those that are known', async () => {
  for (const [address = '', , , options = ''] of tableUnder(page, 'Stores')) {
    const place = plain(address).replace('DIR', './x').toLowerCase();
    const key = place.startsWith('s3:') ? 'bodies' : 'store';
    const text = await refusal({ config: { [key]: `${place}?unknown=1` } });
    expect(text).toContain(`known are ${plain(options)};`);
  }
});

describe.each(['docs/reference/config.md', 'docs/how-to/configure.md'])('%s', (file) => {
  const blocks = readPage(file).blocks.filter(({ marks }) => marks.includes('load'));

  test('has examples', () => {
    expect(blocks.length).toBeGreaterThan(1);
  });

  test.each(blocks.map((block) => [block.line, block] as const))(
    'the example in line %i loads without a warning',
    async (_, { text }) => {
      const env = { HOOK_SECRET: 'a-secret-of-the-hook' };
      const { warnings, config } = await load({ yaml: text, env });
      expect(warnings).toEqual([]);
      expect(config.serve.port).toBe(7667);
    },
  );
});

test('every policy that can be written as data has an example', async () => {
  const [, , , , policies] = page.blocks.filter(({ marks }) => marks.includes('load'));
  const text = await refusal({ config: { policies: { p: { unknown: 1 } } } });
  const known = (/known are ([\w, ]+)/.exec(text)?.[1] ?? '').split(', ');
  const makers = known.filter((name) => !['attempts', 'maxAge', 'jitter'].includes(name));
  expect(makers.length).toBe(7);
  for (const name of makers) expect(policies?.text).toContain(name);
});
