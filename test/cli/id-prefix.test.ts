/** Ids by their beginning: what is meant is found, and nothing else is ever touched. */
import { expect, onTestFinished, test } from 'vitest';
import type { Operator } from 'respool/operator';
import { wholeIds } from '../../src/cli/id-prefix.ts';
import { shortIds } from '../../src/cli/ui/table.ts';
import { setup, type Shell } from './setup.ts';

const ONE = '01a1e06c-024e-7719-9c3b-8ad06b36cc9c';
const TWO = '01a1e06c-0264-700f-9ed9-f4bcb5499415';
/** Made at the same moment as ONE, by the same process. */
const BESIDE = '01a1e06c-024e-7719-9c3b-8ad1ffff0000';

/** Messages of these ids, in a store of this kind. */
async function filled(
  ids: readonly string[],
  store: readonly string[] = [],
): Promise<Shell & { readonly states: () => Promise<Record<string, string>> }> {
  const shell = await setup();
  for (const id of ids) {
    const ran = await shell.cli(['enqueue', 'a', '--id', id, '--body', `of ${id}`, ...store]);
    expect(ran.code).toBe(0);
  }
  const states = async (): Promise<Record<string, string>> => {
    const { objects } = await shell.cli(['list', '--json', ...store]);
    const pairs = objects().map(({ id, status }) => [id, (status as { state: string }).state]);
    return Object.fromEntries(pairs) as Record<string, string>;
  };
  return { ...shell, states };
}

test.each([[[]], [['--store', 'file:./spool']]])(
  'every command on messages takes a beginning, in the store %j',
  async (store) => {
    const { cli, states } = await filled([ONE, TWO], store);
    expect((await cli(['show', '01a1e06c-024e', '--json', ...store])).objects()).toMatchObject([
      { id: ONE },
    ]);
    expect((await cli(['cat', '01a1e06c-0264', ...store])).stdout).toBe(`of ${TWO}`);
    const act = async (...words: string[]): Promise<string> =>
      (await cli([...words, '--yes', ...store])).stdout;
    expect(await act('hold', '01a1e06c-024')).toBe('held 1\n');
    expect(await states()).toEqual({ [ONE]: 'hold', [TWO]: 'incoming' });
    expect(await act('release', '01a1e06c-024')).toBe('released 1\n');
    expect(await act('policy', 'set', 'default', '01a1e06c-024')).toMatch(/ 1\n$/);
    expect(await act('bounce', '01a1e06c-026')).toMatch(/ 1\n$/);
    expect(await act('retry', '01a1e06c-026')).toMatch(/ 1\n$/);
    expect(await act('remove', '01a1e06c-024')).toMatch(/ 1\n$/);
    expect(await states()).toEqual({ [ONE]: 'archived', [TWO]: 'incoming' });
  },
);

test('a beginning that fits several is refused with them, before anything is done', async () => {
  const { cli, states } = await filled([ONE, TWO, 'own']);
  for (const words of [['show'], ['cat'], ['hold'], ['remove', '--yes']]) {
    const ran = await cli([...words, 'own', '01a1e06c']);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain(`"01a1e06c" is the beginning of several ids: ${ONE}, ${TWO}`);
    expect(ran.stdout).toBe('');
  }
  expect(await states()).toEqual({ [ONE]: 'incoming', [TWO]: 'incoming', own: 'incoming' });
});

test('one that is too short, or fits nothing, is unknown, and the rest goes on', async () => {
  const { cli } = await filled([ONE, TWO]);
  const short = await cli(['hold', '01a', TWO]);
  expect(short).toMatchObject({ code: 1, stdout: 'held 1, unknown 1\n' });
  expect(short.stderr).toContain('give 4 characters of it or more');
  const none = await cli(['show', 'ffff', '--json']);
  expect(none.code).toBe(1);
  expect(none.stderr).toContain('there is no message \\"ffff\\"');
});

