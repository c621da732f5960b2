/** dlq list, show, export, count, groups and note — over the spool. */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { deadSpool } from './dlq-ground.ts';
import { setup } from './setup.ts';

// oxlint-disable-next-line no-control-regex -- they are exactly what must not be there.
const OBEYED = /[\u001b\u0007\u202e]/;

describe('dlq list', () => {
  test('shows what bounced and what is held, with cause, age and category', async () => {
    const { cli } = await deadSpool();
    const ran = await cli(['dlq', 'list']);
    expect(ran.code, ran.stderr).toBe(0);
    const [head, ...rows] = ran.stdout.trimEnd().split('\n');
    expect(head?.split(/ {2,}/)).toEqual([
      'id',
      'died',
      'place',
      'topic',
      'code',
      'reason',
      'deaths',
      'replays',
      'category',
    ]);
    expect(rows.map((row) => row.split(/ +/)[0])).toEqual(['dead-1', 'dead-2', 'dead-3', 'held-1']);
    expect(rows[0]).toMatch(/ bounce +mail\.send +smtp\.550 .*not-found$/);
  });

  test('--json prints every letter with stable keys', async () => {
    const { cli } = await deadSpool();
    const letters = (await cli(['dlq', 'list', '--json'])).objects();
    expect(letters.map(({ id, kind, place, category }) => [id, kind, place, category])).toEqual([
      ['dead-1', 'dead', 'bounce', 'not-found'],
      ['dead-2', 'dead', 'bounce', 'not-found'],
      ['dead-3', 'dead', 'bounce', 'timeout'],
      ['held-1', 'parked', 'hold', 'other'],
    ]);
    expect(Object.keys(letters[0] ?? {})).toEqual(Object.keys(letters[3] ?? {}));
  });

  test.each([
    [['--kind', 'parked'], 'held-1'],
    [['--kind', 'archived'], 'gone-1'],
    [['--kind', 'dead,archived'], 'dead-1 dead-2 dead-3 gone-1'],
    [['--topic', 'orders.*'], 'dead-3 held-1'],
    [['--destination', 'erp'], 'dead-3'],
    [['--code', 'smtp.550'], 'dead-1 dead-2'],
    [['--category', 'timeout'], 'dead-3'],
    [['--text', 'no such user a'], 'dead-1'],
    [['--header', 'tenant=b'], 'dead-2'],
    [['--header', 'tenant'], 'dead-1 dead-2'],
    [['--older-than', '1h'], ''],
    [['--since', '1h'], 'dead-1 dead-2 dead-3 held-1'],
    [['--limit', '2'], 'dead-1 dead-2'],
    [['--deaths-above', '100'], ''],
  ])('%j chooses %s', async (options, expected) => {
    const { cli } = await deadSpool();
    const ran = await cli(['dlq', 'list', '--json', ...options]);
    expect(ran.code, ran.stderr).toBe(0);
    const ids = ran.objects().map(({ id }) => id);
    expect(ids.join(' ')).toBe(expected);
  });

  test('--group chooses by what dlq groups shows', async () => {
    const { cli } = await deadSpool();
    const [first] = (await cli(['dlq', 'groups', '--json'])).objects();
    const ran = await cli(['dlq', 'list', '--json', '--group', String(first?.['group'])]);
    expect(ran.objects().map(({ id }) => id)).toEqual(['dead-1', 'dead-2']);
  });

  test('says when nothing fits, and when there is more', async () => {
    const { cli } = await deadSpool();
    expect(await cli(['dlq', 'list', '--text', 'nowhere'])).toMatchObject({
      code: 0,
      stdout: '',
      stderr: 'no letters match\n',
    });
    const some = await cli(['dlq', 'list', '--limit', '3']);
    expect(some.stderr).toBe('the first 3; more with --limit, all with --json\n');
  });

  test.each([
    [['--kind', 'held'], 'did you mean "parked"'],
    [['--category', 'nonsense'], 'allowed is network'],
    [['--deaths-above', 'x'], '--deaths-above'],
    [['--destination', ''], '--destination: it is empty'],
    [['--older-than', 'soon'], '--older-than'],
    [['--broker', 'http://x'], '--broker: allowed is amqp://'],
    [['--queue', ''], 'as a pattern of queues'],
    [['--queue', 'x', '--kind', 'dead'], '--kind is for the spool'],
    [['--queue', 'x'], 'name the broker'],
    [['--url', 'amqp://a', '--broker', 'amqp://b'], 'two brokers'],
  ])('%j is wrong usage', async (options, text) => {
    const { cli } = await deadSpool();
    const ran = await cli(['dlq', 'list', ...options]);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain(text);
  });

  test('what is odd in the configuration is said once', async () => {
    const { cli } = await deadSpool();
    const { stderr } = await cli(['dlq', 'list'], { env: { RESPOOL_TOKEN: 'short' } });
    expect(stderr.match(/it can be guessed/g)).toHaveLength(1);
  });

  test('makes no store where there is none', async () => {
    const { cli } = await setup();
    const ran = await cli(['dlq', 'list']);
    expect(ran.code).toBe(3);
    expect(ran.stderr).toContain('there is no Respool store');
  });

  test('nothing that a message says reaches the terminal as a command', async () => {
    const { cli, spool } = await deadSpool();
    const own = spool();
    await own.enqueue({ id: 'evil', topic: 'a', body: '\u001b[2Jx', headers: { h: 'a\u202eb' } });
    await own.operator({ by: 'ops' }).hold(['evil'], { reason: 'look \u001b]0;x\u0007 here' });
    await own.stop();
    for (const words of [['list'], ['show', 'evil'], ['groups'], ['count', '--by', 'code']]) {
      const { stdout, stderr } = await cli(['dlq', ...words]);
      expect(stdout + stderr).not.toMatch(OBEYED);
    }
    const exported = await cli(['dlq', 'export', '--text', 'evil']);
    expect(exported.stdout).not.toMatch(OBEYED);
  });
});

