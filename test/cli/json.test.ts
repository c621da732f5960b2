/** --json: every command prints lines of JSON on stdout, and nothing else. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import Sqlite from 'better-sqlite3';
import { createOutbox } from 'respool/outbox';
import { expect, onTestFinished, test } from 'vitest';
import { commands } from '../../src/cli/commands.ts';
import type { CommandSpec } from '../../src/cli/spec.ts';
import { setup, type Shell } from './setup.ts';

const ID = 'one';
const HELD = 'held';
const REMOVED = 'removed';
const OUTBOX = ['--store', 'sqlite:./app.db'];

/** What each command is called with; a command without a line here fails the first test. */
const CALLS: Readonly<Record<string, readonly string[]>> = {
  init: ['--format', 'json', '--force'],
  serve: ['--port', '0'],
  completion: ['bash'],
  enqueue: ['a', '--body', 'x'],
  list: [],
  show: [ID],
  cat: [ID],
  hold: [ID],
  release: [ID],
  retry: [ID],
  bounce: [ID],
  remove: ['ALL', '--yes'],
  'policy explain': ['default'],
  'policy list': [],
  'policy set': ['default', ID],
  pause: ['a'],
  resume: ['a'],
  audit: [],
  stats: [],
  shape: [],
  events: [],
  check: [],
  doctor: [],
  config: [],
  'config show': [],
  'config check': [],
  'config set': ['store', 'sqlite:./respool'],
  bench: ['--seconds', '1'],
  'keys generate': [],
  rekey: ['--yes'],
  'token create': ['--name', 'a', '--role', 'admin'],
  'token hash': [],
  'outbox init': OUTBOX,
  'outbox sql': OUTBOX,
  'outbox list': OUTBOX,
  'outbox show': [ID, ...OUTBOX],
  'outbox retry': [ID, ...OUTBOX],
  'outbox hold': [ID, ...OUTBOX],
  'outbox remove': ['ALL', '--yes', ...OUTBOX],
  'outbox stats': OUTBOX,
  'outbox cat': [ID, ...OUTBOX],
  'outbox shape': OUTBOX,
  'outbox release': ['ALL', '--yes', ...OUTBOX],
  'outbox bounce': [ID, ...OUTBOX],
  'outbox policy set': ['default', ID, ...OUTBOX],
  'outbox pause': ['a', ...OUTBOX],
  'outbox resume': ['a', ...OUTBOX],
  'outbox audit': OUTBOX,
  'outbox check': OUTBOX,
  'dlq list': [],
  'dlq show': [HELD],
  'dlq export': [],
  'dlq count': [],
  'dlq groups': [],
  'dlq note': ['0123456789a', 'known'],
  'dlq remove': [HELD],
  'dlq purge': ['--count', '1'],
  'dlq restore': [REMOVED],
  'dlq replay': ['--kind', 'parked', '--canary', '0', '--yes'],
  'rabbit topology export': ['--url', 'amqp://localhost', '--queue', 'orders'],
};

/** They need a broker: rabbit*.test.ts and outbox-relay.test.ts call them with --json. */
const ELSEWHERE = [
  'dlq sweep',
  'dlq watch',
  // They need rules: alerts.test.ts calls them with --json.
  'alerts list',
  'alerts check',
  'alerts test',
  // They need a replay, or rules: dlq-replay*.test.ts and dlq-rules.test.ts call them with --json.
  'dlq replays list',
  'dlq replays show',
  'dlq replays pause',
  'dlq replays resume',
  'dlq replays cancel',
  'dlq replays report',
  'dlq replays forget',
  'dlq rules list',
  'dlq rules run',
  'outbox relay',
  'rabbit consume',
  'rabbit topology plan',
  'rabbit topology apply',
  'rabbit topology verify',
  'rabbit topology dump',
  'rabbit topology migrate',
  'rabbit stats',
  'rabbit drain',
  'rabbit doctor',
];

/** They run until a signal. */
const LASTING = ['serve', 'events'];

