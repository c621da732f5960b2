/** dlq remove, purge and restore — over the spool. */
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { deadSpool } from './dlq-ground.ts';
import { person } from './steering.ts';

const TTY = ['stdin', 'stderr'] as const;

describe('dlq remove', () => {
  test('by ids is soft and asks nothing; restore puts it on hold', async () => {
    const { cli, states, audit } = await deadSpool();
    const ran = await cli(['dlq', 'remove', 'dead-1', 'held-1', '--reason', 'not wanted']);
    expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'removed 2\n' });
    expect(await states()).toMatchObject({ 'dead-1': 'archived', 'held-1': 'archived' });
    const [first] = await audit();
    expect(first).toMatchObject({
      action: 'dlq.remove',
      details: {
        places: [{ kind: 'spool' }],
        ids: ['dead-1', 'held-1'],
        count: 2,
        hard: false,
        reason: 'not wanted',
      },
    });
    const back = await cli(['dlq', 'restore', 'dead-1', 'held-1']);
    expect(back, back.stderr).toMatchObject({ code: 0, stdout: 'restored 2\n' });
    expect(await states()).toMatchObject({ 'dead-1': 'hold', 'held-1': 'hold' });
  });

  test('reads ids from stdin, plain and as lines of JSON', async () => {
    const { cli, states } = await deadSpool();
    const stdin = 'dead-1\n\n{"id":"dead-2","more":1}\n';
    const ran = await cli(['dlq', 'remove', '-'], { stdin });
    expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'removed 2\n' });
    expect(await states()).toMatchObject({ 'dead-2': 'archived', 'dead-3': 'bounce' });
    const wrong = await cli(['dlq', 'remove', '-'], { stdin: '{"x":1}\n' });
    expect(wrong.code).toBe(2);
  });

  test('many ids are on record in several lines, so that a service takes them', async () => {
    const { cli, start, states, audit } = await deadSpool();
    const service = start(['serve', '--json', '--port', '0']);
    const [, address = ''] = await service.printed(/"url":"(http:[^"]+)"/);
    const nobody = Array.from({ length: 5_000 }, (_, at) => `${at}`.padStart(240, 'x'));
    const stdin = ['dead-1', ...nobody].join('\n');
    const ran = await cli(['dlq', 'remove', '-', '--json', '--url', address], { stdin });
    service.signal('SIGTERM');
    await service.ended;
    expect(ran.objects(), ran.stderr).toMatchObject([{ removed: 1, unknown: 5_000 }]);
    expect(await states()).toMatchObject({ 'dead-1': 'archived' });
    const lines = (await audit()).filter(({ action }) => action === 'dlq.remove');
    const details = lines.map((line) => line['details'] as { ids: string[]; part: number });
    expect(details.map(({ part }) => part)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(details.flatMap(({ ids }) => ids)).toEqual(['dead-1', ...nobody]);
  });

  test('an id that is not there is told, and the rest is done', async () => {
    const { cli, states } = await deadSpool();
    const ran = await cli(['dlq', 'remove', 'dead-1', 'nobody', '--json']);
    expect(ran.code).toBe(1);
    expect(ran.objects()).toMatchObject([{ action: 'remove', count: 1, removed: 1, unknown: 1 }]);
    expect(await states()).toMatchObject({ 'dead-1': 'archived' });
  });

  test('by a filter counts and asks; no is no', async () => {
    const { cli, states } = await deadSpool();
    const words = ['dlq', 'remove', '--code', 'smtp.550'];
    const no = person(false);
    expect((await cli(words, no.options)).code).toBe(4);
    expect(no.questions).toEqual(['remove 2 letters of spool?']);
    expect((await cli(words)).code).toBe(4);
    expect(await states()).toMatchObject({ 'dead-1': 'bounce', 'dead-2': 'bounce' });
    const dry = await cli([...words, '--dry-run']);
    expect(dry).toMatchObject({ code: 0, stdout: 'would remove 2 letters of spool\n' });
    const dryJson = await cli([...words, '--dry-run', '--json']);
    expect(dryJson.objects()).toEqual([{ action: 'remove', count: 2, dryRun: true }]);
    const yes = await cli([...words, '--yes', '--limit', '1']);
    expect(yes, yes.stderr).toMatchObject({ code: 0, stdout: 'removed 1\n' });
    expect(await states()).toMatchObject({ 'dead-1': 'archived', 'dead-2': 'bounce' });
  });

  test('by a category removes those of it alone', async () => {
    const { cli, states } = await deadSpool();
    const ran = await cli(['dlq', 'remove', '--category', 'timeout', '--yes']);
    expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'removed 1\n' });
    expect(await states()).toMatchObject({ 'dead-3': 'archived', 'dead-1': 'bounce' });
  });

  test('--hard asks in plain words, and then nothing is left', async () => {
    const { cli, states } = await deadSpool();
    const yes = person(true);
    const ran = await cli(['dlq', 'remove', 'dead-1', '--hard'], yes.options);
    expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'removed for good 1\n' });
    expect(yes.questions).toEqual(['remove for good, with the bodies? nothing brings them back']);
    expect(await states()).not.toHaveProperty('dead-1');
    const restored = await cli(['dlq', 'restore', 'dead-1']);
    expect(restored.code).toBe(1);
    expect(restored.stderr).toContain('there is no letter "dead-1" in the archive');
  });

  test('needs ids or a filter, and not both', async () => {
    const { cli } = await deadSpool();
    const none = await cli(['dlq', 'remove']);
    expect(none.code).toBe(2);
    expect(none.stderr).toContain('respool dlq purge');
    expect((await cli(['dlq', 'remove', 'dead-1', '--code', 'x'])).code).toBe(2);
  });

  test('nothing that fits is no failure', async () => {
    const { cli, audit } = await deadSpool();
    const ran = await cli(['dlq', 'remove', '--text', 'nowhere', '--yes']);
    expect(ran).toMatchObject({ code: 0, stdout: 'no letters match; nothing to do\n' });
    expect(await audit()).toEqual([]);
  });

  test('what is archived can only be removed for good', async () => {
    const { cli, states } = await deadSpool();
    for (const words of [
      ['remove', 'gone-1'],
      ['purge', '--count', '1'],
    ]) {
      const ran = await cli(['dlq', ...words, '--kind', 'archived']);
      expect(ran.code).toBe(2);
      expect(ran.stderr).toContain('add --hard');
    }
    const ran = await cli(['dlq', 'purge', '--kind', 'archived', '--hard', '--count', '1']);
    expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'removed for good 1\n' });
    expect(await states()).not.toHaveProperty('gone-1');
  });
});

