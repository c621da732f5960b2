/** cat — bytes to a pipe, safe text or hex to a terminal. */
import { expect, test } from 'vitest';
import { setup } from './setup.ts';

const TTY = { tty: ['stdout'] as const };

async function with1(body: string | Uint8Array) {
  const shell = await setup({ hasStore: true });
  const own = shell.spool();
  await own.enqueue({ id: 'one', topic: 'a', body });
  await own.stop();
  return shell;
}

test('the bytes go to a pipe as they are', async () => {
  const body = Uint8Array.from({ length: 200_000 }, (_, at) => at % 256);
  const { cli } = await with1(body);
  const ran = await cli(['cat', 'one']);
  expect(ran.code).toBe(0);
  expect(ran.bytes.equals(body)).toBe(true);
});

test('a terminal shows text without what it would obey', async () => {
  const { cli } = await with1('one\n\u001b[2Jtwo\u001b]52;c;QQ==\u0007\tthree\n');
  expect((await cli(['cat', 'one'], TTY)).stdout).toBe('one\ntwo\tthree\n');
});

test('--raw writes the bytes to a terminal too', async () => {
  const { cli } = await with1('\u001b[2J');
  expect((await cli(['cat', 'one', '--raw'], TTY)).stdout).toBe('\u001b[2J');
});

test('a terminal shows hex for what is no text', async () => {
  const { cli } = await with1(Uint8Array.from([0, 1, 0x41, 0xff]));
  expect((await cli(['cat', 'one'], TTY)).stdout).toMatch(/^00000000 {2}00 01 41 ff +\.\.A\.\n$/);
});

test('a terminal shows 64 KiB, cut between characters, and says so', async () => {
  const { cli } = await with1('ä'.repeat(40_000) + 'x');
  const odd = await with1(`x${'ä'.repeat(40_000)}`);
  const ran = await cli(['cat', 'one'], TTY);
  expect(ran.stdout.trim()).toBe('ä'.repeat(32_768));
  expect(ran.stderr).toMatch(/cut after 65536 bytes/);
  expect((await odd.cli(['cat', 'one'], TTY)).stdout.trim()).toBe(`x${'ä'.repeat(32_767)}`);
});

test('with --json the body is a text, or base64', async () => {
  const text = await with1('hä');
  expect((await text.cli(['cat', 'one', '--json'])).objects()).toEqual([
    { id: 'one', encoding: 'utf8', body: 'hä' },
  ]);
  const bytes = await with1(Uint8Array.from([0xff, 0]));
  expect((await bytes.cli(['cat', 'one', '--json'])).objects()).toEqual([
    { id: 'one', encoding: 'base64', body: '/wA=' },
  ]);
});

test('a body too large for one line of JSON is refused', async () => {
  const { cli } = await with1('x'.repeat(16 * 2 ** 20 + 1));
  const ran = await cli(['cat', 'one', '--json']);
  expect(ran).toMatchObject({ code: 2, stdout: '' });
  expect(ran.stderr).toMatch(/larger than 16777216 bytes/);
});

test('an unknown message has no body', async () => {
  const { cli } = await setup({ hasStore: true });
  expect(await cli(['cat', 'nobody'])).toMatchObject({ code: 1, stdout: '' });
});

test('several bodies come one after the other, also by ids from stdin', async () => {
  const { cli } = await setup({ hasStore: true });
  for (const id of ['one', 'two']) {
    expect((await cli(['enqueue', 'a', '--id', id, '--body', `${id};`])).code).toBe(0);
  }
  expect((await cli(['cat', 'one', 'two'])).stdout).toBe('one;two;');
  const piped = await cli(['cat', '-'], { stdin: 'two\nno id!\none\n' });
  expect(piped).toMatchObject({ code: 1, stdout: 'two;one;' });
  expect(piped.stderr).toContain('line 2');
});