describe('dlq show', () => {
  test('shows a letter in full, with headers and body', async () => {
    const { cli } = await deadSpool();
    const ran = await cli(['dlq', 'show', 'dead-1']);
    expect(ran.code, ran.stderr).toBe(0);
    expect(ran.stdout).toMatch(/^code +smtp\.550$/m);
    expect(ran.stdout).toMatch(/^goes to +topic mail\.send$/m);
    expect(ran.stdout).toMatch(/^tenant +a$/m);
    expect(ran.stdout).toContain('{\n  "n": 1\n}');
  });

  test('--json has the body and the note on its group', async () => {
    const { cli } = await deadSpool();
    const [letter] = (await cli(['dlq', 'show', 'dead-1', '--json'])).objects();
    expect(letter).toMatchObject({ id: 'dead-1', json: { n: 1 }, category: 'not-found' });
    const group = String(letter?.['group']);
    await cli(['dlq', 'note', group, 'vendor is told']);
    const [noted] = (await cli(['dlq', 'show', 'dead-1', '--json'])).objects();
    expect(noted).toMatchObject({ note: { text: 'vendor is told', by: 'tester@cli' } });
    expect((await cli(['dlq', 'show', 'dead-1'])).stdout).toMatch(/^note +vendor is told$/m);
  });

  test('finds what is archived too, and says what is not there', async () => {
    const { cli } = await deadSpool();
    expect((await cli(['dlq', 'show', 'gone-1'])).code).toBe(0);
    const ran = await cli(['dlq', 'show', 'nobody']);
    expect(ran.code).toBe(1);
    expect(ran.stderr).toContain('there is no letter "nobody" in spool');
  });
});

describe('dlq export', () => {
  test('prints a line of JSON for every letter, with its body', async () => {
    const { cli } = await deadSpool();
    const lines = (await cli(['dlq', 'export'])).objects();
    expect(lines.map(({ id, json, text }) => [id, json ?? text])).toEqual([
      ['dead-1', { n: 1 }],
      ['dead-2', { n: 2 }],
      ['dead-3', 'three'],
      ['held-1', 'four'],
    ]);
  });

  test('--output writes the same into a file, and never over one', async () => {
    const { cli, folder } = await deadSpool();
    const printed = await cli(['dlq', 'export']);
    const ran = await cli(['dlq', 'export', '--output', 'dead.jsonl']);
    expect(ran).toMatchObject({ code: 0, stdout: 'exported 4 to dead.jsonl\n' });
    expect(await readFile(path.join(folder, 'dead.jsonl'), 'utf8')).toBe(printed.stdout);
    const again = await cli(['dlq', 'export', '--output', 'dead.jsonl', '--limit', '1']);
    expect(again.code).toBe(2);
    expect(again.stderr).toContain('it is there already');
    const some = await cli(['dlq', 'export', '--output', 'one', '--limit', '1', '--json']);
    expect(some.objects()).toEqual([{ exported: 1, file: 'one' }]);
  });
});

