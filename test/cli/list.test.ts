/** list — filters, order, limit, and one object per line. */
import { describe, expect, test } from 'vitest';
import { fill } from './fill.ts';
import { setup } from './setup.ts';

async function filled() {
  const shell = await setup({ hasStore: true });
  await fill(shell);
  const ids = async (...words: string[]): Promise<unknown[]> => {
    const ran = await shell.cli(['list', ...words, '--json']);
    expect(ran.stderr).toBe('');
    return ran.objects().map(({ id }) => id);
  };
  return { ...shell, ids };
}

test('every filter chooses, and all together', async () => {
  const { ids } = await filled();
  expect(await ids('--state', 'deferred')).toEqual(['in-deferred']);
  expect(await ids('--state', 'deferred,bounce')).toEqual(['in-bounce', 'in-deferred']);
  expect(await ids('--state', 'hold', '--state', 'bounce')).toEqual(['in-bounce', 'in-hold']);
  expect(await ids('--topic', 'waits.*')).toEqual(['in-archived', 'in-hold', 'in-incoming']);
  expect(await ids('--topic', 'waits.*', '--state', 'hold')).toEqual(['in-hold']);
  expect(await ids('--destination', 'mail-1')).toEqual(['in-deferred']);
  expect(await ids('--header', 'tenant=a')).toEqual(['in-deferred']);
  expect(await ids('--header', 'tenant=b')).toEqual([]);
  expect(await ids('--header', 'tenant')).toEqual(['in-deferred']);
  expect(await ids('--code', 'smtp.451')).toEqual(['in-deferred']);
  expect(await ids('--text', 'greylist')).toEqual(['in-deferred']);
  expect(await ids('--older-than', '1h')).toEqual([]);
  expect((await ids('--since', '1h')).length).toBe(5);
  expect(await ids('--lane', 'notice')).toEqual(['in-bounce']);
  expect(await ids('--code', 'http.410')).toEqual(['in-bounce']);
});

test('a long table has its heading once, and its columns where the first page has them', async () => {
  const { cli, spool } = await setup();
  const own = spool();
  await own.enqueueMany(
    Array.from({ length: 1_100 }, (_, at) => ({ id: `m${1_000 + at}`, topic: 'a' })),
  );
  await own.stop();
  const lines = (await cli(['list', '--limit', '5000'])).stdout.trimEnd().split('\n');
  expect(lines).toHaveLength(1_101);
  expect(lines[0]).toMatch(/^id +state +topic +age +tries +next +why$/);
  expect(lines.filter((line) => line.startsWith('id'))).toHaveLength(1);
  expect(new Set(lines.slice(1).map((line) => line.indexOf('incoming')))).toEqual(
    new Set([lines[0]?.indexOf('state')]),
  );
});

test('a bounce that waits to be announced is not called due itself', async () => {
  const { cli } = await filled();
  expect((await cli(['list', '--state', 'bounce'])).stdout).toContain(' notice due ');
  const { stdout } = await cli(['show', 'in-bounce']);
  expect(stdout).toMatch(/^notice due +(now|\S+ ago)/m);
  expect(stdout).toMatch(/^body +1 byte$/m);
});

test('the fingerprint of a failure chooses what failed alike', async () => {
  const { cli, ids } = await filled();
  const [message] = (await cli(['show', 'in-deferred', '--json'])).objects();
  const status = message?.['status'] as { lastFailure?: { fingerprint: string } } | undefined;
  const print = status?.lastFailure?.fingerprint ?? '';
  expect(await ids('--fingerprint', print)).toEqual(['in-deferred']);
  expect(await ids('--fingerprint', 'another')).toEqual([]);
});

test('order, its reverse and a limit', async () => {
  const { ids } = await filled();
  const all = ['in-archived', 'in-bounce', 'in-deferred', 'in-hold', 'in-incoming'];
  expect(await ids()).toEqual(all);
  expect(await ids('--desc')).toEqual(all.toReversed());
  expect(await ids('--limit', '2')).toEqual(all.slice(0, 2));
  const most = await ids('--order', 'attempts', '--desc', '--limit', '2');
  expect(new Set(most)).toEqual(new Set(['in-bounce', 'in-deferred']));
});

