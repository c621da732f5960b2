/** progress — whatever may take long shows a bar on a terminal, and nothing where nobody looks. */
import { Writable } from 'node:stream';
import { SimClock } from 'respool/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Io, Out } from '../../src/cli/ui/output.ts';
import { createProgress } from '../../src/cli/ui/progress.ts';
import { type CallOptions, setup, type Shell } from './setup.ts';
import { systemClock } from '../time.ts';

/** A terminal at which everything takes long. */
function slowly(): CallOptions {
  let now = 0;
  const monotonic = (): number => (now += 1_000);
  return { clock: { ...systemClock, monotonic }, tty: ['stderr'] };
}

const BAR = /\r\[[#.]{24}\] [\d,]+ of [\d,]+ /;
const CLEARED = '\r\u001b[K';

async function withMessages(count: number): Promise<Shell & { ids: string[] }> {
  const shell = await setup();
  const own = shell.spool();
  const messages = Array.from({ length: count }, () => ({ topic: 'a', delay: '1h', body: 'x' }));
  const ids = (await own.enqueueMany(messages)).map(({ id }) => id);
  await own.stop();
  return { ...shell, ids };
}

describe('ids', () => {
  test('as arguments: how many of how many', async () => {
    const { cli, ids } = await withMessages(600);
    const ran = await cli(['hold', ...ids], slowly());
    expect(ran).toMatchObject({ code: 0, stdout: 'held 600\n' });
    expect(ran.stderr).toContain(`\r[${'.'.repeat(24)}] 0 of 600 `);
    expect(ran.stderr).toContain(`\r[${'#'.repeat(20)}....] 500 of 600 `);
    expect(ran.stderr.endsWith(CLEARED)).toBe(true);
  });

  test('from stdin: how many so far, and what is refused on lines of its own', async () => {
    const { cli, ids } = await withMessages(600);
    const stdin = ['nobody', ...ids].join('\n');
    const ran = await cli(['hold', '-'], { ...slowly(), stdin });
    expect(ran.stdout).toBe('held 600, unknown 1\n');
    expect(ran.stderr).toContain('\r500 done ');
    expect(ran.stderr).toContain('\r\u001b[Kthere is no message "nobody"\n');
    expect(ran.stderr.endsWith(CLEARED)).toBe(true);
  });

  test.each(['show', 'cat'])('%s shows it when its output goes elsewhere', async (command) => {
    const { cli, ids } = await withMessages(3);
    const ran = await cli([command, ...ids], slowly());
    expect(ran.stderr).toContain(`\r[${'#'.repeat(24)}] 3 of 3 `);
    expect(ran.stderr.endsWith(CLEARED)).toBe(true);
    const looking = await cli([command, ...ids], { ...slowly(), tty: ['stdout', 'stderr'] });
    expect(looking.stderr).toBe('');
  });
});

test('show keeps its bar while it looks up the next of its messages', async () => {
  const { cli, ids } = await withMessages(501);
  const { stderr } = await cli(['show', ...ids], slowly());
  expect(stderr).toContain(`\r[${'.'.repeat(24)}] 0 of 501 `);
  expect(stderr).toMatch(/\] 500 of 501 /);
  expect(stderr.split(CLEARED)).toHaveLength(2);
  const { stderr: missing } = await cli(['show', 'nobody', ...ids], slowly());
  expect(missing).toContain(`${CLEARED}respool: there is no message "nobody"`);
});

test.each([30, 20, 12, 3])('a bar fits into %i columns', async (columns) => {
  const { cli, ids } = await withMessages(60);
  const options = { ...slowly(), columns, stdin: ids.join('\n') };
  const known = await cli(['hold', ...ids], options);
  const piped = await cli(['release', '-'], options);
  for (const { stderr } of [known, piped]) {
    const drawn = stderr.split('\r').filter((line) => line !== '' && line !== '\u001b[K');
    expect(drawn.length).toBeGreaterThan(0);
    for (const line of drawn) expect(line.length).toBeLessThan(columns);
  }
  // Without room for a bar the numbers are left.
  expect(known.stderr.includes('[#')).toBe(columns >= 20);
  expect(known.stderr).toContain(columns < 10 ? '\r60' : '60 of 60');
});

describe('check', () => {
  test('shows how many of the messages are looked through', async () => {
    const { cli, ...shell } = await withMessages(3);
    const own = shell.spool({ limits: { inlineBodyBytes: 0 } });
    await own.enqueue({ topic: 'a', body: 'a body of its own' });
    await own.stop();
    const ran = await cli(['check'], slowly());
    expect(ran.stdout).toBe('checked 4 messages and 1 body: nothing is wrong\n');
    for (const step of ['1 of 4', '4 of 4', '5 of 5']) expect(ran.stderr).toContain(`] ${step} `);
    expect(ran.stderr.endsWith(CLEARED)).toBe(true);
  });
});

test('bench shows how many of its measurements are done', async () => {
  const { cli } = await setup();
  const ran = await cli(['bench', '--seconds', '1'], { tty: ['stderr'] });
  expect(ran.stderr).toContain(`\r[${'.'.repeat(24)}] 0 of 5 `);
  expect(ran.stderr).toContain(`\r[${'#'.repeat(24)}] 5 of 5 `);
});

describe('where stderr is no terminal', () => {
  /** Every look at the clock is three seconds later. */
  function inSteps(): CallOptions {
    let now = 0;
    return { clock: { ...systemClock, monotonic: () => (now += 3_000) } };
  }

  test('a bulk action tells every few seconds how far it is', async () => {
    const { cli } = await withMessages(3_000);
    const ran = await cli(['hold', 'ALL', '--yes'], inSteps());
    expect(ran).toMatchObject({ code: 0, stdout: 'held 3000\n' });
    const lines = ran.stderr.trimEnd().split('\n');
    expect(lines.length).toBeGreaterThan(1);
    for (const line of lines) expect(line).toMatch(/^\d+ of 3000 done$/);
    const numbers = lines.map((line) => Number.parseInt(line, 10));
    expect(numbers).toEqual([...new Set(numbers)].toSorted((one, other) => one - other));
  });

  test('with --json in objects, and stdout has results only', async () => {
    const { cli } = await withMessages(3_000);
    const ran = await cli(['hold', 'ALL', '--yes', '--json'], inSteps());
    expect(ran.objects()).toMatchObject([{ action: 'hold', done: 3_000 }]);
    const lines = ran.stderr.trimEnd().split('\n');
    expect(lines.length).toBeGreaterThan(1);
    for (const line of lines) {
      expect(JSON.parse(line)).toEqual({ progress: { done: expect.any(Number), total: 3_000 } });
    }
  });

  test('ids from stdin: how many so far', async () => {
    const { cli, ids } = await withMessages(1_600);
    const ran = await cli(['hold', '-'], { ...inSteps(), stdin: ids.join('\n') });
    expect(ran.stdout).toBe('held 1600\n');
    expect(ran.stderr).toMatch(/^(?:[\d,]+ done\n)+$/);
  });

  test('through a service, too, for every bulk action', async () => {
    const { cli, start } = await withMessages(12_000);
    const serving = start(['serve', '--port', '0']);
    onTestFinished(async () => {
      serving.signal('SIGTERM');
      await serving.ended;
    });
    const [, url = ''] = await serving.printed(/"url":"(http:[^"]+)"/);
    const actions = [
      ['hold', 'ALL'],
      ['release', 'ALL'],
      ['policy', 'set', 'default', 'ALL'],
      ['bounce', 'ALL'],
      ['remove', 'ALL'],
      ['retry', '--state', 'archived'],
    ];
    for (const words of actions) {
      const ran = await cli([...words, '--yes', '--url', url], inSteps());
      expect(ran.code, ran.stderr).toBe(0);
      expect(ran.stderr, words[0]).toMatch(/^[\d,]+ of 12[,\d]* done$/m);
    }
  });

  test('while one step takes longer than the interval, the same is told again', async () => {
    const clock = new SimClock();
    let text = '';
    const stderr = new Writable({
      write: (piece: Buffer, _encoding, done) => {
        text += String(piece);
        done();
      },
    });
    const io = { clock, stderr, isTTY: () => false } as unknown as Io;
    const bar = createProgress(io, { json: false, quiet: false } as Out);
    bar.begin('counting messages');
    await clock.advance('11s');
    bar.show(3, 1_000);
    await clock.advance('5s');
    bar.clear();
    await clock.advance('1m');
    expect(text).toBe('counting messages\ncounting messages\n3 of 1000 done\n');
  });

  test('what is over before the first few seconds says nothing', async () => {
    const { cli } = await withMessages(10);
    const clock = { ...systemClock, monotonic: () => 0 };
    expect((await cli(['hold', 'ALL', '--yes'], { clock })).stderr).toBe('');
  });

  test('nor does --quiet', async () => {
    const { cli } = await withMessages(3_000);
    expect((await cli(['hold', 'ALL', '--yes', '--quiet'], inSteps())).stderr).toBe('');
  });
});

describe('nothing is drawn', () => {
  test.each<[string, CallOptions, readonly string[]]>([
    ['without a terminal', { ...slowly(), tty: [] }, []],
    ['with --json', slowly(), ['--json']],
    ['with --quiet', slowly(), ['--quiet']],
  ])('%s', async (_, options, words) => {
    const { cli, ids } = await withMessages(3);
    for (const call of [['check'], ['hold', ...ids], ['release', '-'], ['cat', ...ids]]) {
      const ran = await cli([...call, ...words], { ...options, stdin: ids.join('\n') });
      expect(ran.code, call[0]).toBe(0);
      expect(ran.stderr).not.toMatch(BAR);
      expect(ran.stderr).not.toContain('\r');
    }
  });
});
