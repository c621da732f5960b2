/** begin: a streamed enqueue that is visible with its commit and not before (R3). */
import { describe, expect, test } from 'vitest';
import { bytesOf, codeOf, rejection, setup } from './setup.ts';

describe('a streamed enqueue', () => {
  test('has its id up front and is visible only after the commit', async () => {
    const { spool, clock } = await setup();
    const seen: string[] = [];
    spool.handle('report', async (delivery) => void seen.push(await delivery.text()));
    const tx = await spool.begin({ topic: 'report' });
    expect(tx.id).toMatch(/^[0-9a-z-]{36}$/);
    await tx.write('Hello, ');
    await tx.write(Buffer.from('world'));
    await clock.advance('1h');
    expect(await spool.get(tx.id)).toBeUndefined();
    expect((await spool.page()).entries).toEqual([]);
    expect(seen).toEqual([]);
    expect(await tx.commit()).toEqual({ id: tx.id, duplicate: false });
    await clock.settle();
    expect(seen).toEqual(['Hello, world']);
  });

  test('takes every option of enqueue, an own id too', async () => {
    const { spool } = await setup();
    const tx = await spool.begin({ topic: 'a', id: 'mine', priority: 1, delay: '1h' });
    expect(tx.id).toBe('mine');
    await tx.commit();
    const entry = await spool.get('mine');
    expect(entry).toMatchObject({ envelope: { priority: 1 }, status: { state: 'deferred' } });
    expect(await bytesOf(await spool.body('mine'))).toHaveLength(0);
    const again = await spool.begin({ topic: 'a', id: 'mine' });
    expect(await again.commit()).toEqual({ id: 'mine', duplicate: true });
  });

  test('takes headers until the commit, over those of the beginning', async () => {
    const { spool } = await setup();
    const tx = await spool.begin({ topic: 'a', headers: { a: '1', b: '1' } });
    tx.setHeader('b', '2');
    tx.setHeaders({ c: '3', d: '4' });
    await tx.commit();
    expect((await spool.get(tx.id))?.envelope.headers).toEqual({ a: '1', b: '2', c: '3', d: '4' });
  });

  test('refuses headers that enqueue would refuse, and goes on', async () => {
    const { spool } = await setup();
    const tx = await spool.begin({ topic: 'a' });
    expect(() => tx.setHeader('bad name', 'x')).toThrow('bad name');
    expect(() => tx.setHeader('n', 'x'.repeat(40_000))).toThrow('32768');
    await tx.commit();
    expect((await spool.get(tx.id))?.envelope.headers).toEqual({});
  });

  test('commits once: a second commit answers the same', async () => {
    const { spool, count } = await setup();
    const tx = await spool.begin({ topic: 'a' });
    await tx.write('x');
    const [one, two] = await Promise.all([tx.commit(), tx.commit()]);
    expect(two).toEqual(one);
    expect(await tx.commit()).toEqual(one);
    expect(count('insert')).toBe(1);
  });

  test('aborts once, leaves nothing, and cannot be committed any more', async () => {
    const { spool, bodies } = await setup();
    const tx = await spool.begin({ topic: 'a' });
    await tx.write(Buffer.alloc(100_000));
    await tx.write(Buffer.alloc(100_000));
    await tx.abort();
    await tx.abort();
    expect(await codeOf(tx.commit())).toBe('message.invalid');
    expect(await codeOf(tx.write('x'))).toBe('message.invalid');
    expect(() => tx.setHeader('a', 'b')).toThrow('aborted');
    expect(await spool.get(tx.id)).toBeUndefined();
    let refs = 0;
    for await (const _ of bodies.refs(Number.MAX_SAFE_INTEGER)) refs += 1;
    expect(refs).toBe(0);
  });

  test('ignores an abort after the commit, and refuses a write', async () => {
    const { spool, status } = await setup();
    const tx = await spool.begin({ topic: 'a' });
    await tx.commit();
    await tx.abort();
    expect((await status(tx.id)).state).toBe('incoming');
    const error = await rejection(tx.write('late'));
    expect(error.message).toContain('committed');
  });

  test('is aborted by leaving its scope without a commit', async () => {
    const { spool } = await setup();
    let id: string;
    {
      await using tx = await spool.begin({ topic: 'a' });
      await tx.write('half');
      id = tx.id;
    }
    expect(await spool.get(id)).toBeUndefined();
    {
      await using tx = await spool.begin({ topic: 'a' });
      await tx.write('whole');
      await tx.commit();
      id = tx.id;
    }
    expect(await bytesOf(await spool.body(id))).toEqual(Buffer.from('whole'));
  });

  // Regression: writes that were not awaited one by one waited for ever, or were lost.
  test('keeps every write in order, also those that nobody awaited', async () => {
    const { spool } = await setup();
    const tx = await spool.begin({ topic: 'a' });
    const writes = Array.from({ length: 50 }, (_, at) => tx.write(`${at} `));
    await tx.commit();
    await Promise.all(writes);
    const body = await bytesOf(await spool.body(tx.id));
    expect(String(body)).toBe(Array.from({ length: 50 }, (_, at) => `${at} `).join(''));
  });

  test('copies what is written: the buffer may be used again at once', async () => {
    const { spool } = await setup();
    const tx = await spool.begin({ topic: 'a' });
    const buffer = Buffer.from('aaaa');
    const first = tx.write(buffer);
    buffer.fill('b');
    const second = tx.write(buffer);
    buffer.fill('c');
    await Promise.all([first, second]);
    await tx.commit();
    expect(String(await bytesOf(await spool.body(tx.id)))).toBe('aaaabbbb');
  });

  test('may write text in parts that divide a character', async () => {
    const { spool } = await setup();
    const tx = await spool.begin({ topic: 'a' });
    for (const part of ['a\uD83D', '\uDE00b']) await tx.write(part);
    await tx.commit();
    expect(String(await bytesOf(await spool.body(tx.id)))).toBe('a😀b');
  });

  test.each([
    ['a part', ['a\uD83Db']],
    ['its last part', ['a\uD83D']],
    ['a part before bytes', ['a\uD83D', Buffer.from('b')]],
  ])('with half a surrogate pair in %s is refused, not changed', async (_, parts) => {
    const { spool } = await setup();
    const tx = await spool.begin({ topic: 'a' });
    for (const part of parts) await tx.write(part).catch(() => undefined);
    const refused = await rejection(tx.commit());
    expect(refused.code).toBe('message.invalid');
    expect(String(refused)).toContain('half a surrogate pair');
    expect(await spool.get(tx.id)).toBeUndefined();
  });

  test.each([[5], [[1, 2]], [undefined]])(
    'cannot write %j, which is neither bytes nor text',
    async (no) => {
      const { spool } = await setup();
      const tx = await spool.begin({ topic: 'a' });
      expect(await codeOf(tx.write(no as never))).toBe('message.invalid');
      await tx.write('goes on');
      await tx.commit();
      expect(String(await bytesOf(await spool.body(tx.id)))).toBe('goes on');
    },
  );

  test('that grows past the limit fails, in its writes and in its commit', async () => {
    const { spool } = await setup({ limits: { bodyBytes: 100 } });
    const tx = await spool.begin({ topic: 'a' });
    await tx.write(Buffer.alloc(90));
    await tx.write(Buffer.alloc(20)).catch(() => undefined);
    expect(await codeOf(tx.commit())).toBe('limit.exceeded');
    expect(await spool.get(tx.id)).toBeUndefined();
  });

  test('whose body store fails says so in a write or in the commit', async () => {
    const { spool, bodies } = await setup();
    bodies.faults.plan = (operation) => (operation === 'put' ? 'before' : 'ok');
    const tx = await spool.begin({ topic: 'a' });
    for (let at = 0; at < 10; at += 1) {
      await tx.write(Buffer.alloc(10_000)).catch(() => undefined);
    }
    expect(await codeOf(tx.commit())).toBe('store.unavailable');
    expect(await spool.get(tx.id)).toBeUndefined();
  });

  test('refuses a bad message when it begins', async () => {
    const { spool } = await setup();
    expect(await codeOf(spool.begin({ topic: '' }))).toBe('message.invalid');
  });
});
