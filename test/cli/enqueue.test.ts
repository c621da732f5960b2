/** enqueue — a body from anywhere, every option, and the id. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { type CallOptions, setup } from './setup.ts';

async function sent(words: readonly string[], options?: CallOptions) {
  const shell = await setup();
  const ran = await shell.cli(['enqueue', 'a.b', ...words, '--json'], options);
  expect(ran).toMatchObject({ code: 0, stderr: '' });
  const [{ id, duplicate } = {}] = ran.objects();
  expect(duplicate).toBe(false);
  const own = shell.spool();
  const { envelope, status } = (await own.get(String(id))) ?? {};
  const pieces: Uint8Array[] = [];
  for await (const piece of await own.body(String(id))) pieces.push(piece);
  return { envelope, status, body: Buffer.concat(pieces).toString('utf8') };
}

test('the id is printed, and nothing else', async () => {
  const { cli } = await setup();
  const ran = await cli(['enqueue', 'a.b', '--body', 'x']);
  expect(ran).toMatchObject({ code: 0, stderr: '' });
  expect(ran.stdout).toMatch(/^[0-9a-f-]{36}\n$/);
});

test('the body comes from an option, a pipe, - or a file', async () => {
  expect(await sent(['--body', '--json'])).toMatchObject({ body: '--json' });
  expect(await sent([], { stdin: 'piped' })).toMatchObject({ body: 'piped' });
  const tty = ['stdin' as const];
  expect(await sent(['-'], { stdin: 'typed', tty })).toMatchObject({ body: 'typed' });
  expect(await sent([], { stdin: 'never read', tty })).toMatchObject({ body: '' });
});

test('a large body is streamed from stdin, piece by piece', async () => {
  const pieces = Array.from({ length: 64 }, () => Buffer.alloc(16_384, 'x'));
  const { body, envelope } = await sent(['-'], { stdin: Readable.from(pieces) });
  expect(body.length).toBe(1_048_576);
  expect(envelope?.body.place).toBe('store');
});

test('a body from a file, by a path from the working directory', async () => {
  const { cli, folder } = await setup();
  await writeFile(path.join(folder, 'body.txt'), 'from a file');
  const ran = await cli(['enqueue', 'a', '--file', 'body.txt', '--id', 'one']);
  expect(ran.stdout).toBe('one\n');
  expect((await cli(['cat', 'one'])).stdout).toBe('from a file');
});

test('a JSON body is checked, and its type is said', async () => {
  const { envelope, body } = await sent(['--json-body', '{"a":1}']);
  expect(body).toBe('{"a":1}');
  expect(envelope?.headers).toEqual({ 'content-type': 'application/json' });
});

test('every option reaches the message', async () => {
  const { envelope, status } = await sent(
    (
      '--body x --content-type text/x --header a=b=c --header d= --policy default --priority 0 ' +
      '--delay 1h --expires 2h --destination shop --id my-id --dedupe-key k ' +
      '--order-key ann'
    ).split(' '),
  );
  expect(envelope).toMatchObject({
    id: 'my-id',
    topic: 'a.b',
    headers: { 'content-type': 'text/x', a: 'b=c', d: '' },
    priority: 0,
    destination: 'shop',
    dedupeKey: 'k',
    orderKey: 'ann',
  });
  const { enqueuedAt = 0, expiresAt = 0 } = envelope ?? {};
  expect(expiresAt - enqueuedAt).toBe(7_200_000);
  expect(status?.policy).toBe('default');
  expect((status?.dueAt ?? 0) - enqueuedAt).toBe(3_600_000);
});

test('a policy that nobody knows is warned of, and the message kept', async () => {
  const { cli } = await setup();
  const ran = await cli(['enqueue', 'a', '--body', 'x', '--policy', 'nope', '--id', 'one']);
  expect(ran).toMatchObject({ code: 0, stdout: 'one\n' });
  expect(ran.stderr).toBe('warning: policy "nope" is not known here: known are default\n');
});

test('a store that the system refuses is a sentence, and ends with 3', async () => {
  const { cli, folder } = await setup();
  await writeFile(path.join(folder, 'file'), 'x');
  for (const store of ['sqlite:./file/store', 'file:./file/store']) {
    const ran = await cli(['enqueue', 'a', '--body', 'x', '--store', store, '--json']);
    expect(ran.code).toBe(3);
    expect(JSON.parse(ran.stderr)).toMatchObject({ error: { code: 'store.unavailable' } });
  }
});

test('a duplicate prints the id of the first, and says so', async () => {
  const { cli } = await setup();
  const first = await cli(['enqueue', 'a', '--dedupe-key', 'k', '--body', 'x']);
  const again = await cli(['enqueue', 'a', '--dedupe-key', 'k', '--body', 'x']);
  expect(again).toMatchObject({ code: 0, stdout: first.stdout });
  expect(again.stderr).toMatch(/^a duplicate/);
  const json = await cli(['enqueue', 'a', '--dedupe-key', 'k', '--body', 'x', '--json']);
  expect(json.objects()).toEqual([{ id: first.stdout.trim(), duplicate: true }]);
});

test.each([
  [['a b'], /cannot use "a b" as topic/],
  [['a', 'text'], /cannot use "text" as the body/],
  [['a', '--body', 'x', '--file', 'y'], /only one body/],
  [['a', '--json-body', '{'], /it is no JSON/],
  [['a', '--json-body', '{"a":1,"a":2}'], /--json-body: duplicate key at character 8;/],
  [['a', '--json-body', String.raw`{"b":[{"a":1,"\u0061":2}]}`], /duplicate key at character 14;/],
  [['a', '--json-body', String.raw`{"a":"\ud800"}`], /text at character 6 has half of a surrogate/],
  [['a', '--json-body', String.raw`{"\udc00\ud800":1}`], /text at character 2 has half/],
  [['a', '--file', 'nowhere'], /cannot read the body from .*nowhere/],
  [['a', '--file', '.'], /it is a folder/],
  [['a', '--header', 'x'], /allowed is name=value/],
  [['a', '--header', 'x=1', '--header', 'x=2'], /--header x was given twice: give it once/],
  [['a', '--body', 'a\uFFFDb'], /cannot use body: the argument is not UTF-8/],
  [['a', '--header', 'x=\uFFFD'], /cannot use x: the argument is not UTF-8/],
  [['a', '--id', '\uFFFD', '--header', 'id=x'], /cannot use id: the argument is not UTF-8/],
  [['a', '--destination', '\uFFFD'], /cannot use destination: the argument is not UTF-8/],
  [['a', '--id', 'one', '--id', 'two'], /--id was given twice: give it once/],
  [['a', '--header', '__proto__=x'], /header name/],
  [['a', '--header', 'x=a\nb'], /control characters/],
  [['a', '--priority', '10'], /cannot use "10" as --priority/],
  [['a', '--delay', 'soon'], /cannot use "soon" as "--delay"/],
  [['a', '--expires', 'never'], /cannot use "never" as "--expires".*; see: respool enqueue --help/],
  [['a', '--file', '../respool-x/'], /cannot read the body from .*respool-x/],
  [['a', '--id', 'Not An Id'], /as id/],
  [[], /missing required argument "topic"/],
])('%j is wrong usage, and nothing is kept', async (words, text) => {
  const { cli } = await setup();
  const ran = await cli(['enqueue', ...words]);
  expect(ran).toMatchObject({ code: 2, stdout: '' });
  expect(ran.stderr).toMatch(text);
  expect((await cli(['list', '--json'])).stdout).toBe('');
});