test('an id that was given to a message is whole where messages are changed', async () => {
  const { cli, states } = await filled(['order-10']);
  const ran = await cli(['remove', 'order-1', '--yes']);
  expect(ran).toMatchObject({ code: 1, stdout: 'removed 0, unknown 1\n' });
  expect(ran.stderr).toContain('"order-10" is like that; to change it, give its whole id');
  expect(await states()).toEqual({ 'order-10': 'incoming' });
  expect((await cli(['show', 'order-1', '--json'])).objects()).toMatchObject([{ id: 'order-10' }]);
});

test('an id that is there wins over those that begin with it', async () => {
  const { cli } = await filled(['order-1', 'order-10', 'order-100']);
  expect((await cli(['show', 'order-1', '--json'])).objects()).toMatchObject([{ id: 'order-1' }]);
});

test('what a table shows of ids of one moment can be typed', async () => {
  const { cli, states } = await filled([ONE, BESIDE, TWO]);
  const { stdout } = await cli(['list'], { tty: ['stdout'], columns: 80, env: { NO_COLOR: '1' } });
  const shown = stdout.split('\n').flatMap((line) => /^01\S+/.exec(line) ?? []);
  expect(shown).toEqual(['01a1e06c-024e…cc9c', '01a1e06c-024e…0000', '01a1e06c-0264']);
  expect((await cli(['hold', shown[1] ?? ''])).stdout).toBe('held 1\n');
  expect((await cli(['show', '01a1e06c-024e...cc9c', '--json'])).objects()).toMatchObject([
    { id: ONE },
  ]);
  expect(await states()).toEqual({ [ONE]: 'incoming', [BESIDE]: 'hold', [TWO]: 'incoming' });
});

test('one whose end is looked for among too many ids is refused, since others may fit', async () => {
  const entries = [{ envelope: { id: ONE } }];
  const operator = {
    get: async () => undefined,
    page: async () => ({ entries, corrupt: [], next: 'more' }),
  } as unknown as Operator;
  const use = { operator, out: { note: () => undefined }, isActing: true };
  await expect(wholeIds(['01a1…0000'], use)).rejects.toMatchObject({ code: 'usage.invalid' });
});

test('through a service the same holds', async () => {
  const shell = await filled([ONE, TWO]);
  const service = shell.start(['serve', '--port', '0']);
  onTestFinished(async () => {
    service.signal('SIGTERM');
    await service.ended;
  });
  const [, url = ''] = await service.printed(/"url":"(http:[^"]+)"/);
  const { cli } = shell;
  expect((await cli(['hold', '01a1e06c-024', '--url', url])).stdout).toBe('held 1\n');
  const several = await cli(['show', '01a1e06c', '--url', url]);
  expect(several).toMatchObject({ code: 2, stdout: '' });
  expect(several.stderr).toContain(`${ONE}, ${TWO}`);
});

test('dead letters of the spool take a beginning as well', async () => {
  const { cli, states } = await filled([ONE, TWO]);
  await cli(['bounce', ONE, TWO, '--yes']);
  expect((await cli(['dlq', 'show', '01a1e06c-024', '--json'])).objects()).toMatchObject([
    { id: ONE },
  ]);
  expect((await cli(['dlq', 'remove', '01a1e06c-024'])).code).toBe(0);
  expect(await states()).toEqual({ [ONE]: 'archived', [TWO]: 'bounce' });
  expect((await cli(['dlq', 'restore', '01a1e06c-024'])).code).toBe(0);
  expect(await states()).toEqual({ [ONE]: 'hold', [TWO]: 'bounce' });
  expect((await cli(['dlq', 'remove', '01a1e06c'])).code).toBe(2);
});

test('short forms tell all ids of a table apart, and are no longer than they need', () => {
  expect(shortIds([ONE, TWO])).toEqual(['01a1e06c-024e', '01a1e06c-0264']);
  expect(shortIds([ONE, TWO, ONE])).toEqual(['01a1e06c-024e', '01a1e06c-0264', '01a1e06c-024e']);
  const alike = [ONE, `${ONE.slice(0, -6)}00cc9c`];
  expect(shortIds(alike)).toEqual(['01a1e06c-024e…6cc9c', '01a1e06c-024e…0cc9c']);
  expect(shortIds(['busy-bob', 'order-2026-00000000000000000017'])).toEqual([
    'busy-bob',
    'order-2026-0000…00000017',
  ]);
});
