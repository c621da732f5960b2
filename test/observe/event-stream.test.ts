/** Events as an async iterator: `for await`, its end, its kinds, and a reader that is slow. */
import type { StreamedEvent } from 'respool';
import { describe, expect, test } from 'vitest';
import { setup, type World } from '../spool/setup.ts';

/** Enqueues so many, in one write each. */
async function accept({ spool }: World, count: number): Promise<void> {
  for (let at = 0; at < count; at += 1) await spool.enqueue({ topic: 'a' });
}

/** What is there now, without waiting for more. */
async function read(
  stream: AsyncIterator<StreamedEvent>,
  count: number,
): Promise<(StreamedEvent | undefined)[]> {
  const found: (StreamedEvent | undefined)[] = [];
  for (let at = 0; at < count; at += 1) {
    const { value } = (await stream.next()) as { value: StreamedEvent | undefined };
    found.push(value);
  }
  return found;
}

describe('a stream of events', () => {
  test('is read with for await, and left with break', async () => {
    const world = await setup({ isStarted: false });
    const stream = world.spool.events({ kinds: ['accepted'] });
    await accept(world, 3);
    const seen: string[] = [];
    for await (const event of stream) {
      seen.push(event.kind);
      if (seen.length === 2) break;
    }
    expect(seen).toEqual(['accepted', 'accepted']);
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  test('begins with its call, not with the first look', async () => {
    const world = await setup({ isStarted: false });
    await accept(world, 1);
    const stream = world.spool.events();
    const { id } = await world.spool.enqueue({ topic: 'b' });
    expect((await stream.next()).value).toMatchObject({ kind: 'accepted', id });
    await stream.return?.();
  });

  test('ends with its signal, also while somebody waits for the next', async () => {
    const world = await setup({ isStarted: false });
    const stop = new AbortController();
    const stream = world.spool.events({ signal: stop.signal });
    const waiting = stream.next();
    stop.abort();
    expect(await waiting).toEqual({ done: true, value: undefined });
    await accept(world, 1);
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  test('whose signal has fired before is over from the start', async () => {
    const { spool } = await setup({ isStarted: false });
    const stream = spool.events({ signal: AbortSignal.abort() });
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  test('stays open when the spool stops, until its signal', async () => {
    const world = await setup();
    const stop = new AbortController();
    const stream = world.spool.events({ signal: stop.signal });
    await world.spool.stop();
    expect(await read(stream, 1)).toMatchObject([{ kind: 'engine-stopped' }]);
    const waiting = stream.next();
    await world.spool.start();
    expect((await waiting).value).toMatchObject({ kind: 'engine-started' });
    stop.abort();
    expect((await stream.next()).done).toBe(true);
    await world.spool.stop();
  });

  test('has only the kinds that were asked for, each once', async () => {
    const world = await setup({ isStarted: false });
    const stream = world.spool.events({ kinds: ['paused', 'resumed', 'paused'] });
    await accept(world, 1);
    await world.spool.operator({ by: 'ops' }).pause('#');
    await world.spool.operator({ by: 'ops' }).resume('#');
    expect(await read(stream, 2)).toMatchObject([{ kind: 'paused' }, { kind: 'resumed' }]);
    await stream.return?.();
  });

  test('of a kind that does not exist is refused, and the answer names those that do', async () => {
    const { spool } = await setup({ isStarted: false });
    const open = (): unknown => spool.events({ kinds: ['delivered', 'archive' as never] });
    expect(open).toThrow(expect.objectContaining({ code: 'config.invalid' }));
    expect(open).toThrow(/"archive".*archived.*topology.*alert/);
  });

  test('goes to two readers whole, and one that leaves takes nothing from the other', async () => {
    const world = await setup({ isStarted: false });
    const one = world.spool.events();
    const other = world.spool.events();
    await accept(world, 1);
    expect(await read(one, 1)).toEqual(await read(other, 1));
    await one.return?.();
    await accept(world, 1);
    expect(await read(other, 1)).toMatchObject([{ kind: 'accepted' }]);
    await other.return?.();
  });

  test('keeps 1,000 events for who does not read, and tells how many were missed', async () => {
    const world = await setup({ isStarted: false });
    const stream = world.spool.events();
    await accept(world, 1_003);
    const kept = await read(stream, 1_000);
    expect(new Set(kept.map((event) => event?.kind))).toEqual(new Set(['accepted']));
    expect(await read(stream, 1)).toEqual([{ at: world.clock.now(), kind: 'missed', count: 3 }]);
    await accept(world, 1);
    expect(await read(stream, 1)).toMatchObject([{ kind: 'accepted' }]);
    await stream.return?.();
  });

  test('tells what was missed where it was missed', async () => {
    const world = await setup({ isStarted: false });
    const stream = world.spool.events();
    await accept(world, 1_001);
    await read(stream, 1);
    await world.spool.operator({ by: 'ops' }).pause('#');
    const rest = await read(stream, 1_001);
    expect(rest.at(-2)).toMatchObject({ kind: 'missed', count: 1 });
    expect(rest.at(-1)).toMatchObject({ kind: 'operator' });
    await stream.return?.();
  });
});
