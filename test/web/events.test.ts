/** What happens, as server-sent events. */
import { describe, expect, test } from 'vitest';
import { openWire, refusal, setup } from './setup.ts';

const LISTEN = 'GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n';

describe('events', () => {
  test('are told as they happen, each with its kind and one line of JSON', async () => {
    const { port, spool, ask } = await setup();
    const wire = await openWire(port, LISTEN);
    const head = await wire.until(/: listening/);
    expect(head).toMatch(/content-type: text\/event-stream/);
    await spool.enqueue({ topic: 'a', id: 'x' });
    await ask('/v1/messages/x?reason=two%0alines', { method: 'DELETE' });
    const text = await wire.until(/event: operator\n.*\n\n/);
    const [, data = ''] = /event: accepted\ndata: (.*)\n\n/.exec(text) ?? [];
    expect(JSON.parse(data)).toMatchObject({ kind: 'accepted', id: 'x', topic: 'a' });
  });

  test('are only those that were asked for', async () => {
    const { ask, spool } = await setup();
    const answer = await ask('/v1/events?kinds=operator,paused');
    await spool.enqueue({ topic: 'a', id: 'x' });
    await spool.pause();
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    while (!text.includes('event: paused')) text += (await reader?.read())?.value ?? '';
    await reader?.cancel();
    expect(text).not.toContain('accepted');
    expect(text).toContain('event: operator');
    expect((await ask('/v1/events?kinds=operator,nothing')).status).toBe(400);
  });

  test('have a sign of life every 15 s', async () => {
    const { port, clock } = await setup();
    const wire = await openWire(port, LISTEN);
    await wire.until(/: listening/);
    await clock.advance(14_999);
    expect(wire.received).not.toContain('still here');
    await clock.advance(1);
    await wire.until(/: still here\n\n/);
    await clock.advance('15s');
    await wire.until(/still here[^]*still here/);
  });

  test('are told to so many at once and no more, until one leaves', async () => {
    const { port, ask } = await setup();
    const wires = await Promise.all([1, 2, 3].map(() => openWire(port, LISTEN)));
    await Promise.all(wires.map((wire) => wire.until(/: listening/)));
    const refused = await ask('/v1/events');
    expect(refused.headers.get('retry-after')).toBe('5');
    expect(await refusal(refused)).toEqual([503, 'store.unavailable']);
    wires[0]?.socket.destroy();
    let answer = await ask('/v1/events');
    // The service hears of it a turn or two later.
    while (answer.status !== 200) answer = await ask('/v1/events');
    expect(answer.headers.get('content-type')).toMatch(/^text\/event-stream/);
    await answer.body?.cancel();
  });

  test('that are only asked about take nobody’s place', async () => {
    const { ask } = await setup();
    for (let at = 0; at < 5; at += 1) {
      expect((await ask('/v1/events', { method: 'HEAD' })).status).toBe(200);
    }
  });

  test('leave nothing behind when a listener goes', async () => {
    let isOver = false;
    const { port } = await setup({
      desk: () => ({
        events: ({ signal }) =>
          (async function* () {
            try {
              yield { at: 0, kind: 'engine-started' as const };
              await new Promise((resolve) => signal.addEventListener('abort', resolve));
            } finally {
              isOver = true;
            }
          })(),
      }),
    });
    const wire = await openWire(port, LISTEN);
    await wire.until(/: listening/);
    wire.socket.destroy();
    await expect.poll(() => isOver).toBe(true);
  });
});
