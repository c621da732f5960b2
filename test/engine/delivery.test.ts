/** What a handler sees of its message (R84, R85, R89, R90). */
import { fixed, PermanentError, type Delivery } from 'respool';
import { describe, expect, test } from 'vitest';
import { bytesOf, rejection, setup } from '../spool/setup.ts';

describe('a delivery', () => {
  test('tells id, topic, headers, envelope, lane and attempt', async () => {
    const { spool, clock } = await setup({ policies: { default: fixed('1m') } });
    const seen: Partial<Delivery>[] = [];
    spool.handle('mail.*', ({ id, topic, headers, lane, attempt, envelope }) => {
      seen.push({ id, topic, headers, lane, attempt, envelope });
      throw new Error('no');
    });
    const { id } = await spool.enqueue({ topic: 'mail.x', headers: { a: 'b' }, priority: 2 });
    await clock.advance('1m');
    const same = { id, topic: 'mail.x', headers: { a: 'b' }, lane: 'delivery' };
    expect(seen).toMatchObject([
      { ...same, attempt: 1, envelope: { priority: 2 } },
      { ...same, attempt: 2 },
    ]);
  });

  test('tells the last failure and the notes of earlier attempts', async () => {
    const { spool, clock } = await setup({ policies: { default: fixed('1m') } });
    const seen: unknown[] = [];
    spool.handle('a', (delivery) => {
      seen.push({ code: delivery.lastFailure?.code, notes: { ...delivery.notes } });
      delivery.note(`n${delivery.attempt}`, 'x');
      throw Object.assign(new Error('no'), { code: `E${delivery.attempt}` });
    });
    await spool.enqueue({ topic: 'a' });
    await clock.advance('2m');
    expect(seen).toEqual([
      { code: undefined, notes: {} },
      { code: 'e1', notes: { n1: 'x' } },
      { code: 'e2', notes: { n1: 'x', n2: 'x' } },
    ]);
  });

  test('has a fence of its own in every attempt', async () => {
    const { spool, clock } = await setup({ policies: { default: fixed('1m') } });
    const fences: string[] = [];
    spool.handle('a', ({ fence }) => {
      fences.push(fence);
      throw new Error('no');
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('2m');
    expect(new Set(fences).size).toBe(3);
    for (const fence of fences) expect(fence).toContain(id);
  });

  test('has a signal that is not aborted while all is well', async () => {
    const { spool, clock } = await setup();
    let isAborted: boolean | undefined;
    spool.handle('a', ({ signal }) => void (isAborted = signal.aborted));
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(isAborted).toBe(false);
  });
});

describe('notes', () => {
  test('are kept on success, when the message is archived', async () => {
    const { spool, clock, status } = await setup({ retention: { delivered: { archive: '1d' } } });
    spool.handle('a', (delivery) => delivery.note('remote-queue-id', 'q-1'));
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(await status(id)).toMatchObject({
      state: 'archived',
      notes: { 'remote-queue-id': 'q-1' },
    });
  });

  test('are kept on failure, on bounce and over a time-out', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    spool.handle('fail', (delivery) => {
      delivery.note('a', '1');
      throw new Error('no');
    });
    spool.handle('never', (delivery) => {
      delivery.note('a', '1');
      throw new PermanentError('x', 'no');
    });
    spool.handle(
      'hang',
      (delivery) => {
        delivery.note('a', '1');
        return new Promise(() => undefined);
      },
      { timeout: '1s' },
    );
    for (const topic of ['fail', 'never', 'hang']) {
      const { id } = await spool.enqueue({ topic });
      await clock.advance('1s');
      expect([topic, (await status(id)).notes]).toEqual([topic, { a: '1' }]);
    }
  });

  test('are bounded and checked; a bad note fails in the handler’s hands', async () => {
    const { spool, clock, status } = await setup({ retention: { delivered: { archive: '1d' } } });
    const errors: unknown[] = [];
    const attempt = (work: () => void): void => {
      try {
        work();
      } catch (error) {
        errors.push((error as { code: string }).code);
      }
    };
    spool.handle('a', (delivery) => {
      attempt(() => delivery.note('bad name', 'x'));
      attempt(() => delivery.note('__proto__', 'x'));
      attempt(() => delivery.note('n', 1 as unknown as string));
      delivery.note('long', 'x'.repeat(5_000));
      for (let at = 0; at < 64; at += 1) attempt(() => delivery.note(`n${at}`, 'x'));
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(errors).toEqual([
      'message.invalid',
      'message.invalid',
      'message.invalid',
      'limit.exceeded',
    ]);
    const { notes } = await status(id);
    expect(Object.keys(notes)).toHaveLength(64);
    expect(notes['long']).toHaveLength(4_096);
  });
});

describe('the body of a delivery', () => {
  async function deliver(body: unknown, work: (delivery: Delivery) => unknown): Promise<unknown> {
    const { spool, clock } = await setup({ policies: { default: fixed('1h') } });
    let result: unknown;
    spool.handle('a', async (delivery) => {
      result = await work(delivery);
    });
    await spool.enqueue({ topic: 'a', body });
    await clock.settle();
    return result;
  }

  test('body() refuses what is larger than asked for, and stream() still gives it', async () => {
    const result = await deliver(Buffer.alloc(50_000), async (delivery) => {
      const error = await rejection(delivery.body({ maxBytes: 49_999 }));
      const whole = await delivery.body({ maxBytes: 50_000 });
      return [error.code, whole.byteLength, (await bytesOf(delivery.stream())).byteLength];
    });
    expect(result).toEqual(['limit.exceeded', 50_000, 50_000]);
  });

  test('body() gives the same bytes again without reading again', async () => {
    const { spool, clock, bodies } = await setup();
    spool.handle('a', async (delivery) => {
      await delivery.body();
      await delivery.text();
      await delivery.json();
    });
    await spool.enqueue({ topic: 'a', body: `"${'x'.repeat(50_000)}"` });
    await clock.settle();
    expect(bodies.faults.count('get')).toBe(1);
  });

  test.each([
    ['text() of bytes that are not UTF-8', Uint8Array.of(0xc3, 0x28), 'text', 'not UTF-8'],
    ['json() of text that is not JSON', '{', 'json', 'not JSON'],
  ] as const)('%s holds the message with body.invalid', async (_, body, method, text) => {
    const { spool, clock, status } = await setup();
    spool.handle('a', async (delivery) => void (await delivery[method]()));
    const { id } = await spool.enqueue({ topic: 'a', body });
    await clock.settle();
    const { state, because } = await status(id);
    expect(state).toBe('hold');
    expect(because?.code).toBe('body.invalid');
    expect(because?.text).toContain(text);
  });

  test('a handler may catch what is wrong with the text and go on', async () => {
    const { spool, clock } = await setup();
    spool.handle('a', async (delivery) => {
      await delivery.json().catch(() => delivery.text());
    });
    const { id } = await spool.enqueue({ topic: 'a', body: 'plain' });
    await clock.settle();
    expect(await spool.get(id)).toBeUndefined();
  });

  test('of nothing is empty bytes and empty text', async () => {
    const result = await deliver(undefined, async (delivery) => [
      (await delivery.body()).byteLength,
      await delivery.text(),
    ]);
    expect(result).toEqual([0, '']);
  });
});
