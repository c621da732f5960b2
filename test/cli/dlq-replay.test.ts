/** dlq replay and dlq replays — over the spool. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Replay } from 'respool/dead-letters';
import { replayLogKind, REPLAYS_RECORD_KIND } from '../../src/core/reserved-headers.ts';
import { type DeadShell, deadSpool } from './dlq-ground.ts';

const QUICK = ['--canary', '0', '--yes'];

async function replayed(shell: DeadShell, argv: readonly string[]): Promise<Replay> {
  const ran = await shell.cli(['dlq', 'replay', ...argv, '--json']);
  expect(ran.stderr).toBe('');
  const [replay] = ran.objects();
  return replay as unknown as Replay;
}

async function listed(shell: DeadShell, argv: readonly string[] = []) {
  return (await shell.cli(['dlq', 'replays', 'list', '--json', ...argv])).objects();
}

/** As a process leaves a replay that dies while it runs it. */
async function left(
  shell: DeadShell,
  replay: Replay,
  { until, intent }: { readonly until: number; readonly intent?: readonly number[] },
): Promise<void> {
  const spool = shell.spool();
  const { records } = spool.operator({ by: 'dead' });
  const running = { ...replay, state: 'running', runner: { name: 'dead', until } };
  await records.put(REPLAYS_RECORD_KIND, replay.id, running);
  if (intent !== undefined) {
    await records.append(replayLogKind(replay.id), { kind: 'step', at: 1, intent });
  }
  await spool.stop();
}