function leaves(specs: readonly CommandSpec[], before = ''): string[] {
  return specs.flatMap(({ name, run, subcommands = [] }) => [
    ...(run === undefined ? [] : [`${before}${name}`]),
    ...leaves(subcommands, `${before}${name} `),
  ]);
}

async function filled(): Promise<Shell> {
  const shell = await setup();
  const spool = shell.spool();
  await spool.enqueue({ id: ID, topic: 'a', body: 'hello' });
  await spool.operator({ by: 'ops' }).setPolicy([ID], 'default');
  for (const id of [HELD, REMOVED]) await spool.enqueue({ id, topic: 'a' });
  await spool.operator({ by: 'ops' }).hold([HELD]);
  await spool.operator({ by: 'ops' }).remove([REMOVED]);
  await spool.stop();
  const database = new Sqlite(path.join(shell.folder, 'app.db'));
  const outbox = createOutbox({ database });
  outbox.migrate();
  outbox.transaction((tx) => outbox.emit(tx, 'a', 'hello', { id: ID }));
  await outbox.spool.operator({ by: 'ops' }).setPolicy([ID], 'default');
  await outbox.close();
  database.close();
  await writeFile(path.join(shell.folder, 'respool.config.json'), '{"serve":{"port":0}}');
  return shell;
}

/** The lines of an output, each of which has to be an object. */
function objects(stdout: string): object[] {
  expect(stdout.endsWith('\n')).toBe(true);
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => {
      const value: unknown = JSON.parse(line);
      expect(value).toBeTypeOf('object');
      return value as object;
    });
}

test('every command is called below', () => {
  expect([...Object.keys(CALLS), ...ELSEWHERE].toSorted()).toEqual(leaves(commands).toSorted());
});

// A bench takes its time; its own test calls it with --json.
const ending = leaves(commands).filter(
  (name) => ![...LASTING, ...ELSEWHERE, 'bench'].includes(name),
);

test.each(ending)('%s --json prints objects, one per line', async (name) => {
  const { cli } = await filled();
  const words = [...name.split(' '), ...(CALLS[name] ?? []), '--json'];
  // On a terminal, where there is the most temptation to print something else.
  const tty = ['stdout', 'stderr'] as const;
  const { stdout, stderr } = await cli(words, {
    tty,
    stdin: 'rsp_abc\n',
    env: { TERM: 'xterm' },
  });
  expect(objects(stdout).length, stderr).toBeGreaterThan(0);
  expect(stdout + stderr).not.toContain('\u001b');
  expect(stderr).not.toContain('\r');
});

test('serve --json and events --json print an object per line until the end', async () => {
  const { start, cli } = await filled();
  const tty = ['stdout', 'stderr'] as const;
  const service = start(['serve', '--json', ...(CALLS['serve'] ?? [])], { tty });
  onTestFinished(async () => {
    service.signal('SIGTERM');
    await service.ended;
  });
  const [, url = ''] = await service.printed(/"url":"(http:[^"]+)"/);
  const events = start(['events', '--json', '--url', url, '--verbose'], { tty });
  onTestFinished(async () => {
    events.signal('SIGTERM');
    await events.ended;
  });
  // The service hears of a listener some time after it asked: post until it heard.
  const over = new AbortController();
  const posting = (async () => {
    while (!over.signal.aborted) await cli(['enqueue', 'a', '--body', 'x', '--url', url]);
  })();
  await events.printed(/"kind":"accepted"/).finally(() => over.abort());
  await posting;
  events.signal('SIGTERM');
  service.signal('SIGTERM');
  for (const { ended } of [events, service]) {
    const { code, stdout } = await ended;
    expect(code).toBe(0);
    expect(objects(stdout).length).toBeGreaterThan(0);
  }
});

test('completion --json prints the shell and its script in one object', async () => {
  const { cli } = await setup();
  for (const shell of ['bash', 'zsh']) {
    const plain = await cli(['completion', shell]);
    const ran = await cli(['completion', shell, '--json']);
    expect(ran.objects()).toEqual([{ shell, script: plain.stdout }]);
  }
});
