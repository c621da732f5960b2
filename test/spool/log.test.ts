/** The logger gets a line for what happens, and never a body or a header (R33, R219). */
import { fixed, type Logger, PermanentError } from 'respool';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { failing, setup } from './setup.ts';

interface Line {
  readonly level: string;
  readonly fields: Record<string, unknown>;
  readonly text: string;
}

function makeLogger(): { logger: Logger; lines: Line[] } {
  const lines: Line[] = [];
  const at =
    (level: string) =>
    (fields: object, text: string): void =>
      void lines.push({ level, fields: fields as Record<string, unknown>, text });
  const logger = {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
  };
  return { logger, lines };
}

describe('the logger', () => {
  test('gets a line for every event, at the level it deserves', async () => {
    const { logger, lines } = makeLogger();
    const { spool, clock, store } = await setup({ logger, policies: { default: fixed('1m') } });
    spool.handle('a', failing(1).handler);
    spool.handle('b', failing(1, () => new PermanentError('x', 'y')).handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await spool.enqueue({ topic: 'b' });
    await clock.settle();
    store.faults.plan = (operation) => (operation === 'claim' ? 'before' : 'ok');
    await clock.advance('1m');
    store.faults.plan = () => 'ok';
    await clock.advance('1m');
    const levels = new Map(lines.map(({ level, text }) => [text, level]));
    expect(Object.fromEntries(levels)).toMatchObject({
      'engine-started': 'info',
      accepted: 'debug',
      started: 'debug',
      deferred: 'info',
      bounced: 'warn',
      delivered: 'info',
      'trouble claiming messages': 'error',
    });
    expect(lines.find(({ text }) => text === 'deferred')?.fields).toMatchObject({
      id,
      topic: 'a',
      attempt: 1,
    });
  });

  test('never gets a body, a header, a note or the details of an action', async () => {
    const { logger, lines } = makeLogger();
    const { spool, clock } = await setup({ logger, policies: { default: fixed('1m') } });
    const canary = 'canary-4711';
    spool.handle('a', (delivery) => {
      delivery.note('secret', canary);
      throw new Error('no');
    });
    spool.handle('json', async (delivery) => void (await delivery.json()));
    spool.handle('fit', () => undefined, { accepts: z.object({ n: z.number() }) });
    const rest = { body: `{"n": ${canary}`, headers: { token: canary } };
    const { id } = await spool.enqueue({ topic: 'a', ...rest });
    await spool.enqueue({ topic: 'json', ...rest });
    await spool.enqueue({ topic: 'fit', headers: { token: canary }, body: { n: canary } });
    await clock.settle();
    await spool.operator({ by: 'ops' }).setHeaders(id, { token: `${canary}-2` });
    await clock.advance('1h');
    expect(lines.length).toBeGreaterThan(10);
    expect(JSON.stringify(lines)).not.toContain('canary');
  });

  test('that throws harms nothing', async () => {
    const broken = (): void => {
      throw new Error('disk full');
    };
    const logger = { debug: broken, info: broken, warn: broken, error: broken };
    const { spool, clock } = await setup({ logger });
    spool.handle('a', () => undefined);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(await spool.get(id)).toBeUndefined();
  });
});
