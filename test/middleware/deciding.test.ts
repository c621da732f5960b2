/** mapErrors, guard, when: they decide before or after the handler (R98). */
import { failed, failure, fixed, held, PermanentError, postponed, type Delivery } from 'respool';
import { guard, type GuardAnswer, mapErrors, when } from 'respool/middleware';
import { createTestSpool } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { failing } from '../spool/setup.ts';
import type { Entry, Handler, Middleware } from 'respool';

/** What becomes of one message. */
async function fate(
  middleware: Middleware,
  handler: Handler = () => undefined,
): Promise<Entry | undefined> {
  const { spool, clock } = await createTestSpool({
    policies: { default: fixed('1h') },
    retention: { delivered: { archive: '1d' } },
  });
  spool.handle('a', handler, { middleware: [middleware] });
  const { id } = await spool.enqueue({ topic: 'a', body: 'x', headers: { from: 'ann' } });
  await clock.settle();
  const entry = await spool.get(id);
  await spool.stop();
  return entry;
}

const throws = (): never => {
  throw new Error('status 410');
};

describe('mapErrors', () => {
  test('says what a thrown error means before it is classified', async () => {
    const mapped = mapErrors((thrown, { topic }) =>
      (thrown as Error).message === 'status 410'
        ? new PermanentError('http.410', `${topic} is gone`, { cause: thrown })
        : undefined,
    );
    expect((await fate(mapped, throws))?.status).toMatchObject({
      state: 'bounce',
      lastFailure: { code: 'http.410', reason: 'a is gone' },
    });
    const other = await fate(mapped, () => Promise.reject(new Error('status 500')));
    expect(other?.status.lastFailure).toMatchObject({
      permanence: 'transient',
      reason: 'status 500',
    });
  });

  test('may give an outcome', async () => {
    const mapped = mapErrors(async () => postponed('5m', 'the quota is used up'));
    expect((await fate(mapped, throws))?.status).toMatchObject({ state: 'deferred', attempts: 0 });
  });

  test('that throws is taken at its word', async () => {
    const mapped = mapErrors(() => {
      throw new PermanentError('gone', 'for good');
    });
    expect((await fate(mapped, throws))?.status).toMatchObject({ state: 'bounce' });
  });

  test('leaves an outcome alone that the handler returned', async () => {
    const mapped = mapErrors(() => new PermanentError('gone', 'for good'));
    const entry = await fate(mapped, () => failed(failure('transient', 'busy', 'later')));
    expect(entry?.status.lastFailure?.code).toBe('busy');
  });

  test('takes an error with a kind for an error', async () => {
    const mapped = mapErrors(() => Object.assign(new Error('odd'), { kind: 'delivered' }));
    expect((await fate(mapped, throws))?.status.lastFailure?.reason).toBe('odd');
  });
});

describe('guard', () => {
  test('lets pass what it says true to', async () => {
    const { handler, attempts } = failing(0);
    const entry = await fate(
      guard(async ({ headers }) => headers['from'] === 'ann'),
      handler,
    );
    expect(attempts).toEqual([1]);
    expect(entry?.status.ending).toBe('delivered');
  });

  test.each<[string, GuardAnswer, string]>([
    ['false', false, 'a guard refused the message'],
    ['a reason', 'the sender may not do this', 'the sender may not do this'],
    ['nothing', undefined as unknown as boolean, 'a guard answered undefined; only true lets'],
    ['1', 1 as unknown as boolean, 'a guard answered 1; only true lets'],
  ])('holds the message on %s, and the handler is not called', async (_, answer, reason) => {
    const { handler, attempts } = failing(0);
    const entry = await fate(
      guard(() => answer),
      handler,
    );
    expect(attempts).toEqual([]);
    expect(entry?.status).toMatchObject({ state: 'hold', because: { code: 'guard.refused' } });
    expect(entry?.status.because?.text).toContain(reason);
  });

  test('fails the message for good when it is told to', async () => {
    const entry = await fate(guard(() => 'no such sender', { refused: 'fail' }));
    expect(entry?.status).toMatchObject({
      state: 'bounce',
      lastFailure: { permanence: 'permanent', code: 'guard.refused', reason: 'no such sender' },
    });
  });

  test('may give any outcome', async () => {
    const entry = await fate(guard(() => held('unsigned', 'auth.unsigned')));
    expect(entry?.status.because).toMatchObject({ code: 'auth.unsigned', text: 'unsigned' });
  });

  test('that throws fails the attempt, which is tried again', async () => {
    const { handler, attempts } = failing(0);
    const entry = await fate(guard(throws), handler);
    expect(attempts).toEqual([]);
    expect(entry?.status).toMatchObject({ state: 'deferred', attempts: 1 });
  });

  test('sees the body, and the handler sees it too', async () => {
    const bodies: string[] = [];
    const checked = guard(async (delivery) => (await delivery.text()) === 'x');
    await fate(checked, async (delivery) => void bodies.push(await delivery.text()));
    expect(bodies).toEqual(['x']);
  });
});

describe('when', () => {
  test('goes through a middleware for some deliveries and past it for others', async () => {
    const refuse = guard(() => false);
    const isFrom =
      (name: string) =>
      async ({ headers }: Delivery) =>
        headers['from'] === name;
    expect((await fate(when(isFrom('ann'), refuse)))?.status.state).toBe('hold');
    expect((await fate(when(isFrom('bob'), refuse)))?.status.ending).toBe('delivered');
  });

  test('that cannot tell fails the attempt', async () => {
    const entry = await fate(
      when(
        throws,
        guard(() => true),
      ),
    );
    expect(entry?.status.lastFailure?.reason).toBe('status 410');
  });
});