describe('dlq purge', () => {
  test('wants the number typed', async () => {
    const { cli, states } = await deadSpool();
    const before = await states();
    const wrong = await cli(['dlq', 'purge'], { tty: TTY, stdin: '3\n' });
    expect(wrong.code).toBe(4);
    expect(wrong.stderr).toContain('type 4 to remove 4 letters of spool: ');
    expect(wrong.stderr).toContain('another number was typed; nothing was done');
    expect((await cli(['dlq', 'purge'], { tty: TTY, stdin: '' })).code).toBe(4);
    expect((await cli(['dlq', 'purge'], { tty: TTY, stdin: 'yes\n' })).code).toBe(4);
    expect(await states()).toEqual(before);
    const ran = await cli(['dlq', 'purge'], { tty: TTY, stdin: Readable.from([' 4 \n']) });
    expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'removed 4\n' });
    expect(await states()).toMatchObject({ 'dead-1': 'archived', 'waits-1': 'incoming' });
  });

  test('in a script --count must be the number of what fits', async () => {
    const { cli, states, audit } = await deadSpool();
    const before = await states();
    const words = ['dlq', 'purge', '--code', 'smtp.550'];
    const asked = await cli(words);
    expect(asked.code).toBe(4);
    expect(asked.stderr).toContain('add --count 2 to do it');
    const wrong = await cli([...words, '--count', '3']);
    expect(wrong.code).toBe(4);
    expect(wrong.stderr).toContain('--count says 3, and there are 2; nothing was done');
    expect((await cli([...words, '--count', '-1'])).code).toBe(2);
    const none = await cli(['dlq', 'purge', '--text', 'nowhere', '--count', '2']);
    expect(none.code).toBe(4);
    expect(await states()).toEqual(before);
    expect(await audit()).toEqual([]);
    const ran = await cli([...words, '--count', '2', '--hard', '--json']);
    expect(ran.code, ran.stderr).toBe(0);
    expect(ran.objects()).toEqual([
      { action: 'purge', count: 2, removed: 2, gone: 0, failed: 0, unknown: 0, failures: [] },
    ]);
    expect(await states()).not.toHaveProperty('dead-1');
    expect((await audit())[0]).toMatchObject({
      action: 'dlq.purge',
      details: { filter: { code: 'smtp.550' }, count: 2, hard: true },
    });
  });

  test('--dry-run counts, and does nothing', async () => {
    const { cli, states } = await deadSpool();
    const before = await states();
    const ran = await cli(['dlq', 'purge', '--dry-run']);
    expect(ran).toMatchObject({ code: 0, stdout: 'would remove 4 letters of spool\n' });
    expect(await states()).toEqual(before);
  });
});

describe('dlq restore', () => {
  test('restores only what was removed', async () => {
    const { cli, states } = await deadSpool();
    const ran = await cli(['dlq', 'restore', 'gone-1', 'dead-1', 'nobody', '--json']);
    expect(ran.code).toBe(1);
    expect(ran.objects()).toMatchObject([
      { id: 'dead-1', result: 'refused', why: expect.stringContaining('it is bounce') as string },
      { id: 'nobody', result: 'unknown' },
      { id: 'gone-1', result: 'done', to: 'hold' },
    ]);
    expect(await states()).toMatchObject({ 'gone-1': 'hold', 'dead-1': 'bounce' });
  });

  test('--dry-run says how many, and does nothing', async () => {
    const { cli, states } = await deadSpool();
    const ran = await cli(['dlq', 'restore', 'gone-1', '--dry-run']);
    expect(ran).toMatchObject({ code: 0, stdout: 'would restore 1 letter\n' });
    expect(await states()).toMatchObject({ 'gone-1': 'archived' });
  });

  test('is on the audit record before it is done', async () => {
    const { cli, audit } = await deadSpool();
    await cli(['dlq', 'restore', 'gone-1']);
    expect((await audit()).map(({ action }) => action)).toEqual(['dlq.restore', 'hold']);
  });

  test.each([[[]], [['gone-1', '--queue', 'x']]])('%j is wrong usage', async (words) => {
    const { cli } = await deadSpool();
    const ran = await cli(['dlq', 'restore', ...words]);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain('say what to restore: either ids');
  });
});