describe('dlq replay', () => {
  test('sends what bounced, leaves what is held, and ends with counts and the id', async () => {
    const shell = await deadSpool();
    const ran = await shell.cli(['dlq', 'replay', ...QUICK]);
    expect(ran.code, ran.stderr).toBe(0);
    expect(ran.stdout).toMatch(
      /^replay [0-9a-f-]{36} is done\nsent 3 of 3, not attempted yet 3\n$/,
    );
    expect(await shell.states()).toMatchObject({
      'dead-1': 'incoming',
      'dead-2': 'incoming',
      'dead-3': 'incoming',
      'held-1': 'hold',
    });
    const actions = (await shell.audit()).map(({ action }) => action);
    expect(actions).toContain('replay.plan');
    expect(actions).toContain('replay.run');
  });

  test('shows the plan first: how many, where to, which groups', async () => {
    const shell = await deadSpool();
    const asked: string[] = [];
    const ran = await shell.cli(['dlq', 'replay', '--canary', '0'], {
      tty: ['stdin', 'stderr'],
      confirm: async (question) => {
        asked.push(question);
        return true;
      },
    });
    expect(ran.code, ran.stderr).toBe(0);
    expect(asked).toEqual(['replay 3 messages?']);
    expect(ran.stderr).toMatch(/^spool: 3 of 3 messages$/m);
    expect(ran.stderr).toMatch(/^mail\.send +2$/m);
    expect(ran.stderr).toMatch(/^orders\.created +1$/m);
    expect(ran.stderr).toMatch(/ 2 +smtp\.550 +no such user/);
  });

  test.each([
    ['--limit', '1'],
    ['--code', 'timeout'],
  ])('with %s %s the plan says how many of the messages that are there', async (...filter) => {
    const shell = await deadSpool();
    const ran = await shell.cli(['dlq', 'replay', '--dry-run', ...filter]);
    expect(ran.stdout).toMatch(/^spool: 1 of 3 messages$/m);
  });

  test('a no leaves everything as it was, and no plan on record', async () => {
    const shell = await deadSpool();
    const ran = await shell.cli(['dlq', 'replay'], {
      tty: ['stdin', 'stderr'],
      confirm: async () => false,
    });
    expect(ran.code).toBe(4);
    expect(await listed(shell)).toEqual([]);
    expect(await shell.states()).toMatchObject({ 'dead-1': 'bounce' });
    const silent = await shell.cli(['dlq', 'replay']);
    expect([silent.code, silent.stderr]).toEqual([4, expect.stringContaining('--yes')]);
    expect(await listed(shell)).toEqual([]);
  });

  test('--dry-run shows the plan, writes nothing and sends nothing', async () => {
    const shell = await deadSpool();
    const before = await shell.audit();
    const [shown] = (await shell.cli(['dlq', 'replay', '--dry-run', '--json'])).objects();
    expect(shown).toMatchObject({
      dryRun: true,
      source: { kind: 'spool', kinds: ['dead'] },
      plan: { count: 3, routes: [{ to: 'mail.send', count: 2 }, { to: 'orders.created' }] },
    });
    const text = await shell.cli(['dlq', 'replay', '--dry-run']);
    expect(text.stdout).toContain('3 of 3 messages');
    expect(await shell.states()).toMatchObject({ 'dead-1': 'bounce' });
    expect([await listed(shell), await shell.audit()]).toEqual([[], before]);
  });

  test.each([
    [
      ['--code', 'smtp.550'],
      ['dead-1', 'dead-2'],
    ],
    [['--category', 'timeout'], ['dead-3']],
    [['--topic', 'orders.#'], ['dead-3']],
    [['--kind', 'parked'], ['held-1']],
    [['--limit', '1'], ['dead-1']],
    [['--header', 'tenant=b'], ['dead-2']],
  ])('%j replays only %j', async (filter, ids) => {
    const shell = await deadSpool();
    const { id, counts } = await replayed(shell, [...filter, ...QUICK]);
    expect(counts.sent).toBe(ids.length);
    const report = await shell.cli(['dlq', 'replays', 'report', id, '--json']);
    expect(report.objects().map((line) => line['id'])).toEqual(ids);
  });

  test('where nothing fits nothing is done, and nothing is on record', async () => {
    const shell = await deadSpool();
    const ran = await shell.cli(['dlq', 'replay', '--code', 'none', '--yes']);
    expect([ran.code, ran.stdout]).toEqual([0, 'no messages match; nothing to do\n']);
    expect(await listed(shell)).toEqual([]);
  });

  test('--to sends to another topic', async () => {
    const shell = await deadSpool();
    await replayed(shell, ['--code', 'timeout', '--to', 'orders.again', ...QUICK]);
    const [entry] = (await shell.cli(['list', '--json', '--topic', 'orders.again'])).objects();
    expect(entry).toBeDefined();
  });

  test('every option of how goes into the record', async () => {
    const shell = await deadSpool();
    const argv = ['--canary', '2', '--canary-wait', '0s', '--rate', '500', '--window', '7'];
    const more = ['--stop-above', '50', '--replays-max', '9', '--unsure', 'send', '--yes'];
    const { options } = await replayed(shell, [...argv, ...more]);
    expect(options).toEqual({
      canary: 2,
      canaryWait: '0s',
      rate: 500,
      window: 7,
      stopAbove: 50,
      replaysMax: 9,
      unsure: 'send',
    });
  });

  test('--rate lets no more go in a second', async () => {
    const shell = await deadSpool();
    const startedAt = performance.now();
    const { counts } = await replayed(shell, ['--rate', '4', ...QUICK]);
    expect(counts.sent).toBe(3);
    expect(performance.now() - startedAt).toBeGreaterThan(500);
  });

  test('--replays-max parks what was replayed so often', async () => {
    const shell = await deadSpool();
    const argv = ['--topic', 'orders.*', '--replays-max', '1', ...QUICK];
    expect((await replayed(shell, argv)).counts.sent).toBe(1);
    await shell.cli(['bounce', 'dead-3', '--reason', 'again', '--yes']);
    expect((await replayed(shell, argv)).counts).toMatchObject({ sent: 0, parked: 1 });
  });

  test('the limit of replays is that of the configuration where none is given', async () => {
    const shell = await deadSpool();
    const config = { deadLetters: { replaysMax: 8 } };
    await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
    expect((await replayed(shell, QUICK)).options.replaysMax).toBe(8);
  });

  test.each([
    [['--rate', '0'], '--rate'],
    [['--limit', 'x'], '--limit'],
    [['--canary', '-1'], '--canary'],
    [['--canary-wait', 'soon'], '--canary-wait'],
    [['--window', '1001'], '--window'],
    [['--stop-above', '101'], '--stop-above'],
    [['--replays-max', '0'], '--replays-max'],
    [['--unsure', 'perhaps'], 'perhaps'],
    [['--to', 'a b'], '--to'],
    [['--to', ''], '--to'],
    [['--transform', './none.ts'], 'none.ts'],
    [['--dry-run', '--plan-only'], '--plan-only'],
  ])('%j is refused, and nothing is done', async (argv, word) => {
    const shell = await deadSpool();
    const ran = await shell.cli(['dlq', 'replay', '--yes', ...argv]);
    expect([ran.code, ran.stderr]).toEqual([2, expect.stringContaining(word)]);
    expect(await listed(shell)).toEqual([]);
  });

  test('a message that was replayed too often is parked, with a word about it before', async () => {
    const shell = await deadSpool();
    const bounce = () =>
      shell.cli(['bounce', 'dead-3', '--reason', 'again', '--yes']).then(({ code }) => code);
    for (const round of [1, 2, 3]) {
      const { counts } = await replayed(shell, ['--topic', 'orders.*', ...QUICK]);
      expect([round, counts.sent]).toEqual([round, 1]);
      expect(await bounce()).toBe(0);
    }
    const dry = await shell.cli(['dlq', 'replay', '--topic', 'orders.*', '--dry-run']);
    expect(dry.stdout).toMatch(/replayed-too-often +1 .*parked/);
    const { counts } = await replayed(shell, ['--topic', 'orders.*', ...QUICK]);
    expect(counts).toMatchObject({ sent: 0, parked: 1 });
    expect(await shell.states()).toMatchObject({ 'dead-3': 'hold' });
  });
});