test('more than a page is listed to its end', async () => {
  const { cli, spool } = await setup({ hasStore: true });
  const own = spool();
  await own.enqueueMany(Array.from({ length: 1_100 }, () => ({ topic: 'many' })));
  await own.stop();
  const ran = await cli(['list', '--json']);
  expect(new Set(ran.objects().map(({ id }) => id)).size).toBe(1_100);
  const shown = await cli(['list', '--limit', '600']);
  expect(shown.stdout.split('\n').filter((line) => line.includes(' many ')).length).toBe(600);
  expect(shown.stderr).toBe('the first 600; more with --limit, all with --json\n');
});

describe('the table', () => {
  test('has a row for each message, with why', async () => {
    const { cli } = await filled();
    const { stdout } = await cli(['list', '--state', 'deferred']);
    expect(stdout.split('\n')[0]).toMatch(/^id +state +topic +age +tries +next +why$/);
    expect(stdout).toMatch(/in-deferred +deferred +fails\.mail .* 1 .*in .*smtp\.451: greylisted/);
  });

  test('is cut to the terminal, and has no colour with NO_COLOR', async () => {
    const { cli } = await filled();
    const options = { tty: ['stdout' as const], columns: 72, env: { NO_COLOR: '1' } };
    const { stdout } = await cli(['list'], options);
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(72);
    expect(stdout).toContain('…');
    expect(stdout).not.toContain('\u001b');
  });

  test('gives the room of a narrow terminal to the reason, and with --wide cuts nothing', async () => {
    const shell = await setup();
    const spool = shell.spool();
    const ids = ['01a1e06c-024e-7719-9c3b-8ad06b36cc9c', '01a1e06c-024e-7719-9c3b-8ad1ffff0000'];
    for (const id of ids) await spool.enqueue({ id, topic: 'webhook.customer.new' });
    const reason = 'the other side answered 503 Service Unavailable';
    await spool.operator({ by: 'ops' }).hold(ids, { reason });
    await spool.stop();
    const narrow = { tty: ['stdout' as const], columns: 80, env: { NO_COLOR: '1' } };
    const { stdout } = await shell.cli(['list'], narrow);
    const [, ...lines] = stdout.trimEnd().split('\n');
    for (const line of lines) {
      expect(line.length).toBeLessThanOrEqual(80);
      expect(/operator\.hold: .*$/.exec(line)?.[0].length).toBeGreaterThanOrEqual(24);
    }
    const wide = await shell.cli(['list', '--wide'], narrow);
    for (const id of ids) expect(wide.stdout).toContain(id);
    expect(wide.stdout).toContain(reason);
    // A pipe is read by programs: whole ids.
    expect((await shell.cli(['list'])).stdout).toContain(ids[0]);
  });

  test('says when there is nothing', async () => {
    const { cli } = await setup({ hasStore: true });
    expect(await cli(['list'])).toMatchObject({
      code: 0,
      stdout: '',
      stderr: 'no messages match\n',
    });
    expect(await cli(['list', '--json'])).toMatchObject({ code: 0, stdout: '', stderr: '' });
  });
});

test.each([
  [['--state', 'lost'], /cannot use "lost" as --state: allowed is incoming, active/],
  [['--limit', '0'], /cannot use "0" as --limit: allowed is a whole number/],
  [['--older-than', 'long'], /cannot use "long" as "--older-than"/],
  [['--topic', 'a b'], /cannot use "a b" as topic pattern/],
  [['--since', 'long'], /cannot use "long" as "--since"/],
  [['--since', '2026-13-99'], /cannot use "2026-13-99" as --since: allowed is a span/],
  [['--text', ''], /cannot use "" as --text: it is empty/],
  [['--code', ''], /cannot use "" as --code: it is empty/],
  [['--destination', ''], /cannot use "" as --destination: it is empty/],
  [['--header', ''], /cannot use "" as --header: it is empty/],
  [['--header', '=x'], /cannot use "=x" as --header/],
  [['--fingerprint', ''], /cannot use "" as --fingerprint: it is empty/],
  [['--topic', 'a', '--topic', 'b'], /--topic was given twice: give it once/],
  [['--header', 'k=1', '--header', 'k=2'], /--header was given twice: give it once/],
  [['--order', 'id', '--order', 'dueAt'], /--order was given twice: give it once/],
  [['--order', 'size'], /cannot use "size" as --order: .*; see: respool list --help/],
])('%j is wrong usage', async (words, text) => {
  const { cli } = await setup({ hasStore: true });
  const ran = await cli(['list', ...words]);
  expect(ran.code).toBe(2);
  expect(ran.stderr).toMatch(text);
});
