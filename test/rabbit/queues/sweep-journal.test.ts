/** What a sweep that is killed remembers, so that the next one copies nothing twice. */

import { appendFile, mkdtemp, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { SimClock } from 'respool/testkit';
import { type AmqpMessage, type SweepJournal, sweepJournal } from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { numberOf, range } from './queues.ts';
import { died, openGround } from './sweep-ground.ts';

async function ownFile(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'respool-journal-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return join(folder, 'moved');
}

function messageOf(messageId: string | undefined, body = 'x', headers = {}): AmqpMessage {
  const fields = { deliveryTag: 1, redelivered: false, exchange: '', routingKey: '' };
  const properties = messageId === undefined ? { headers } : { headers, messageId };
  return { content: Buffer.from(body), fields, properties };
}

function idOf(queue: string, message: AmqpMessage, place?: string): string {
  const options = place === undefined ? {} : { place };
  const identity = sweepJournal('unused', options).identityOf(queue, message);
  if (identity === undefined) throw new Error('it has no identity');
  return identity;
}

/** A journal after a kill: as the next run opens it. */
async function opened(path: string, maxAgeMs?: number): Promise<SweepJournal> {
  const journal = sweepJournal(path, maxAgeMs === undefined ? {} : { maxAgeMs });
  await journal.open();
  onTestFinished(() => journal.close());
  return journal;
}

describe('the journal', () => {
  test('an entry stands for one message, and two entries for two', async () => {
    const path = await ownFile();
    const [a, b] = [idOf('q', messageOf('a')), idOf('q', messageOf('b'))];
    const killed = await opened(path);
    await Promise.all([killed.add(a), killed.add(b), killed.add(b)]);
    const next = await opened(path);
    expect([next.take(a), next.take(a)]).toEqual([true, false]);
    expect([next.take(b), next.take(b), next.take(b)]).toEqual([true, true, false]);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  });

  test('what a run moved itself is not taken for moved by another', async () => {
    const journal = await opened(await ownFile());
    const a = idOf('q', messageOf('a'));
    await journal.add(a);
    expect(journal.take(a)).toBe(false);
  });

  test('a queue that is settled is forgotten, and when all are the file is empty', async () => {
    const path = await ownFile();
    const killed = await opened(path);
    await killed.add(idOf('q', messageOf('a')));
    await killed.add(idOf('r', messageOf('a')));
    await killed.forget('q', true);
    const next = await opened(path);
    expect(next.take(idOf('q', messageOf('a')))).toBe(false);
    expect(next.take(idOf('r', messageOf('a')))).toBe(true);
    await next.close();
    expect(await readFile(path, 'utf8')).not.toBe('');
    const last = await opened(path);
    await last.forget('r', true);
    await last.close();
    expect(await readFile(path, 'utf8')).toBe('');
  });

  test('what an earlier run left stays when not all was seen', async () => {
    const path = await ownFile();
    const [a, b, c] = ['a', 'b', 'c'].map((id) => idOf('q', messageOf(id)));
    if (a === undefined || b === undefined || c === undefined) throw new Error('three');
    const killed = await opened(path);
    await killed.add(a);
    await killed.add(b);
    const short = await opened(path);
    expect(short.take(a)).toBe(true);
    await short.add(c);
    await short.forget('q', false);
    await short.close();
    const next = await opened(path);
    expect([next.take(a), next.take(b), next.take(c)]).toEqual([false, true, false]);
  });

  test('entries that are too old are ignored', async () => {
    const path = await ownFile();
    const clock = new SimClock();
    const journal = sweepJournal(path, { maxAgeMs: 1_000, clock });
    const a = idOf('q', messageOf('a'));
    await journal.open();
    await journal.add(a);
    await clock.advance(1_000);
    await journal.open();
    expect(journal.take(a)).toBe(true);
    await clock.advance(1);
    await journal.open();
    expect(journal.take(a)).toBe(false);
    await journal.close();
  });

  test('a line that a kill cut off, and lines of others, are not read', async () => {
    const path = await ownFile();
    const killed = await opened(path);
    const a = idOf('q', messageOf('a'));
    await killed.add(a);
    await appendFile(path, `something else\n\u0000\n+ 17000000000 0123456789`);
    const next = await opened(path);
    expect(next.take(a)).toBe(true);
    await next.add(a);
    expect((await opened(path)).take(a)).toBe(true);
  });

  test('what others wrote before stays when our lines are taken out', async () => {
    const path = await ownFile();
    const others = Buffer.from([0x6f, 0x6c, 0x64, 0x0a, 0xff, 0xfe, 0x0a]);
    await writeFile(path, others);
    for (let run = 0; run < 2; run += 1) {
      const journal = await opened(path);
      await journal.add(idOf('q', messageOf('a')));
      await journal.forget('q', true);
      await journal.close();
      expect(await readFile(path)).toEqual(others);
    }
  });

  test('a file that is too large for a journal is refused, and left as it is', async () => {
    const path = await ownFile();
    const bytes = 256 * 2 ** 20 + 1;
    await writeFile(path, '');
    await truncate(path, bytes);
    const journal = sweepJournal(path);
    await expect(journal.open()).rejects.toThrow(/not a sweep journal/);
    await journal.close();
    expect((await stat(path)).size).toBe(bytes);
  });

  test('a file that cannot be used is named', async () => {
    const path = await ownFile();
    await writeFile(path, '');
    const journal = sweepJournal(join(path, 'below'));
    await expect(journal.open()).rejects.toMatchObject({ code: 'store.unavailable' });
    await expect(journal.add('x')).rejects.toThrow(/cannot write the journal/);
    expect(() => sweepJournal(path, { maxAgeMs: 0 })).toThrow(/maxAgeMs/);
  });

  test('messages are told apart by queue, id, body and headers, not by counters', () => {
    const first = idOf('q', messageOf('a', 'x', { h: 1 }));
    expect(idOf('q', messageOf('a', 'x', { h: 1, 'x-delivery-count': 5 }))).toBe(first);
    expect(idOf('r', messageOf('a', 'x', { h: 1 }))).not.toBe(first);
    expect(idOf('q', messageOf('b', 'x', { h: 1 }))).not.toBe(first);
    expect(idOf('q', messageOf('a', 'y', { h: 1 }))).not.toBe(first);
    expect(idOf('q', messageOf('a', 'x', { h: 2 }))).not.toBe(first);
    expect(sweepJournal('x').identityOf('q', messageOf(undefined))).toBeUndefined();
  });

  test('a queue of the same name at another broker is another queue', async () => {
    const path = await ownFile();
    const message = messageOf('a');
    const [here, there] = ['amqp://here/%2F', 'amqp://there/%2F'];
    expect(idOf('q', message, here)).not.toBe(idOf('q', message, there));
    const killed = await opened(path);
    await killed.add(idOf('q', message, here));
    const other = sweepJournal(path, { place: there });
    await other.open();
    expect(other.take(idOf('q', message, there))).toBe(false);
    await other.add(idOf('q', message, there));
    await other.forget('q', true);
    await other.close();
    expect((await opened(path)).take(idOf('q', message, here))).toBe(true);
  });

  test('what is out of the queue for certain stands for none, at once or with what comes', async () => {
    const path = await ownFile();
    const [a = '', b = '', c = ''] = ['a', 'b', 'c'].map((id) => idOf('q', messageOf(id)));
    const killed = await opened(path);
    await Promise.all([a, a, b, c].map((one) => killed.add(one)));
    killed.settle(a);
    await killed.strike(b);
    const next = await opened(path);
    expect([next.take(a), next.take(a)]).toEqual([true, false]);
    expect([next.take(b), next.take(c)]).toEqual([false, true]);
    next.settle(c);
    await next.close();
    expect((await opened(path)).take(c)).toBe(false);
  });
});

withService('rabbitmq', () => {
  test('a message that a killed sweep moved and did not ack is not copied again', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    const path = await ownFile();
    await queues.fill(queue, 10, () => died(9));
    await afterKill(path, queue, await lookedAt(queue));
    const report = await sweep({ queue, target, dedupe: sweepJournal(path) });
    expect(report).toMatchObject({ seen: 10, moved: 7, already: 3, end: 'done' });
    expect((await queues.takeAll(target, 7)).map(numberOf)).toEqual(range(10).slice(3));
    expect(await queues.hands.depth(queue)).toBe(0);
    expect(await readFile(path, 'utf8')).toBe('');
  });

  test('of two equal messages one entry stands for one', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    const path = await ownFile();
    for (let index = 0; index < 2; index += 1) {
      await queues.hands.publish('', queue, 'same', { ...died(9), messageId: 'same' });
    }
    const [one] = await lookedAt(queue);
    if (one === undefined) throw new Error('nothing there');
    await afterKill(path, queue, [one]);
    const report = await sweep({ queue, target, dedupe: sweepJournal(path) });
    expect(report).toMatchObject({ moved: 1, already: 1 });
    expect(await queues.hands.depth(target)).toBe(1);
  });

  test('a message that is equal to one that was moved and acked gets a copy of its own', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    const path = await ownFile();
    const twin = { ...died(9), messageId: 'twin' };
    await queues.hands.publish('', queue, 'twin', twin);
    await queues.fill(queue, 600, () => died(9));
    await queues.hands.publish('', queue, 'twin', twin);
    // All are given back once, so that nothing tells the second from one that comes back.
    await sweep({ queue, target, dryRun: true });
    const journal = sweepJournal(path);
    let kept = '';
    const dedupe = {
      ...bound(journal),
      add: async (identity: string) => {
        await journal.add(identity);
        kept = await readFile(path, 'utf8');
      },
    };
    expect(await sweep({ queue, target, dedupe, limit: 500 })).toMatchObject({ moved: 500 });
    // As if it had been killed with its last write.
    await writeFile(path, kept);
    const report = await sweep({ queue, target, dedupe: sweepJournal(path) });
    expect(report).toMatchObject({ moved: 102, already: 0 });
  });

  test('equal messages in hand together are copied, and neither is remembered', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    const path = await ownFile();
    const twin = { ...died(9), messageId: 'twin' };
    for (let index = 0; index < 3; index += 1) await queues.hands.publish('', queue, 'twin', twin);
    await sweep({ queue, target, dryRun: true });
    const journal = sweepJournal(path);
    const dedupe = { ...bound(journal), forget: () => Promise.resolve() };
    expect(await sweep({ queue, target, dedupe, limit: 2 })).toMatchObject({ moved: 2 });
    const report = await sweep({ queue, target, dedupe: sweepJournal(path) });
    expect(report).toMatchObject({ moved: 1, already: 0 });
  });

  test('equal messages without an id are copied, however often', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    const path = await ownFile();
    for (let index = 0; index < 2; index += 1) {
      await queues.hands.publish('', queue, 'same', died(9));
    }
    await lookedAt(queue);
    const report = await sweep({ queue, target, dedupe: sweepJournal(path) });
    expect(report).toMatchObject({ moved: 2, already: 0 });
  });

  test('what was never delivered before is copied, whatever the journal says', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair('classic');
    const path = await ownFile();
    await queues.fill(queue, 3, () => died(9));
    const seen = await lookedAt(queue);
    await afterKill(path, queue, seen);
    await queues.takeAll(queue, 3);
    await queues.fill(queue, 3, () => died(9));
    const report = await sweep({ queue, target, dedupe: sweepJournal(path) });
    expect(report).toMatchObject({ moved: 3, already: 0 });
  });

  test('a dry run leaves the journal as it is', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    const path = await ownFile();
    await queues.fill(queue, 10, () => died(9));
    await afterKill(path, queue, await lookedAt(queue));
    const dedupe = sweepJournal(path);
    expect(await sweep({ queue, target, dedupe, dryRun: true })).toMatchObject({ already: 0 });
    expect(await sweep({ queue, target, dedupe })).toMatchObject({ already: 3, moved: 7 });
  });

  test('a journal that cannot be written ends the sweep, and copies nothing again', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.fill(queue, 60, () => died(9));
    const journal = sweepJournal(await ownFile());
    const dedupe = { ...bound(journal), add: () => Promise.reject(new Error('disk is full')) };
    for (let left = 60; left > 0; left -= 20) {
      const report = await sweep({ queue, target, dedupe, window: 20 });
      expect(report).toMatchObject({ end: 'failed', error: 'disk is full' });
      const [here, there] = [await queues.hands.depth(queue), await queues.hands.depth(target)];
      expect(report.moved).toBeGreaterThan(0);
      expect(here + there).toBe(60);
    }
  });

  test('a journal that is no file is refused at once', async () => {
    const journal = sweepJournal('/dev/full');
    await expect(journal.open()).rejects.toThrow(/it is no file that keeps what is written/);
  });

  /** Looks at the first three, as a sweep before did: they come back as delivered before. */
  async function lookedAt(queue: string): Promise<AmqpMessage[]> {
    const { queues } = await openGround();
    const channel = await queues.hands.connection.createChannel();
    const seen: AmqpMessage[] = [];
    await channel.prefetch(3);
    const { messageCount } = await channel.checkQueue(queue);
    await new Promise<void>((resolve) => {
      void channel.consume(queue, (message) => {
        if (message !== null) seen.push(message);
        if (seen.length === Math.min(3, messageCount)) resolve();
      });
    });
    await channel.close();
    await expect.poll(() => queues.hands.depth(queue)).toBe(messageCount);
    return seen;
  }
});

/** As a run leaves it that was killed between its writes and its acks. */
async function afterKill(
  path: string,
  queue: string,
  moved: readonly AmqpMessage[],
): Promise<void> {
  const journal = sweepJournal(path);
  await journal.open();
  for (const message of moved) await journal.add(idOf(queue, message));
  await journal.close();
}

function bound(journal: SweepJournal): SweepJournal {
  return {
    open: () => journal.open(),
    take: (identity) => journal.take(identity),
    identityOf: (queue, message) => journal.identityOf(queue, message),
    settle: (identity) => journal.settle(identity),
    strike: (identity) => journal.strike(identity),
    add: (identity) => journal.add(identity),
    forget: (queue, isAllSeen) => journal.forget(queue, isAllSeen),
    close: () => journal.close(),
  };
}
