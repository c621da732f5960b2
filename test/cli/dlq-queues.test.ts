/** dlq list, show, export, count, groups, remove, purge and restore — over queues of RabbitMQ. */
import { readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { AmqpMessage } from 'respool/rabbit';
import { OWN_LIMIT } from '../rabbit/queues/queues.ts';
import { Tray } from '../rabbit/ground.ts';
import { withService } from '../services/index.ts';
import { rabbitShell, type RabbitShell } from './rabbit-broker.ts';
import { audited } from './steering.ts';

interface QueueShell extends RabbitShell {
  readonly queue: string;
  /** Everything that lies in a queue, as it lies; taken out. */
  readonly drained: (queue: string) => Promise<readonly AmqpMessage[]>;
  readonly declare: (queue: string, args?: Record<string, unknown>) => Promise<void>;
}

/** A broker with a classic dead queue of this test. */
async function queueShell(): Promise<QueueShell> {
  const shell = await rabbitShell();
  const { channel, prefix, configure } = shell;
  const queue = `${prefix}.orders.dlq`;
  await configure({});
  const declare: QueueShell['declare'] = async (name, args = {}) => {
    await channel.assertQueue(name, { durable: true, arguments: args });
  };
  await declare(queue);
  return {
    ...shell,
    queue,
    declare,
    drained: async (name) => {
      const { messageCount } = await channel.checkQueue(name);
      const tray = new Tray<AmqpMessage>();
      const { consumerTag } = await channel.consume(name, (message) => {
        if (message === null) return;
        channel.ack(message);
        tray.add(message);
      });
      const messages = await tray.until(messageCount);
      await channel.cancel(consumerTag);
      return messages;
    },
  };
}

const QUORUM = { 'x-queue-type': 'quorum', ...OWN_LIMIT };

function deadHeaders(code: string, reason: string): Record<string, unknown> {
  return {
    'respool-code': code,
    'respool-reason': reason,
    'respool-attempts': 3,
    'respool-ended': 'dead',
    'respool-ended-code': code,
    'respool-ended-reason': reason,
    'respool-ended-at': 1_700_000_000_000,
  };
}

async function withThree(): Promise<QueueShell> {
  const shell = await queueShell();
  const { put, queue } = shell;
  const of = (messageId: string, code: string, reason: string): object => ({
    messageId,
    contentType: 'application/json',
    headers: deadHeaders(code, reason),
  });
  await put(queue, ['{"n":1}'], of('Order.1', 'http.404', 'no order 1'));
  await put(queue, ['{"n":2}'], of('Order.2', 'http.404', 'no order 2'));
  await put(queue, ['{"n":3}'], of('Order.3', 'http.503', 'busy'));
  return shell;
}

withService('rabbitmq', () => {
  describe('looking into queues', () => {
    test('shows the same as for the spool, and everything stays as it was', async () => {
      const { cli, queue, drained, folder } = await withThree();
      const at = ['--queue', queue];
      const ran = await cli(['dlq', 'list', ...at]);
      expect(ran.code, ran.stderr).toBe(0);
      expect(ran.stdout.split('\n')[0]).toMatch(/^id +died +place +topic +code +reason +deaths/);
      const letters = (await cli(['dlq', 'list', ...at, '--json'])).objects();
      expect(letters).toMatchObject([
        { id: 'Order.1', kind: 'dead', place: queue, code: 'http.404', category: 'not-found' },
        { id: 'Order.2', reason: 'no order 2', attempts: 3 },
        { id: 'Order.3', category: 'resource', diedAt: 1_700_000_000_000 },
      ]);
      const [full] = (await cli(['dlq', 'show', 'Order.2', ...at, '--json'])).objects();
      expect(full).toMatchObject({ id: 'Order.2', json: { n: 2 } });
      expect((await cli(['dlq', 'show', 'Order.2', ...at])).stdout).toMatch(/"n": 2/);
      const several = await cli(['dlq', 'show', 'Order', ...at]);
      expect(several).toMatchObject({ code: 2, stdout: '' });
      expect(several.stderr).toContain('several ids: Order.1, Order.2, Order.3');
      const lines = (await cli(['dlq', 'export', ...at, '--category', 'resource'])).objects();
      expect(lines).toMatchObject([{ id: 'Order.3', json: { n: 3 } }]);
      const groups = (await cli(['dlq', 'groups', ...at, '--json'])).objects();
      expect(groups).toMatchObject([
        { code: 'http.404', count: 2, at: queue, samples: ['Order.1', 'Order.2'] },
        { code: 'http.503', count: 1 },
      ]);
      expect(await readdir(folder)).toEqual(['respool.config.json']);
      const left = await drained(queue);
      expect(left.map(({ properties }) => properties.messageId)).toEqual([
        'Order.1',
        'Order.2',
        'Order.3',
      ]);
    });

    test('of ids that Respool made, the beginning is enough to show and to remove one', async () => {
      const { cli, queue, put, drained } = await queueShell();
      const head = '01a1e06c-024e-7719-9c3b';
      const ids = [`${head}-8ad06b36cc9c`, `${head}-8ad1ffff0000`, 'Order.1'];
      for (const messageId of ids) await put(queue, ['x'], { messageId });
      const at = ['--queue', queue];
      const several = await cli(['dlq', 'remove', head, ...at]);
      expect(several).toMatchObject({ code: 2, stdout: '' });
      expect(several.stderr).toContain('is the beginning of several ids');
      const foreign = await cli(['dlq', 'remove', 'Order', ...at]);
      expect(foreign).toMatchObject({ code: 1 });
      expect(foreign.stderr).toContain('"Order.1" is like that');
      for (const typed of [`${head}-8ad1`, `${head}…0000`]) {
        const shown = (await cli(['dlq', 'show', typed, ...at, '--json'])).objects();
        expect(shown).toMatchObject([{ id: ids[1] }]);
      }
      const removed = await cli(['dlq', 'remove', `${head}…0000`, ...at, '--json']);
      expect(removed.objects()).toMatchObject([{ removed: 1, unknown: 0 }]);
      const left = (await drained(queue)).map(({ properties }) => properties.messageId);
      expect(left).toEqual([ids[0], 'Order.1']);
    });

    test('of a consumer of the configuration it is known where its letters belong', async () => {
      const { cli, configure, prefix, put, depth } = await queueShell();
      const queue = `${prefix}.work`;
      const deliver = { exec: ['true'] };
      const consumer = { queue, topology: { shared: { prefix } }, waits: [], deliver };
      await configure({ consumers: [{ ...consumer, policy: { ladder: ['1h'] } }] });
      expect((await cli(['rabbit', 'topology', 'apply', '--yes'])).code).toBe(0);
      const [dead, parked] = [`${queue}.dlq`, `${queue}.parked`];
      await put(dead, ['a'], { messageId: 'one' });
      await put(parked, ['b'], { messageId: 'two' });
      const ran = await cli(['dlq', 'list', '--queue', `${queue}.*`, '--json']);
      expect(ran.objects(), ran.stderr).toMatchObject([
        { id: 'one', place: dead, kind: 'dead', home: { kind: 'queue', exchange: '', key: queue } },
        { id: 'two', place: parked, kind: 'parked', home: { kind: 'queue', key: queue } },
      ]);
      const [first] = (await cli(['dlq', 'groups', '--queue', dead, '--json'])).objects();
      expect(first).toMatchObject({ at: queue, count: 1 });
      expect((await cli(['dlq', 'remove', 'one', '--queue', dead])).stdout).toBe('removed 1\n');
      expect(await depth(dead)).toBe(0);
      expect((await cli(['dlq', 'restore', 'one'])).stdout).toBe('restored 1\n');
      await expect.poll(() => depth(dead)).toBe(1);
    });

    test('patterns choose queues, each once, and counts need no look', async () => {
      const { cli, prefix, queue, put, declare, url, channel } = await queueShell();
      await declare(`${prefix}.mail.dlq`);
      await declare(`${prefix}.other`);
      await channel.assertQueue(`${prefix}.own.dlq`, { exclusive: true });
      await put(queue, ['a', 'b']);
      await put(`${prefix}.mail.dlq`, ['c']);
      const words = ['--queue', `${prefix}.*.dlq`, '--queue', `${prefix}.mail.*`];
      const [counts] = (await cli(['dlq', 'count', ...words, '--url', url, '--json'])).objects();
      expect(counts).toMatchObject({
        by: 'place',
        total: 3,
        rows: [
          { key: queue, count: 2 },
          { key: `${prefix}.mail.dlq`, count: 1 },
        ],
      });
      const [byCode] = (await cli(['dlq', 'count', ...words, '--by', 'topic', '--json'])).objects();
      expect(byCode).toMatchObject({ by: 'topic', total: 3 });
    });

    test('a pattern that fits no queue is refused, with what there is', async () => {
      const { cli, prefix, queue } = await queueShell();
      const ran = await cli(['dlq', 'list', '--queue', `${prefix}.nothing.*`]);
      expect(ran.code).toBe(2);
      expect(ran.stderr).toContain(`no queue matches "${prefix}.nothing.*"`);
      const one = await cli(['dlq', 'list', '--queue', queue, '--queue', `${prefix}.x`]);
      expect(one.stderr).toContain(`no queue matches "${prefix}.x"`);
    });

    test('without the management API names do, and patterns do not', async () => {
      const { cli, queue, put, folder, url, prefix } = await queueShell();
      await put(queue, ['a']);
      await writeFile(
        path.join(folder, 'respool.config.json'),
        JSON.stringify({ rabbit: { url } }),
      );
      const trusted = await cli(['dlq', 'list', '--queue', queue, '--trust-limit', '--json']);
      expect(trusted.objects(), trusted.stderr).toHaveLength(1);
      const pattern = await cli(['dlq', 'list', '--queue', `${prefix}.*`, '--trust-limit']);
      expect(pattern.code).toBe(3);
      expect(pattern.stderr).toContain('name it with --management-url');
      const missing = await cli(['dlq', 'list', '--queue', `${prefix}.x`, '--trust-limit']);
      expect(missing.code).not.toBe(0);
      expect(missing.stderr).toContain(`${prefix}.x`);
    });

    test('where looking is counted, that is said first', async () => {
      const { cli, prefix, put, declare } = await queueShell();
      const quorum = `${prefix}.quorum.dlq`;
      await declare(quorum, QUORUM);
      await put(quorum, ['a']);
      const ran = await cli(['dlq', 'list', '--queue', quorum, '--json']);
      expect(ran.code, ran.stderr).toBe(0);
      expect(ran.objects()).toHaveLength(1);
      expect(ran.stderr).toMatch(/^queue ".+": RabbitMQ \S+ counts each look as a delivery/);
    });

    test('where looking could drop a message it is refused, with what lifts that', async () => {
      const { cli, prefix, put, declare, queue, depth } = await queueShell();
      const limited = `${prefix}.limited.dlq`;
      await declare(limited, { ...QUORUM, 'x-delivery-limit': 3 });
      await put(limited, ['a']);
      await put(queue, ['b']);
      for (const words of [['list'], ['purge', '--count', '1'], ['groups']]) {
        const ran = await cli(['dlq', ...words, '--queue', limited]);
        expect(ran.code).toBe(1);
        expect(ran.stderr).toContain(`cannot look into queue "${limited}"`);
      }
      const both = await cli(['dlq', 'list', '--queue', `${prefix}.*.dlq`, '--json']);
      expect(both.code).toBe(1);
      expect(both.objects()).toMatchObject([{ place: queue }]);
      const purged = await cli(['dlq', 'purge', '--queue', `${prefix}.*.dlq`, '--count', '1']);
      expect(purged.code).toBe(1);
      expect([await depth(limited), await depth(queue)]).toEqual([1, 1]);
    });
  });

  describe('removing from queues', () => {
    test('keeps a copy in the spool first, and restore puts it back as it was', async () => {
      const shell = await withThree();
      const { cli, queue, depth, drained } = shell;
      const ran = await cli(['dlq', 'remove', 'Order.2', '--queue', queue, '--reason', 'why']);
      expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'removed 1\n' });
      expect(await depth(queue)).toBe(2);
      const [copy] = (await cli(['dlq', 'list', '--kind', 'archived', '--json'])).objects();
      expect(copy).toMatchObject({
        kind: 'archived',
        headers: { 'respool-original-of': 'Order.2' },
      });
      expect((await audited(shell))[0]).toMatchObject({
        action: 'dlq.remove',
        details: { places: [{ kind: 'queue', queue }], ids: ['Order.2'], count: 1, reason: 'why' },
      });
      // It has no handler in the spool: nobody may send it there by accident.
      expect((await cli(['retry', String(copy?.['id'])])).code).toBe(1);
      const back = await cli(['dlq', 'restore', 'Order.2']);
      expect(back, back.stderr).toMatchObject({ code: 0, stdout: 'restored 1\n' });
      expect((await cli(['dlq', 'list', '--kind', 'archived', '--json'])).objects()).toEqual([]);
      const there = await drained(queue);
      const again = there.find(({ properties }) => properties.messageId === 'Order.2');
      expect(again?.content.toString()).toBe('{"n":2}');
      expect(again?.properties).toMatchObject({
        contentType: 'application/json',
        headers: { 'respool-code': 'http.404', 'respool-reason': 'no order 2' },
      });
      expect(there).toHaveLength(3);
    });

    test('restore --queue asks, and brings back all that was kept of it', async () => {
      const { cli, queue, depth, prefix } = await withThree();
      await cli(['dlq', 'purge', '--queue', queue, '--count', '3']);
      expect(await depth(queue)).toBe(0);
      const words = ['dlq', 'restore', '--queue', `${prefix}.*`];
      expect((await cli(words)).code).toBe(4);
      expect((await cli([...words, '--dry-run'])).stdout).toBe('would restore 3 letters\n');
      const one = await cli([...words, '--yes', '--limit', '1', '--json']);
      expect(one.objects()).toMatchObject([{ result: 'done', to: queue }]);
      const rest = await cli([...words, '--yes']);
      expect(rest, rest.stderr).toMatchObject({ code: 0, stdout: 'restored 2\n' });
      expect(await depth(queue)).toBe(3);
      const none = await cli([...words, '--yes']);
      expect(none.stdout).toBe('nothing was kept there; nothing to do\n');
    });

    test('what cannot be put back stays in the archive', async () => {
      const { cli, queue, channel } = await withThree();
      await cli(['dlq', 'remove', 'Order.1', '--queue', queue]);
      await channel.deleteQueue(queue);
      const ran = await cli(['dlq', 'restore', 'Order.1']);
      expect(ran.code).toBe(1);
      expect(ran.stdout).toBe('restored 0, refused 1\n');
      expect((await cli(['dlq', 'list', '--kind', 'archived', '--json'])).objects()).toHaveLength(
        1,
      );
    });

    test('a filter removes what fits, and what is left and what comes back is in order', async () => {
      const { cli, queue, put, drained } = await queueShell();
      const bodies = Array.from({ length: 250 }, (_, at) => `${at}`);
      for (const [at, body] of bodies.entries()) {
        const code = at % 2 === 0 ? 'http.404' : 'http.503';
        await put(queue, [body], { messageId: `m${at}`, headers: deadHeaders(code, 'x') });
      }
      const words = ['dlq', 'remove', '--queue', queue, '--category', 'not-found', '--yes'];
      const ran = await cli([...words, '--json']);
      expect(ran.code, ran.stderr).toBe(0);
      expect(ran.objects()).toMatchObject([{ count: 125, removed: 125, failed: 0, gone: 0 }]);
      const kept = (await cli(['dlq', 'export', '--kind', 'archived'])).objects();
      expect(kept.map(({ text }) => Number(text))).toEqual(
        bodies.map(Number).filter((at) => at % 2 === 0),
      );
      const numbers = async (): Promise<number[]> =>
        (await drained(queue)).map(({ content }) => Number(content.toString()));
      expect(await numbers()).toEqual(bodies.map(Number).filter((at) => at % 2 === 1));
      const back = await cli(['dlq', 'restore', '--queue', queue, '--yes']);
      expect(back, back.stderr).toMatchObject({ code: 0, stdout: 'restored 125\n' });
      expect(await numbers()).toEqual(bodies.map(Number).filter((at) => at % 2 === 0));
    });

    test('--hard keeps no copy', async () => {
      const { cli, queue, depth } = await withThree();
      const ran = await cli(['dlq', 'purge', '--queue', queue, '--hard', '--count', '3']);
      expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'removed for good 3\n' });
      expect(await depth(queue)).toBe(0);
      expect((await cli(['dlq', 'list', '--kind', 'archived', '--json'])).objects()).toEqual([]);
    });

    test('--count that differs changes nothing', async () => {
      const { cli, queue, depth } = await withThree();
      expect((await cli(['dlq', 'purge', '--queue', queue, '--count', '2'])).code).toBe(4);
      expect(await depth(queue)).toBe(3);
    });

    test('without a store that takes the copy nothing is removed', async () => {
      const { cli, queue, depth, folder } = await withThree();
      await writeFile(path.join(folder, 'taken'), 'a file');
      const store = ['--store', 'sqlite:./taken/below'];
      const ran = await cli(['dlq', 'remove', 'Order.1', '--queue', queue, ...store]);
      expect(ran.code).toBe(3);
      expect(await depth(queue)).toBe(3);
    });

    test('what does not fit into the spool is left, and the rest is removed', async () => {
      const { cli, queue, put, depth } = await withThree();
      const headers = { ...deadHeaders('x', 'y'), large: 'x'.repeat(40 * 1024) };
      await put(queue, ['large'], { messageId: 'Order.4', headers });
      const ran = await cli(['dlq', 'purge', '--queue', queue, '--count', '4']);
      expect(ran.code).toBe(1);
      expect(ran.stdout).toBe('removed 3, left 1\n');
      expect(ran.stderr).toContain('Order.4: cannot keep a copy');
      expect(await depth(queue)).toBe(1);
    });

    test('any number of those that do not fit leaves room for the others', async () => {
      const { cli, queue, put, depth } = await queueShell();
      const headers = { large: 'x'.repeat(40 * 1024) };
      for (let at = 0; at < 130; at += 1)
        await put(queue, ['large'], { headers, messageId: `l${at}` });
      await put(queue, ['a', 'b']);
      const ran = await cli(['dlq', 'purge', '--queue', queue, '--count', '132']);
      expect(ran.stdout, ran.stderr).toBe('removed 2, left 130\n');
      expect(ran.stderr).toContain('and 120 more');
      expect(await depth(queue)).toBe(130);
    });

    test('goes through a service, with the broker named beside it', async () => {
      const { cli, start, queue, depth, url } = await withThree();
      const service = start(['serve', '--json', '--port', '0']);
      onTestFinished(async () => {
        service.signal('SIGTERM');
        await service.ended;
      });
      const [, address = ''] = await service.printed(/"url":"(http:[^"]+)"/);
      const at = ['--url', address, '--broker', url];
      const ran = await cli(['dlq', 'remove', 'Order.1', '--queue', queue, ...at]);
      expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'removed 1\n' });
      expect(await depth(queue)).toBe(2);
      const kept = await cli(['dlq', 'list', '--kind', 'archived', '--json', '--url', address]);
      expect(kept.objects(), kept.stderr).toHaveLength(1);
      const back = await cli(['dlq', 'restore', 'Order.1', ...at]);
      expect(back, back.stderr).toMatchObject({ code: 0, stdout: 'restored 1\n' });
      expect(await depth(queue)).toBe(3);
    });
  });
});
