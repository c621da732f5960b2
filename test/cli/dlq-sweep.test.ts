/** dlq sweep — once, over queues of the real broker. */
import { describe, expect, test } from 'vitest';
import { lockQueue } from '../../src/rabbit/queues/lock.ts';
import { HEADER } from '../../src/rabbit/message-history.ts';
import { Hands } from '../rabbit/ground.ts';
import { withService } from '../services/index.ts';
import { died, sweepShell } from './sweep-ground.ts';
import { connectAmqp } from '../rabbit/amqp.ts';

withService('rabbitmq', () => {
  describe('queues and targets', () => {
    test('wildcards carry what they stood for into the target', async () => {
      const { lay, sweep, prefix, depth } = await sweepShell();
      await lay('dlq.orders', [4, 3, 5]);
      await lay('dlq.users', [1, 9]);
      await lay('other', [9]);
      const ran = await sweep('--queue', `${prefix}.dlq.*`, '--target', `${prefix}.dead.*`);
      expect(ran, ran.stderr).toMatchObject({ code: 0 });
      expect(ran.stdout).toMatch(/moved 3, left 2 in 2 queues/);
      expect(await depth(`${prefix}.dead.orders`)).toBe(2);
      expect(await depth(`${prefix}.dead.users`)).toBe(1);
      expect(await depth(`${prefix}.dlq.orders`)).toBe(1);
      expect(await depth(`${prefix}.other`)).toBe(1);
      const moved = await (await Hands.open()).take(`${prefix}.dead.orders`);
      expect(moved.content.toString()).toBe('dlq.orders-0');
      expect(moved.properties).toMatchObject({ messageId: 'dlq.orders-0', deliveryMode: 2 });
      expect(moved.properties.headers).toMatchObject({
        [HEADER.sweptFrom]: `${prefix}.dlq.orders`,
      });
    });

    test('several patterns may go to one fixed target', async () => {
      const { lay, sweep, prefix, depth } = await sweepShell();
      await lay('a.dlq', [4]);
      await lay('b?', [4]);
      const words = ['--queue', `${prefix}.*.dlq`, '--queue', `${prefix}.b?`];
      const ran = await sweep(...words, '--target', `${prefix}.failed`, '--json');
      expect(ran, ran.stderr).toMatchObject({ code: 0 });
      expect(await depth(`${prefix}.failed`)).toBe(2);
    });

    test('what stays lies in its old order', async () => {
      const { lay, sweep, prefix } = await sweepShell();
      const queue = await lay('dlq', [1, 9, 2, 9, 3]);
      await sweep('--queue', queue, '--target', `${prefix}.failed`);
      const hands = await Hands.open();
      const left = [await hands.take(queue), await hands.take(queue), await hands.take(queue)];
      expect(left.map(({ content }) => content.toString())).toEqual(['dlq-0', 'dlq-2', 'dlq-4']);
    });

    test('a queue that fails does not stop the others', async () => {
      const { lay, sweep, prefix, depth, channel } = await sweepShell();
      const [a] = [await lay('dlq.a', [4]), await lay('dlq.b', [4])];
      await channel.assertQueue(`${prefix}.dead.b`, { durable: true });
      const words = ['--queue', `${prefix}.dlq.*`, '--target', `${prefix}.dead.*`];
      const ran = await sweep(...words, '--require-target');
      expect(ran, ran.stdout).toMatchObject({ code: 1 });
      expect(ran.stderr).toContain(a);
      expect(await depth(a)).toBe(1);
      expect(await depth(`${prefix}.dead.b`)).toBe(1);
      const again = await sweep(...words);
      expect(again, again.stderr).toMatchObject({ code: 0 });
      expect(await depth(`${prefix}.dead.a`)).toBe(1);
    });

    test('a queue that somebody else sweeps is left alone', async () => {
      const { lay, sweep, prefix, depth, url } = await sweepShell();
      const queue = await lay('dlq', [4]);
      const connection = await connectAmqp(url);
      const lock = await lockQueue(connection, queue);
      const words = ['--queue', queue, '--target', `${prefix}.failed`, '--json'];
      try {
        const ran = await sweep(...words);
        expect(ran, ran.stderr).toMatchObject({ code: 1 });
        expect(ran.objects()).toMatchObject([{ status: 'error', total: { moved: 0 } }]);
      } finally {
        if (lock !== 'elsewhere') await lock.release();
        await connection.close();
      }
      expect(await depth(queue)).toBe(1);
      expect(await sweep(...words)).toMatchObject({ code: 0 });
    });

    test('a pattern that fits nothing, and a broker that is away, are said', async () => {
      const { sweep, prefix } = await sweepShell();
      const words = ['--queue', `${prefix}.none.*`, '--target', `${prefix}.failed`];
      const none = await sweep(...words);
      expect(none.code).not.toBe(3);
      const away = await sweep(...words, '--url', 'amqp://127.0.0.1:1');
      expect(away).toMatchObject({ code: 3, stdout: '' });
      expect(away.stderr).toContain('cannot connect to RabbitMQ');
      const old = await sweep('--host', '127.0.0.1', '--port', '1', '--output-format', 'json');
      expect(old, old.stderr).toMatchObject({ code: 1 });
      expect(old.objects()).toMatchObject([{ status: 'error', results: { moved: 0 } }]);
    });
  });

  describe('options', () => {
    test('--max says how often a message may die', async () => {
      const { lay, sweep, prefix, depth } = await sweepShell();
      const queue = await lay('dlq', [5]);
      const words = ['--queue', queue, '--target', `${prefix}.failed`, '--max'];
      await sweep(...words, '5');
      expect(await depth(queue)).toBe(1);
      await sweep(...words, '4');
      expect(await depth(queue)).toBe(0);
    });

    test('--count-reasons and --count-queues say which deaths count', async () => {
      const { lay, sweep, prefix, depth } = await sweepShell();
      const deaths = [
        died(3, { reason: 'rejected', queue: 'work' }),
        died(2, { reason: 'expired', queue: 'work' }),
        died(4, { reason: 'rejected', queue: 'side' }),
      ];
      const queue = await lay('dlq', [0], { 'x-death': deaths });
      const words = ['--queue', queue, '--target', `${prefix}.failed`, '--max', '4', '--dry-run'];
      const movedBy = async (...more: string[]): Promise<unknown> =>
        (await sweep(...words, ...more, '--json')).objects()[0]?.['total'];
      expect(await movedBy()).toMatchObject({ moved: 1 });
      expect(await movedBy('--count-reasons', 'expired')).toMatchObject({ moved: 0 });
      expect(await movedBy('--count-reasons', 'rejected')).toMatchObject({ moved: 1 });
      expect(await movedBy('--count-queues', 'side')).toMatchObject({ moved: 0 });
      expect(await movedBy('--count-queues', 'w?rk')).toMatchObject({ moved: 1 });
      const both = ['--count-queues', 'w*', '--count-reasons', 'rejected'];
      expect(await movedBy(...both)).toMatchObject({ moved: 0 });
      expect(await depth(queue)).toBe(1);
    });

    test('--dry-run says what it would move, and moves and makes nothing', async () => {
      const { lay, sweep, prefix, depth, cli } = await sweepShell();
      const queue = await lay('dlq', [4, 1]);
      const words = ['--queue', queue, '--target', `${prefix}.failed`, '--dry-run'];
      const ran = await sweep(...words);
      expect(ran, ran.stderr).toMatchObject({ code: 0 });
      expect(ran.stdout).toContain('would move 1, left 1 in 1 queue');
      expect(ran.stdout.split('\n')[0]).toMatch(/there +would move +left +unseen +end/);
      expect(await depth(queue)).toBe(2);
      // There is no target, so nothing could have been moved there.
      const target = await cli(['dlq', 'sweep', '--queue', `${prefix}.fail*`, '--target', 'x']);
      expect(`${target.stdout}${target.stderr}`).not.toContain('moved 1');
    });

    test('--limit ends a run after so many, and the next goes on', async () => {
      const { lay, sweep, prefix, depth } = await sweepShell();
      const queue = await lay('dlq', [4, 4, 4]);
      const words = ['--queue', queue, '--target', `${prefix}.failed`, '--limit', '2'];
      const ran = await sweep(...words, '--window', '1', '--parallel', '1');
      expect(ran, ran.stderr).toMatchObject({ code: 0 });
      expect(await depth(`${prefix}.failed`)).toBe(2);
      // What was there is what became of it: the third was seen, or not looked at.
      const [head = '', row = ''] = ran.stdout.split('\n');
      expect(head).toMatch(/there +moved +left +unseen +end/);
      const [there, moved, left, unseen] = row.split(/ {2,}/).slice(2, 6).map(Number);
      expect([there, moved, (left ?? 0) + (unseen ?? 0)]).toEqual([3, 2, 1]);
      await sweep(...words);
      expect(await depth(`${prefix}.failed`)).toBe(3);
    });

    test('--quiet leaves the table out, and the audit record tells what was swept', async () => {
      const { lay, sweep, prefix, cli } = await sweepShell();
      const queue = await lay('dlq', [4]);
      const words = ['--queue', queue, '--target', `${prefix}.failed`];
      const ran = await sweep(...words, '--quiet');
      expect(ran.stdout.trim().split('\n')).toHaveLength(1);
      const records = (await cli(['audit', '--json'])).objects();
      expect(records).toMatchObject([{ action: 'dlq.sweep', by: 'tester@cli' }]);
      expect(JSON.stringify(records)).toContain(queue);
    });

    test('--json prints one object with the old names and ours, and no secret', async () => {
      const { lay, sweep, prefix, url } = await sweepShell();
      await lay('dlq.a', [4, 1]);
      await lay('dlq.b', [5]);
      const words = ['--queue', `${prefix}.dlq.*`, '--target', `${prefix}.dead.*`, '--max', '3'];
      const ran = await sweep(...words, '--json');
      const { port, hostname } = new URL(url);
      expect(ran.objects()).toMatchObject([
        {
          status: 'success',
          timestamp: expect.stringMatching(/^\d{4}-.*Z$/) as string,
          config: {
            host: hostname,
            port: Number(port),
            vhost: '/',
            use_ssl: false,
            dlq_name: `${prefix}.dlq.*`,
            target_queue: `${prefix}.dead.*`,
            max_retry_count: 3,
          },
          results: { messages_processed: 3, moved: 2, requeued: 1 },
          queue_statistics: {
            [`${prefix}.dlq.a`]: { messages_processed: 2, moved: 1, requeued: 1 },
            [`${prefix}.dlq.b`]: { target_queue: `${prefix}.dead.b`, moved: 1 },
          },
          dryRun: false,
          total: { total: 3, seen: 3, moved: 2, left: 1, already: 0 },
          queues: [
            {
              queue: `${prefix}.dlq.a`,
              target: `${prefix}.dead.a`,
              moved: 1,
              left: 1,
              end: 'done',
            },
            { queue: `${prefix}.dlq.b`, moved: 1, left: 0 },
          ],
        },
      ]);
      expect(ran.stdout).not.toMatch(/password|guest/);
    });
  });
});
