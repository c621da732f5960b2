/** retry — by ids, from stdin, by filters and for ALL; and the questions every action asks. */
import { describe, expect, test } from 'vitest';
import { audited, person, steering } from './steering.ts';
import { setup } from './setup.ts';
import { systemClock } from '../time.ts';

describe('by ids', () => {
  test('deferred, bounced, held and archived messages are due again', async () => {
    const { cli, states } = await steering();
    const ran = await cli(['retry', 'in-deferred', 'in-bounce', 'in-archived']);
    expect(ran).toMatchObject({ code: 0, stdout: 'retried 3\n', stderr: '' });
    expect(await states()).toMatchObject({
      'in-deferred': 'incoming',
      'in-bounce': 'incoming',
      'in-archived': 'incoming',
    });
  });

  test('a list in JSON is retried through a pipe, whole or as ids', async () => {
    const { cli, states } = await steering();
    const listed = await cli(['list', '--state', 'deferred', '--topic', 'fails.*', '--json']);
    const ids = listed.objects().map(({ id }) => id as string);
    expect((await cli(['retry', '-'], { stdin: `${ids.join('\n')}\n` })).stdout).toBe(
      'retried 1\n',
    );
    expect(await states()).toMatchObject({ 'in-deferred': 'incoming' });
    const bounced = await cli(['list', '--state', 'bounce', '--json']);
    expect((await cli(['retry', '-'], { stdin: bounced.stdout })).stdout).toBe('retried 1\n');
    expect(await states()).toMatchObject({ 'in-bounce': 'incoming' });
  });

  test('what is unknown or refused is said, one by one, and ends with 1', async () => {
    const { cli } = await steering();
    const ran = await cli(['retry', 'in-deferred', 'nobody', 'in-incoming']);
    expect(ran).toMatchObject({ code: 1, stdout: 'retried 1, refused 1, unknown 1\n' });
    expect(ran.stderr).toMatch(/there is no message "nobody"/);
    expect(ran.stderr).toMatch(/"in-incoming"/);
  });

  test('with --json every message has a line', async () => {
    const { cli } = await steering();
    const ran = await cli(['retry', 'in-deferred', 'nobody', '--json']);
    expect(ran.code).toBe(1);
    expect(ran.objects()).toEqual([
      { id: 'in-deferred', result: 'done' },
      { id: 'nobody', result: 'unknown' },
    ]);
  });

  test('more ids than fit one step are done in steps', async () => {
    const { cli, spool } = await setup();
    const own = spool();
    const messages = Array.from({ length: 1_203 }, () => ({ topic: 'a', delay: '1h' }));
    const ids = (await own.enqueueMany(messages)).map(({ id }) => id);
    await own.stop();
    expect((await cli(['retry', '-'], { stdin: ids.join('\n') })).stdout).toBe('retried 1203\n');
    expect((await cli(['retry', '-'], { stdin: '' })).stdout).toBe('retried 0\n');
  });

  test('--dry-run looks and does nothing', async () => {
    const shell = await steering();
    const ran = await shell.cli(['retry', 'in-deferred', 'nobody', '--dry-run']);
    expect(ran).toMatchObject({ code: 1, stdout: 'would retry 1, unknown 1\n' });
    expect(await shell.states()).toMatchObject({ 'in-deferred': 'deferred' });
    expect(await audited(shell)).toEqual([]);
  });
});

