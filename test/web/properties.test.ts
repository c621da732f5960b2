/** Whatever is sent: it is kept as it is, or refused; never an error of ours, never half. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { bytesOf } from '../spool/setup.ts';
import { json, setup, type World } from './setup.ts';

const RUNS = 300;
const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.string({ unit: 'grapheme', maxLength: 40 }),
  fc.constantFrom('__proto__', 'constructor', 'prototype', 'a\r\nb: c', 'a\0', '../x', '\u2028'),
);

/** Posts it; what was kept must be what was sent. */
async function postAndCompare({ post, spool }: World, message: Sent): Promise<void> {
  const answer = await post('/v1/messages', message);
  expect([200, 201, 400]).toContain(answer.status);
  if (answer.status === 400) return;
  const { id } = await json<{ id: string }>(answer);
  const { envelope } = (await spool.get(id)) ?? {};
  expect(envelope?.topic).toBe(message.topic);
  expect(envelope?.headers).toEqual(message.headers);
  for (const [name, value] of Object.entries(message.headers)) {
    expect(name).toMatch(/^[\w.-]{1,128}$/);
    // oxlint-disable-next-line no-control-regex -- control characters are exactly what is refused.
    expect(value).not.toMatch(/[\u0000-\u001f\u007f-\u009f]/);
  }
  expect((await bytesOf(await spool.body(id))).toString()).toBe(message.bodyText);
}

interface Sent {
  readonly topic: string;
  readonly headers: Record<string, string>;
  readonly bodyText: string;
}

test('headers and topics of any text', async () => {
  const world = await setup({ isListening: false });
  const sent = fc.record({
    topic: fc.oneof({ weight: 5, arbitrary: fc.constant('a.b') }, anyText),
    headers: fc
      .array(fc.tuple(fc.oneof(fc.stringMatching(/^[a-z.-]{1,9}$/), anyText), anyText), {
        maxLength: 4,
      })
      // Not by assignment: "__proto__" has to be a name like any other here.
      .map((pairs) => Object.fromEntries(pairs)),
    bodyText: fc.string({ unit: 'grapheme' }),
  });
  await fc.assert(
    fc.asyncProperty(sent, (message) => postAndCompare(world, message)),
    { numRuns: RUNS },
  );
});

test('ids of any text', async () => {
  const { ask, store } = await setup({ isListening: false });
  // Every client takes "." and ".." out of a path by itself, and asks for another address.
  const sendable = anyText.filter((id) => id !== '.' && id !== '..');
  await fc.assert(
    fc.asyncProperty(sendable, async (id) => {
      const before = store.faults.count();
      const { status } = await ask(`/v1/messages/${encodeURIComponent(id.toWellFormed())}/body`);
      const isId = /^[0-9a-z][0-9a-z_-]{0,63}$/.test(id);
      if (isId) expect(status).toBe(404);
      else expect([store.faults.count(), [400, 404, 405].includes(status)]).toEqual([before, true]);
    }),
    { numRuns: RUNS },
  );
});

test('JSON of any shape, to every path that takes it', async () => {
  const { post, spool } = await setup({ isListening: false });
  await spool.enqueue({ topic: 'a', id: 'x' });
  const paths = ['/v1/messages', '/v1/bulk', '/v1/pause', '/v1/messages/x/hold', '/v1/check'];
  const name = fc.oneof(
    fc.constantFrom('topic', 'headers', 'action', 'filter', 'ids', 'reason', 'repair', 'body'),
    anyText,
  );
  const { tree } = fc.letrec((tie) => ({
    tree: fc.oneof(
      { maxDepth: 3 },
      fc.jsonValue(),
      fc.dictionary(name, tie('tree'), { maxKeys: 4 }),
      fc.array(tie('tree'), { maxLength: 3 }),
    ),
  }));
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...paths), tree, async (path, value) => {
      const { status } = await post(path, value);
      expect([path, status < 500]).toEqual([path, true]);
    }),
    { numRuns: RUNS },
  );
  expect(Object.keys(Object.prototype)).toEqual([]);
});

test('query parameters of any text', async () => {
  const { ask } = await setup({ isListening: false });
  const names = ['state', 'topic', 'header', 'limit', 'after', 'text', 'olderThan', 'dueAfter'];
  const pairs = fc.array(fc.tuple(fc.oneof(fc.constantFrom(...names), anyText), anyText), {
    maxLength: 3,
  });
  await fc.assert(
    fc.asyncProperty(pairs, async (given) => {
      const query = new URLSearchParams();
      for (const [name, value] of given) query.append(name.toWellFormed(), value.toWellFormed());
      const { status } = await ask(`/v1/messages?${query.toString()}`);
      expect([200, 400]).toContain(status);
    }),
    { numRuns: RUNS },
  );
});
