/** Every code of an error has its status; what can be tried again says when. */
import { ERROR_CODES, type ErrorCode, RespoolError } from 'respool';
import { expect, test } from 'vitest';
import { json, setup } from './setup.ts';

const STATUSES: Readonly<Partial<Record<ErrorCode, number>>> = {
  'store.unavailable': 503,
  'store.full': 507,
  'body.missing': 410,
  'move.refused': 409,
  'message.unknown': 404,
  'message.duplicate': 409,
  'message.invalid': 400,
  'policy.unknown': 400,
  'config.invalid': 400,
  'limit.exceeded': 400,
  'engine.stopping': 503,
};

const RETRY_AFTER: Readonly<Record<number, string>> = { 503: '5', 507: '30' };

test.each(ERROR_CODES)('%s is answered the same by raw and JSON posts', async (code) => {
  const { ask, post, spool } = await setup({
    operator: () => ({ enqueue: () => Promise.reject(new RespoolError(code, 'what happened')) }),
  });
  const answers = [
    await ask('/v1/topics/a/messages', { method: 'POST', body: 'x' }),
    await post('/v1/messages', { topic: 'a' }),
  ];
  for (const answer of answers) {
    const { status, headers } = answer;
    expect(status).toBe(STATUSES[code] ?? status);
    expect(status).toBeGreaterThanOrEqual(400);
    expect(headers.get('retry-after')).toBe(RETRY_AFTER[status] ?? null);
    expect(await json(answer)).toEqual({ error: { code, message: 'what happened' } });
  }
  expect((await spool.count()).incoming).toBe(0);
});