describe('dlq count', () => {
  test.each([
    ['place', { bounce: 3, hold: 1 }],
    ['code', { 'smtp.550': 2, timeout: 1, 'operator.hold': 1 }],
    ['category', { 'not-found': 2, timeout: 1, other: 1 }],
    ['topic', { 'mail.send': 2, 'orders.created': 2 }],
  ])('--by %s', async (by, expected) => {
    const { cli } = await deadSpool();
    const [counts] = (await cli(['dlq', 'count', '--by', by, '--json'])).objects();
    const rows = counts?.['rows'] as { key: string; count: number }[];
    expect(Object.fromEntries(rows.map(({ key, count }) => [key, count]))).toEqual(expected);
    expect(counts).toMatchObject({ by, total: 4, others: 0 });
  });

  test('by place, unless told otherwise, as a table with its total', async () => {
    const { cli } = await deadSpool();
    const { stdout } = await cli(['dlq', 'count']);
    expect(stdout.trimEnd().split('\n')).toEqual([
      'place   letters',
      'bounce        3',
      'hold          1',
      'total         4',
    ]);
  });
});

describe('dlq groups', () => {
  test('shows the largest first, with category, count and note', async () => {
    const { cli } = await deadSpool();
    const groups = (await cli(['dlq', 'groups', '--json'])).objects();
    expect(groups).toHaveLength(3);
    expect(groups[0]).toMatchObject({
      code: 'smtp.550',
      at: 'mail.send',
      category: 'not-found',
      count: 2,
      samples: ['dead-1', 'dead-2'],
      replays: 0,
      note: null,
    });
    const sample = String(groups[0]?.['reasonSample']);
    expect((await cli(['dlq', 'groups'])).stdout).toContain(sample);
    const group = String(groups[0]?.['group']);
    await cli(['dlq', 'note', group, 'the list is old']);
    const { stdout } = await cli(['dlq', 'groups', '--category', 'not-found']);
    expect(stdout.split('\n')[1]).toMatch(new RegExp(`^${group} +2 +not-found .*the list is old$`));
  });

  test('--limit and --samples', async () => {
    const { cli } = await deadSpool();
    const ran = await cli(['dlq', 'groups', '--json', '--limit', '1', '--samples', '1']);
    expect(ran.objects()).toMatchObject([{ samples: ['dead-1'] }]);
    const { stderr } = await cli(['dlq', 'groups', '--limit', '1']);
    expect(stderr).toContain('and 2 letters of smaller groups');
  });

  test('rules of the configuration decide about categories', async () => {
    const { cli, folder } = await deadSpool();
    const categories = [{ category: 'conflict', code: 'operator.*', topic: 'orders.#' }];
    const config = JSON.stringify({ deadLetters: { categories } });
    await writeFile(path.join(folder, 'respool.config.json'), config);
    const ran = await cli(['dlq', 'list', '--category', 'conflict', '--json']);
    expect(
      ran.objects().map(({ id }) => id),
      ran.stderr,
    ).toEqual(['held-1']);
  });
});

describe('dlq note', () => {
  const GROUP = '0123456789a';

  test('is written, shown and forgotten, and both changes are audited', async () => {
    const { cli, audit } = await deadSpool();
    expect((await cli(['dlq', 'note', GROUP])).stdout).toBe('there is no note on this group\n');
    expect((await cli(['dlq', 'note', GROUP, 'known'])).stdout).toBe('noted\n');
    const shown = await cli(['dlq', 'note', GROUP]);
    expect(shown.stdout).toBe('known\n');
    expect(shown.stderr).toContain('by tester@cli');
    const [object] = (await cli(['dlq', 'note', GROUP, '--json'])).objects();
    expect(object).toMatchObject({ group: GROUP, note: { text: 'known' } });
    expect((await cli(['dlq', 'note', GROUP, '--forget'])).stdout).toBe('forgotten\n');
    const again = await cli(['dlq', 'note', GROUP, '--forget', '--json']);
    expect(again.objects()).toEqual([{ group: GROUP, forgotten: false }]);
    expect(await audit()).toMatchObject([
      { action: 'dlq.note', details: { group: GROUP, text: 'known' } },
      { action: 'dlq.forgetNote', details: { group: GROUP } },
    ]);
  });

  test('refuses what is no group, and a text beside --forget', async () => {
    const { cli } = await deadSpool();
    expect((await cli(['dlq', 'note', 'x', 'y'])).code).toBe(2);
    expect((await cli(['dlq', 'note', GROUP, 'y', '--forget'])).code).toBe(2);
  });
});