describe('--transform', () => {
  const REPAIR = `
    export default (letter, { json }) => {
      if (letter.topic !== 'mail.send') return 'skip';
      return { json: { ...json(), repaired: true }, headers: { tenant: null, fixed: 'yes' } };
    };
    export const schema = { '~standard': { version: 1, vendor: 'test', validate: (value) =>
      value.n === 2 ? { issues: [{ message: 'two is no number', path: ['n'] }] } : { value } } };
  `;

  async function withRepair() {
    const shell = await deadSpool();
    await writeFile(path.join(shell.folder, 'repair.mjs'), REPAIR);
    return shell;
  }

  test('a dry run shows what would change, what fails and what is left', async () => {
    const shell = await withRepair();
    const argv = ['dlq', 'replay', '--transform', './repair.mjs', '--dry-run'];
    const { stdout, code } = await shell.cli(argv);
    expect(code).toBe(0);
    expect(stdout).toContain('transform-failed');
    expect(stdout).toContain('transform-skips');
    expect(stdout).toMatch(/^dead-1 changed\n- tenant: a\n\+ fixed: yes$/m);
    expect(stdout).toMatch(/^\+ +"repaired": true$/m);
    expect(stdout).toMatch(/^dead-2 failed: .*n: two is no number$/m);
    expect(stdout).toMatch(/^dead-3 skip$/m);
    const [shown] = (await shell.cli([...argv, '--json'])).objects();
    expect(shown?.['rehearsals']).toHaveLength(3);
  });

  test('sends the repaired one, keeps its original, and leaves the others', async () => {
    const shell = await withRepair();
    const ran = await shell.cli(['dlq', 'replay', '--transform', 'repair.mjs', ...QUICK]);
    expect(ran.code).toBe(1);
    const cat = await shell.cli(['cat', 'dead-1']);
    expect(JSON.parse(cat.stdout)).toEqual({ n: 1, repaired: true });
    const states = await shell.states();
    expect(states).toMatchObject({ 'dead-1': 'incoming', 'dead-2': 'bounce', 'dead-3': 'bounce' });
    const kept = (await shell.cli(['list', '--state', 'archived', '--json'])).objects();
    const copies = kept.filter(({ id }) => id !== 'gone-1').map(({ id }) => id as string);
    expect(copies).toHaveLength(1);
    expect((await shell.cli(['cat', copies[0] ?? ''])).stdout).toBe('{"n":1}');
  });

  test('a file that was changed after the plan is refused', async () => {
    const shell = await withRepair();
    const { id } = await replayed(shell, ['--transform', 'repair.mjs', '--plan-only']);
    await writeFile(path.join(shell.folder, 'repair.mjs'), 'export default () => undefined;');
    const ran = await shell.cli(['dlq', 'replays', 'resume', id]);
    expect([ran.code, ran.stderr]).toEqual([2, expect.stringContaining('was changed')]);
  });
});