describe('by filters', () => {
  test('the count is shown with examples, asked about, and done', async () => {
    const shell = await steering();
    const { questions, options } = person(true);
    const ran = await shell.cli(['retry', '--state', 'deferred,bounce'], options);
    expect(ran).toMatchObject({ code: 0, stdout: 'retried 2\n' });
    expect(questions).toEqual(['retry 2 messages?']);
    expect(ran.stderr).toMatch(/in-bounce bounce dies\n +in-deferred deferred fails\.mail/);
    expect(await shell.states()).toMatchObject({
      'in-deferred': 'incoming',
      'in-bounce': 'incoming',
    });
    expect(await audited(shell)).toMatchObject([
      { action: 'bulk.retry', details: { count: 2 } },
      { action: 'retry', ids: ['in-bounce', 'in-deferred'] },
    ]);
  });

  test('the examples are of those that will be touched', async () => {
    const shell = await steering();
    const { options } = person(false);
    const ran = await shell.cli(['release', '--topic', 'waits.*'], options);
    expect(ran.stderr).toMatch(/in-hold hold/);
    expect(ran.stderr).not.toMatch(/in-incoming/);
  });

  test('a no does nothing and ends with 4', async () => {
    const shell = await steering();
    const ran = await shell.cli(['retry', '--state', 'deferred'], person(false).options);
    expect(ran).toMatchObject({ code: 4, stdout: '' });
    expect(await shell.states()).toMatchObject({ 'in-deferred': 'deferred' });
    expect(await audited(shell)).toEqual([]);
  });

  test('without a terminal and without --yes nothing is done, with a sentence', async () => {
    const shell = await steering();
    const ran = await shell.cli(['retry', '--state', 'deferred', '--json']);
    expect(ran.code).toBe(4);
    expect(ran.stderr).toContain('"code":"not.confirmed"');
    expect(ran.stderr).toContain('add --yes');
    expect(await shell.states()).toMatchObject({ 'in-deferred': 'deferred' });
  });

  test('--yes asks nobody', async () => {
    const shell = await steering();
    const ran = await shell.cli(['retry', '--state', 'deferred', '--yes', '--json']);
    expect(ran).toMatchObject({ code: 0, stderr: '' });
    expect(ran.objects()).toEqual([
      { action: 'retry', count: 1, seen: 1, done: 1, refused: 0, unknown: 0, refusals: [] },
    ]);
  });

  test('--dry-run says the count and does nothing', async () => {
    const shell = await steering();
    const ran = await shell.cli(['retry', '--topic', 'waits.*', '--dry-run']);
    expect(ran).toMatchObject({ code: 0, stdout: 'would retry 1 message\n' });
    const json = await shell.cli(['retry', '--topic', 'fails.*', '--dry-run', '--json']);
    expect(json.objects()).toEqual([{ action: 'retry', count: 1, dryRun: true }]);
    expect(await audited(shell)).toEqual([]);
  });

  test('nothing that fits is nothing to do', async () => {
    const shell = await steering();
    const ran = await shell.cli(['retry', '--topic', 'nobody.*']);
    expect(ran).toMatchObject({ code: 0, stdout: 'no messages match; nothing to do\n' });
  });

  test('refusals are shown with their reasons, and end with 1', async () => {
    const shell = await steering();
    const ran = await shell.cli([
      'retry',
      '--state',
      'incoming,hold',
      '--topic',
      'waits.*',
      '--yes',
    ]);
    expect(ran).toMatchObject({ code: 1, stdout: 'retried 1, refused 1\n' });
    expect(ran.stderr).toMatch(/cannot .* message "in-incoming"/);
  });

  test('Ctrl-C stops it, says how far it came, and ends with 130', async () => {
    const shell = await steering();
    const running = shell.start(['retry', '--state', 'deferred', '--yes'], {
      clock: {
        ...systemClock,
        // Asked for the first time when the work begins.
        monotonic: () => {
          running.signal('SIGINT');
          return 0;
        },
      },
    });
    const ran = await running.ended;
    expect(ran).toMatchObject({ code: 130, stdout: '' });
    expect(ran.stderr).toMatch(/interrupted after 0 of 1 message: 0 done, the rest untouched/);
    expect(await shell.states()).toMatchObject({ 'in-deferred': 'deferred' });
  });

  test('what takes long shows a bar on the terminal, and clears it', async () => {
    const shell = await steering();
    let now = 0;
    const monotonic = (): number => (now += 1_000);
    const clock = { ...systemClock, monotonic };
    const words = ['retry', '--state', 'deferred', '--yes'];
    const ran = await shell.cli(words, { clock, tty: ['stderr'] });
    expect(ran.stderr).toBe(`\r[${'#'.repeat(24)}] 1 of 1 \r\u001b[K`);
    await shell.cli(['hold', 'in-deferred']);
    const quiet = ['release', '--state', 'hold', '--yes', '--quiet'];
    expect((await shell.cli(quiet, { clock, tty: ['stderr'] })).stderr).toBe('');
  });
});

describe('without a filter', () => {
  test('the word ALL is insisted on', async () => {
    const shell = await steering();
    const ran = await shell.cli(['retry', '--yes']);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toMatch(/the word ALL for every message/);
    const all = await shell.cli(['retry', 'ALL', '--yes', '--json']);
    expect(all.objects()).toMatchObject([{ count: 3 }]);
  });

  test.each([[['ALL', 'in-hold']], [['ALL', '--state', 'hold']], [['in-hold', '--state', 'hold']]])(
    '%j is wrong usage: one way at a time',
    async (words) => {
      const shell = await steering();
      expect((await shell.cli(['retry', ...words, '--yes'])).code).toBe(2);
      expect(await audited(shell)).toEqual([]);
    },
  );

  test('an id that is none is refused before anything is done', async () => {
    const shell = await steering();
    const ran = await shell.cli(['retry', 'in-deferred', 'all']);
    expect(ran).toMatchObject({ code: 1, stdout: 'retried 1, unknown 1\n' });
    expect((await shell.cli(['retry', 'in-hold', '../x'])).code).toBe(2);
    expect(await shell.states()).toMatchObject({ 'in-hold': 'hold' });
  });
});
