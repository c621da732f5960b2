/** The command handler with real commands: body in, environment, exit codes, time limits. */
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fixed, RespoolError, type SpoolEvent } from 'respool';
import { createTestSpool, SimClock } from 'respool/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { makeExec } from '../../src/deliver/exec/exec.ts';
import { exec, type ExecOptions } from 'respool/deliver';
import { brief, folder, largeBody, makeDelivery, script } from './setup.ts';

/** Runs a script over a delivery; gives the outcome in a line, and the notes. */
async function runScript(text: string, options: ExecOptions = {}) {
  const handler = exec([await script(text)], options);
  const { delivery, notes } = makeDelivery();
  const line = await brief(async () => handler(delivery));
  return { line: line.replaceAll(/"[^"]*command\.sh"/g, 'it'), notes };
}

describe('an exit code', () => {
  const cases: readonly (readonly [code: number, start: string])[] = [
    [0, 'delivered'],
    [1, 'transient exec.1: it ended with exit code 1'],
    [64, 'permanent exec.64'],
    [65, 'permanent exec.65'],
    [66, 'permanent exec.66'],
    [67, 'permanent exec.67'],
    [68, 'permanent exec.68'],
    [69, 'transient exec.69'],
    [70, 'transient exec.70'],
    [75, 'transient exec.75'],
    [77, 'permanent exec.77'],
    [78, 'permanent exec.78'],
    [127, 'transient exec.127'],
    [255, 'transient exec.255'],
  ];
  test.each(cases)('of %d means: %s', async (code, start) => {
    const { line, notes } = await runScript(`exit ${code}`);
    expect(line.startsWith(start)).toBe(true);
    expect(notes['exec-exit']).toBe(String(code));
  });

  test('can be given another meaning, and the rest keeps its own', async () => {
    const own = { transient: [65], permanent: [1], hold: [2, 75] };
    const meaning = async (code: number) =>
      (await runScript(`exit ${code}`, own)).line.split(':')[0];
    expect(await meaning(65)).toBe('transient exec.65');
    expect(await meaning(1)).toBe('permanent exec.1');
    expect(await meaning(2)).toBe('held exec.2');
    expect(await meaning(75)).toBe('held exec.75');
    expect(await meaning(64)).toBe('permanent exec.64');
  });

  test('comes with the last line of the errors as reason, and the output as notes', async () => {
    const { line, notes } = await runScript(
      "echo hello; printf 'one\\ntwo \\033[31mred\\n\\n' >&2; exit 75",
    );
    expect(line).toBe('transient exec.75: it ended with exit code 75: two  [31mred');
    expect(notes).toEqual({
      'exec-exit': '75',
      'exec-output': 'hello',
      'exec-errors': 'one two  [31mred',
    });
  });

  test('says nothing of the secrets that the command was given, also where it prints them', async () => {
    const file = await script('echo "$@"; env; echo "called with $*" >&2; exit 1');
    const canary = 'c4nary-Zm9vYmFy';
    const list = ['--password', canary, `--token=${canary}`, `amqp://me:${canary}@host/x`, 'plain'];
    const { delivery, notes } = makeDelivery();
    const env = { API_KEY: canary, PLAIN: 'seen' };
    const answer = JSON.stringify(await exec([file, ...list], { env })(delivery));
    expect(answer).toContain(
      '--password (secret) --token=(secret) amqp://me:(secret)@host/x plain',
    );
    expect(JSON.stringify(notes)).toContain('PLAIN=seen');
    expect(answer + JSON.stringify(notes)).not.toContain(canary);
  });

  test('says nothing of passwords in addresses among its variables', async () => {
    const file = await script('echo "cannot connect to $DATABASE_URL, p@ss-Zm9v" >&2; exit 1');
    const { delivery, notes } = makeDelivery();
    const env = { DATABASE_URL: 'postgres://app:p%40ss-Zm9v@db/x' };
    const answer = JSON.stringify(await exec([file], { env })(delivery));
    expect(answer).toContain('cannot connect to postgres://app:(secret)@db/x, (secret)');
    expect(answer + JSON.stringify(notes)).not.toContain('ss-Zm9v');
  });

  test('says nothing of a secret whose beginning is no longer kept', async () => {
    const file = await script(`printf '%s%01000d' "$API_KEY" 0 >&2; exit 1`);
    const { delivery } = makeDelivery();
    const env = { API_KEY: `c4nary-${'abcdefghijkl'.repeat(4)}` };
    const answer = JSON.stringify(await exec([file], { env })(delivery));
    expect(answer).toContain('ended with exit code 1: (secret)000');
  });

  test('that is none because a signal ended it is tried again', async () => {
    const { line } = await runScript('kill -SEGV $$');
    expect(line).toBe('transient exec.signal: it was ended by signal SIGSEGV');
  });
});

describe('the command', () => {
  test('gets its arguments as they are: there is no shell', async () => {
    const file = await script('printf "%s|" "$@"');
    const { delivery, notes } = makeDelivery();
    await exec([file, '$HOME', '; echo evil', '', '*'])(delivery);
    expect(notes['exec-output']).toBe('$HOME|; echo evil||*|');
  });

  test('runs in its folder, and a relative program is looked for there', async () => {
    const file = await script('pwd -P; cat here.txt');
    const cwd = path.dirname(file);
    await writeFile(path.join(cwd, 'here.txt'), 'found');
    const { delivery, notes } = makeDelivery();
    await exec('./command.sh', { cwd })(delivery);
    expect(notes['exec-output']).toContain(`${path.basename(cwd)} found`);
  });

  test('by its bare name is looked for along PATH', async () => {
    expect(await brief(exec('true'))).toBe('delivered');
    expect(await brief(exec(['false']))).toContain('transient exec.1');
  });

  test.each([
    ['is not there', './nowhere.sh', {}],
    ['is not there along PATH', 'respool-no-such-program', {}],
    ['is a folder', './', {}],
  ])('that %s holds the message', async (_what, program, options) => {
    const line = await brief(exec([program], { cwd: await folder(), ...options }));
    expect(line).toMatch(/^held exec\.missing: cannot start "[^"]+" in "[^"]+": spawn/);
  });

  test('whose folder is not there holds the message', async () => {
    const line = await brief(exec(['true'], { cwd: path.join(await folder(), 'nowhere') }));
    expect(line).toContain('held exec.missing');
  });

  test('that may not be executed holds the message', async () => {
    const file = path.join(await folder(), 'plain.txt');
    await writeFile(file, 'hello');
    expect(await brief(exec([file]))).toContain('held exec.missing');
  });

  test('may write as much as it likes: only the start is kept', async () => {
    const { line, notes } = await runScript(
      'head -c 20000000 /dev/zero | tr "\\0" x; head -c 5000000 /dev/zero | tr "\\0" y >&2; ' +
        'echo >&2; echo last words >&2; exit 1',
    );
    expect(line).toBe('transient exec.1: it ended with exit code 1: last words');
    expect(notes['exec-output']).toBe('x'.repeat(1_024));
    expect(notes['exec-errors']).toBe('y'.repeat(1_024));
  });

  test('that leaves a child behind with its output open is not waited for', async () => {
    const { line, notes } = await runScript('sleep 600 & echo $!; exit 0');
    expect(line).toBe('delivered');
    process.kill(Number(notes['exec-output']), 'SIGKILL');
  });
});

describe('the body', () => {
  test('comes on the input, byte for byte', async () => {
    const body = Buffer.from(Array.from({ length: 256 }, (_, at) => at));
    const { delivery, notes } = makeDelivery({ body });
    await exec(['od', '-An', '-tx1', '-v'])(delivery);
    expect(notes['exec-output']?.replaceAll(/\s+/g, '')).toBe(body.toString('hex'));
  });

  test('that is empty is an empty input', async () => {
    const { delivery, notes } = makeDelivery({ body: '' });
    await exec(['wc', '-c'])(delivery);
    expect(notes['exec-output']).toBe('0');
  });

  test('of 32 MiB is streamed no faster than it is read', async () => {
    const size = 32 * 2 ** 20;
    const plain = largeBody(size);
    const hash = createHash('sha256');
    const gate = path.join(await folder(), 'gate');
    let produced = 0;
    let atGate = 0;
    const stream = async function* () {
      for await (const part of plain()) {
        produced += part.length;
        hash.update(part);
        yield part;
      }
    };
    const file = await script(`until [ -e ${gate} ]; do sleep 0.02; done; sha256sum`);
    const { delivery, notes } = makeDelivery({ size, stream });
    const outcome = exec([file])(delivery);
    // The pipe is full after a few parts; after many turns of the loop it still is.
    for (let turn = 0; turn < 2_000; turn += 1) await new Promise((done) => setImmediate(done));
    atGate = produced;
    await writeFile(gate, '');
    expect(await outcome).toEqual({ kind: 'delivered' });
    expect(atGate).toBeLessThan(2 ** 20);
    expect(produced).toBe(size);
    expect(notes['exec-output']).toContain(hash.digest('hex'));
  });

  test.each([0, 1, 75])('need not be read: the exit code %d decides', async (code) => {
    const size = 32 * 2 ** 20;
    let isLetGo = false;
    const plain = largeBody(size);
    const stream = async function* () {
      try {
        yield* plain();
      } finally {
        isLetGo = true;
      }
    };
    const file = await script(`exec 0<&-; exit ${code}`);
    const line = await brief(exec([file]), { size, stream });
    expect(line).toContain(code === 0 ? 'delivered' : `transient exec.${code}`);
    expect(isLetGo).toBe(true);
  });

  test.each([
    ['in the middle', 20],
    ['at its very end', 40],
  ])('that turns out damaged %s never looks whole to the command', async (_where, parts) => {
    const done = path.join(await folder(), 'done');
    const file = await script(`cat >/dev/null; echo whole > ${done}`);
    const stream = async function* () {
      for (let at = 0; at < parts; at += 1) yield Buffer.alloc(65_536);
      throw new RespoolError('body.corrupt', 'the body is damaged');
    };
    await expect(brief(exec([file]), { size: 40 * 65_536, stream })).rejects.toThrow('is damaged');
    await expect(readFile(done)).rejects.toThrow('ENOENT');
  });
});

describe('the environment', () => {
  async function environment(
    parts: Parameters<typeof makeDelivery>[0],
    options: ExecOptions = {},
  ): Promise<Record<string, string>> {
    const out = path.join(await folder(), 'env');
    const file = await script(
      `require('node:fs').writeFileSync(${JSON.stringify(out)}, JSON.stringify(process.env))`,
      'command.cjs',
    );
    // Not by a `#!` line: the path of this program may be long, and may have spaces.
    expect(await brief(exec([process.execPath, file], options), parts)).toBe('delivered');
    return JSON.parse(await readFile(out, 'utf8')) as Record<string, string>;
  }

  test('is exactly what is named: nothing of ours leaks', async () => {
    process.env['RESPOOL_CANARY'] = 'canary';
    process.env['SECRET_CANARY'] = 'canary';
    onTestFinished(() => {
      delete process.env['RESPOOL_CANARY'];
      delete process.env['SECRET_CANARY'];
    });
    const seen = await environment(
      { attempt: 4 },
      { inherit: ['PATH', 'NOT_SET'], env: { A: 'b' } },
    );
    expect(seen).toEqual({
      PATH: process.env['PATH'],
      A: 'b',
      RESPOOL_ID: 'message-1',
      RESPOOL_TOPIC: 'webhook.new',
      RESPOOL_ATTEMPT: '4',
      RESPOOL_LANE: 'delivery',
      RESPOOL_ENQUEUED_AT: '2026-01-02T03:04:05.000Z',
      RESPOOL_BODY_SIZE: '11',
    });
    const usual = await environment({});
    expect(JSON.stringify(usual)).not.toContain('canary');
    expect(usual['PATH']).toBe(process.env['PATH']);
  });

  test('tells the destination and what went wrong before', async () => {
    const seen = await environment({
      destination: 'ann',
      lane: 'notice',
      lastFailure: {
        permanence: 'permanent',
        code: 'smtp.550',
        reason: 'no such',
        fingerprint: 'x',
      },
    });
    expect(seen).toMatchObject({
      RESPOOL_DESTINATION: 'ann',
      RESPOOL_LANE: 'notice',
      RESPOOL_LAST_CODE: 'smtp.550',
      RESPOOL_LAST_REASON: 'no such',
    });
  });

  test('has message headers under a name of their own only', async () => {
    const seen = await environment(
      {
        headers: {
          PATH: '/evil',
          LD_PRELOAD: '/evil.so',
          NODE_OPTIONS: '--evil',
          'content-type': 'text/plain',
          'a.b': 'dot',
          'a-b': 'dash',
          A_B: 'first by name',
          RESPOOL_ID: 'evil',
        },
      },
      { inherit: ['PATH'] },
    );
    expect(seen).toMatchObject({
      PATH: process.env['PATH'],
      RESPOOL_HEADER_PATH: '/evil',
      RESPOOL_HEADER_LD_PRELOAD: '/evil.so',
      RESPOOL_HEADER_CONTENT_TYPE: 'text/plain',
      RESPOOL_HEADER_A_B: 'first by name',
      RESPOOL_ID: 'message-1',
      RESPOOL_HEADER_RESPOOL_ID: 'evil',
    });
    expect(seen).not.toHaveProperty('LD_PRELOAD');
    expect(seen).not.toHaveProperty('NODE_OPTIONS');
  });
});

describe('the time limit', () => {
  /** Starts a script, waits until it has written a file, and lets the time pass. */
  async function overdue(text: (file: string) => string, waits: readonly string[]) {
    const file = path.join(await folder(), 'ready');
    const clock = new SimClock();
    const options = { timeout: '10m', killAfter: '1m' };
    const outcome = brief(makeExec([await script(text(file), 'slow.sh')], options, { clock }));
    const pids = await contentOf(file);
    for (const wait of waits) await clock.advance(wait);
    const line = (await outcome).replace(/"[^"]*slow\.sh"/, 'it');
    return { line, pids: pids.trim().split(' ').map(Number) };
  }

  test('ends the command and what it started', async () => {
    const { line, pids } = await overdue(
      (file) => `sleep 600 & echo waiting >&2; ${tell(file, '$! $$')}; wait`,
      ['10m'],
    );
    expect(line).toBe('transient exec.timeout: it did not finish within 10m: waiting');
    expect(pids).toHaveLength(2);
    for (const pid of pids) await gone(pid);
  });

  test('kills what does not end when it is told to', async () => {
    const { line, pids } = await overdue(
      (file) => `trap '' TERM; ${tell(file, '$$')}; while true; do sleep 0.05; done`,
      ['10m', '1m'],
    );
    expect(line).toContain('transient exec.timeout');
    for (const pid of pids) await gone(pid);
  });

  test('kills a child that does not end when it is told to, though the command did', async () => {
    const { line, pids } = await overdue(
      (file) => `sh -c 'trap "" TERM; ${tell(file, '$$')}; while true; do sleep 0.05; done' & wait`,
      ['10m', '1m'],
    );
    expect(line).toContain('transient exec.timeout');
    for (const pid of pids) await gone(pid);
  });

  test('counts though the command then says that all is well', async () => {
    const { line } = await overdue(
      (file) => `trap 'exit 0' TERM; ${tell(file, '$$')}; while true; do sleep 0.05; done`,
      ['10m'],
    );
    expect(line).toContain('transient exec.timeout: it did not finish within 10m');
  });

  test('is real time unless told otherwise', async () => {
    const { line } = await runScript('exec sleep 600', { timeout: '50ms' });
    expect(line).toContain('transient exec.timeout: it did not finish within 50ms');
  });

  test('is not needed when the delivery is called off', async () => {
    const abort = new AbortController();
    const ready = path.join(await folder(), 'ready');
    const file = await script(`${tell(ready, 'yes')}; exec sleep 600`);
    const outcome = brief(exec([file]), { signal: abort.signal });
    await contentOf(ready);
    abort.abort();
    expect(await outcome).toContain('transient exec.aborted');
    expect(await brief(exec([file]), { signal: abort.signal })).toContain('exec.aborted');
  });
});

describe('through the engine', () => {
  test('75 defers as the policy says, and the notes stay with the message', async () => {
    const { spool, clock } = await createTestSpool({ policies: { default: fixed('1h') } });
    onTestFinished(() => spool.stop());
    spool.handle('report', exec([await script('cat; exit 75')]));
    const deferred = new Promise<SpoolEvent>((resolve) => spool.on('deferred', resolve));
    const at = clock.now();
    const { id } = await spool.enqueue({ topic: 'report', body: 'hello' });
    await deferred;
    expect((await spool.get(id))?.status).toMatchObject({
      state: 'deferred',
      dueAt: at + 3_600_000,
      because: { code: 'exec.75' },
      notes: { 'exec-exit': '75', 'exec-output': 'hello' },
    });
  });
});

describe('exec() refuses', () => {
  const cases: readonly (readonly [string, unknown, unknown, string])[] = [
    ['a line for a shell', 'send.sh --fast', {}, 'there is no shell in between'],
    ['nothing', [], {}, 'a list such as'],
    ['an empty name', '', {}, 'a list such as'],
    ['no command', undefined, {}, 'a list such as'],
    ['an argument that is no text', ['a', 1], {}, 'a list such as'],
    ['NUL in an argument', ['a', 'b\0c'], {}, 'a list such as'],
    ['no options', 'a', null, 'options of exec()'],
    ['a strange name', 'a', { shell: true }, 'there is no option "shell" of exec()'],
    ['a folder that is no text', 'a', { cwd: 1 }, 'cannot use 1 as "cwd"'],
    ['our own variables', 'a', { env: { RESPOOL_ID: '1' } }, 'do not begin with RESPOOL_'],
    ['a strange variable', 'a', { env: { 'A=B': '1' } }, 'names of A-Z'],
    ['NUL in a variable', 'a', { env: { A: 'b\0' } }, 'without NUL'],
    ['a variable that is no text', 'a', { env: { A: 1 } }, 'as "env.A"'],
    ['one variable to inherit', 'a', { inherit: 'PATH' }, 'a list of texts'],
    ['no time at all', 'a', { timeout: 0 }, 'as "timeout"'],
    ['a wait that is none', 'a', { killAfter: 'x' }, 'as "killAfter"'],
    ['0 as a failure', 'a', { transient: [0] }, 'exit codes 1 to 255'],
    ['256 as an exit code', 'a', { permanent: [256] }, 'exit codes 1 to 255'],
    ['one exit code alone', 'a', { hold: 3 }, 'a list of exit codes'],
    ['an exit code in two lists', 'a', { hold: [3], permanent: [3] }, 'not in "permanent"'],
  ];
  test.each(cases)('%s', (_what, command, options, text) => {
    expect(() => exec(command as string, options as ExecOptions)).toThrow(
      expect.objectContaining({ code: 'config.invalid', message: expect.stringContaining(text) }),
    );
  });
});

describe('describe()', () => {
  test('gives the defaults as plain JSON', () => {
    expect(JSON.parse(JSON.stringify(exec(['./a.sh', 'b']).describe()))).toEqual({
      kind: 'exec',
      command: ['./a.sh', 'b'],
      env: {},
      inherit: expect.arrayContaining(['PATH', 'HOME', 'LANG', 'TZ']),
      timeoutMs: 300_000,
      killAfterMs: 5_000,
      transient: [75],
      permanent: [64, 65, 66, 67, 68, 77, 78],
      hold: [],
    });
  });

  test('leaves secrets out', () => {
    const secrets = ['--token', 'canary', '--api-key=canary', 'https://u:canary@example.com/'];
    const described = exec(['a', ...secrets], { env: { DB_PASSWORD: 'canary', MODE: 'x' } });
    expect(described.describe()).toMatchObject({
      command: ['a', '--token', '(secret)', '--api-key=(secret)', 'https://example.com/'],
      env: { DB_PASSWORD: '(secret)', MODE: 'x' },
    });
    expect(JSON.stringify(described.describe())).not.toContain('canary');
  });
});

/** Shell words that write a file in one step. */
function tell(file: string, words: string): string {
  return `echo ${words} > ${file}.new; mv ${file}.new ${file}`;
}

/** What is in a file, once it is there. */
async function contentOf(file: string): Promise<string> {
  for (;;) {
    const text = await readFile(file, 'utf8').catch(() => undefined);
    if (text !== undefined) return text;
  }
}

/** Resolves when there is no process of this id; the time limit of the test is the other end. */
async function gone(pid: number): Promise<void> {
  expect(pid).toBeGreaterThan(1);
  for (;;) {
    try {
      process.kill(pid, 0);
    } catch {
      return;
    }
    // A dead process that nobody has waited for yet is as good as gone.
    const state = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => ') X');
    if (/\) [ZX]/.test(state)) return;
  }
}