describe('dlq replays', () => {
  test('a plan alone is run by resume', async () => {
    const shell = await deadSpool();
    const planned = await shell.cli(['dlq', 'replay', '--plan-only', '--canary', '0']);
    const id = /^replay (\S+) is planned; run it: respool dlq replays resume \1$/m.exec(
      planned.stdout,
    )?.[1];
    expect(await shell.states()).toMatchObject({ 'dead-1': 'bounce' });
    const ran = await shell.cli(['dlq', 'replays', 'resume', id ?? '']);
    expect([ran.code, ran.stdout]).toEqual([0, expect.stringContaining('sent 3 of 3')]);
    const again = await shell.cli(['dlq', 'replays', 'resume', id ?? '']);
    expect([again.code, again.stderr]).toEqual([1, expect.stringContaining('done')]);
  });

  test('list shows the newest first, and --state chooses', async () => {
    const shell = await deadSpool();
    expect((await shell.cli(['dlq', 'replays', 'list'])).stderr).toContain('there is no replay');
    const planned = await replayed(shell, ['--plan-only']);
    const done = await replayed(shell, ['--code', 'timeout', ...QUICK]);
    expect((await listed(shell)).map(({ id }) => id)).toEqual([done.id, planned.id]);
    expect((await listed(shell, ['--state', 'planned'])).map(({ id }) => id)).toEqual([planned.id]);
    const table = await shell.cli(['dlq', 'replays', 'list']);
    expect(table.stdout).toMatch(/done +spool \(dead\) +1 +1 /);
  });

  test('show tells the plan, the options and how far it is', async () => {
    const shell = await deadSpool();
    const { id } = await replayed(shell, ['--code', 'smtp.550', '--rate', '900', ...QUICK]);
    const { stdout, code } = await shell.cli(['dlq', 'replays', 'show', id]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^state +done$/m);
    expect(stdout).toMatch(/^rate +900$/m);
    expect(stdout).toMatch(/^filter +\{"code":"smtp.550"\}$/m);
    expect(stdout).toMatch(/^so far +sent 2 of 2, not attempted yet 2$/m);
    const [shown] = (await shell.cli(['dlq', 'replays', 'show', id, '--json'])).objects();
    const beginning = id.slice(0, 13);
    const short = (await shell.cli(['dlq', 'replays', 'show', beginning, '--json'])).objects();
    expect(short).toEqual([shown]);
    expect(shown).toMatchObject({ id, state: 'done', by: 'tester@cli' });
  });

  test('report tells what became of each message', async () => {
    const shell = await deadSpool();
    const { id } = await replayed(shell, QUICK);
    const { stdout } = await shell.cli(['dlq', 'replays', 'report', id]);
    expect(stdout).toMatch(/^id +result +to +code +reason$/m);
    expect(stdout).toMatch(/^dead-1 +sent +mail\.send$/m);
    const none = await shell.cli(['dlq', 'replays', 'report', id, '--result', 'failed', '--json']);
    expect(none.objects()).toEqual([]);
  });

  test('pause and cancel change a replay that nobody runs at once', async () => {
    const shell = await deadSpool();
    const { id } = await replayed(shell, ['--plan-only']);
    const paused = await shell.cli(['dlq', 'replays', 'pause', id, '--json']);
    expect(paused.objects()).toMatchObject([{ id, state: 'paused', because: 'by tester@cli' }]);
    const cancelled = await shell.cli(['dlq', 'replays', 'cancel', id]);
    expect([cancelled.code, cancelled.stdout]).toEqual([
      0,
      `replay ${id} is cancelled: sent 0 of 3\n`,
    ]);
    const resumed = await shell.cli(['dlq', 'replays', 'resume', id]);
    expect([resumed.code, resumed.stderr]).toEqual([1, expect.stringContaining('cancelled')]);
    expect(await shell.states()).toMatchObject({ 'dead-1': 'bounce', 'dead-3': 'bounce' });
  });

  test('pause waits until the process that ran it is believed in no longer', async () => {
    const shell = await deadSpool();
    const planned = await replayed(shell, ['--plan-only']);
    await left(shell, planned, { until: Date.now() + 700 });
    const paused = await shell.cli(['dlq', 'replays', 'pause', planned.id, '--json']);
    expect(paused.code, paused.stderr).toBe(0);
    expect(paused.objects()).toMatchObject([{ state: 'paused', because: 'by tester@cli' }]);
  });

  test('what a crash may have sent is left by a resume, and told', async () => {
    const shell = await deadSpool();
    const planned = await replayed(shell, ['--plan-only', '--canary', '0']);
    await left(shell, planned, { until: 0, intent: [0] });
    const ran = await shell.cli(['dlq', 'replays', 'resume', planned.id, '--json']);
    expect([ran.code, ran.objects()]).toMatchObject([1, [{ counts: { sent: 2, unsure: 1 } }]]);
    expect(await shell.states()).toMatchObject({ 'dead-1': 'bounce', 'dead-2': 'incoming' });
  });

  test('--unsure send sends it again', async () => {
    const shell = await deadSpool();
    const planned = await replayed(shell, ['--plan-only', '--canary', '0']);
    await left(shell, planned, { until: 0, intent: [0] });
    const argv = ['dlq', 'replays', 'resume', planned.id, '--unsure', 'send', '--json'];
    const ran = await shell.cli(argv);
    expect([ran.code, ran.objects()]).toMatchObject([0, [{ counts: { sent: 3, unsure: 0 } }]]);
  });

  test('forget takes a replay off the record', async () => {
    const shell = await deadSpool();
    const { id } = await replayed(shell, QUICK);
    const ran = await shell.cli(['dlq', 'replays', 'forget', id, '--json']);
    expect(ran.objects()).toEqual([{ id, result: 'forgotten' }]);
    expect(await listed(shell)).toEqual([]);
  });

  test.each(['show', 'pause', 'resume', 'cancel', 'report', 'forget'])(
    '%s says that there is no such replay',
    async (command) => {
      const shell = await deadSpool();
      const ran = await shell.cli(['dlq', 'replays', command, 'nothing']);
      expect([ran.code, ran.stderr]).toEqual([1, expect.stringContaining('no replay "nothing"')]);
    },
  );
});
