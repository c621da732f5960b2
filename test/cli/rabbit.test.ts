/** rabbit stats, drain and doctor — against the real broker. */
import { describe, expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { rabbitShell, type RabbitShell } from './rabbit-broker.ts';
import { setup } from './setup.ts';

async function applied(more: object = {}): Promise<RabbitShell & { queue: string }> {
  const shell = await rabbitShell();
  const { prefix, cli, configure } = shell;
  const queue = `${prefix}.orders`;
  const consumer = {
    queue,
    topology: { shared: { prefix } },
    policy: { ladder: ['1h'] },
    waits: [],
    deliver: { exec: ['true'] },
    ...more,
  };
  await configure({ consumers: [consumer] });
  const ran = await cli(['rabbit', 'topology', 'apply', '--yes']);
  expect(ran.code, ran.stderr).toBe(0);
  return { ...shell, queue };
}

withService('rabbitmq', () => {
  describe('stats', () => {
    test('shows every queue with its role, and no message is touched', async () => {
      const { cli, queue, put, depth, prefix } = await applied();
      await put(`${queue}.dlq`, ['a', 'b']);
      const ran = await cli(['rabbit', 'stats']);
      expect(ran.code, ran.stderr).toBe(0);
      const lines = ran.stdout.split('\n');
      expect(lines[0]).toMatch(/^queue +role +ready/);
      for (const role of ['main', 'wait 1h', 'dead', 'parked', 'unrouted']) {
        expect(ran.stdout).toContain(` ${role} `);
      }
      expect(await depth(`${queue}.dlq`)).toBe(2);
      const [report = {}] = (await cli(['rabbit', 'stats', '--json'])).objects();
      expect(report).toMatchObject({ source: 'management' });
      const names = (report['queues'] as { name: string }[]).map(({ name }) => name);
      expect(names).toEqual(expect.arrayContaining([queue, `${prefix}.wait.3600s`]));
    });

    test('without the management API it tells what AMQP tells', async () => {
      const { cli, queue, put, url, configure, prefix } = await applied();
      await put(`${queue}.parked`, ['a']);
      const topology = { shared: { prefix } };
      const consumer = { queue, topology, policy: { ladder: ['1h'] }, waits: [] };
      const consumers = [{ ...consumer, deliver: { exec: ['true'] } }];
      await configure({ rabbit: { url }, consumers });
      const ran = await cli(['rabbit', 'stats', '--json']);
      expect(ran.stderr).toContain('without the management API');
      const [report] = ran.objects();
      expect(report).toMatchObject({ source: 'passive' });
      const queues = report?.['queues'] as { name: string; ready: number }[];
      expect(queues.find(({ name }) => name === `${queue}.parked`)?.ready).toBe(1);
    });

    test('a management API that was named has to answer', async () => {
      const { cli } = await applied();
      const ran = await cli(['rabbit', 'stats', '--management-url', 'http://127.0.0.1:1']);
      expect(ran.code).toBe(3);
    });

    test('--watch prints again until a signal', async () => {
      const { start } = await applied();
      const running = start(['rabbit', 'stats', '--watch', '--json']);
      await running.printed(/"source":"management"/);
      running.signal('SIGINT');
      const { code, objects } = await running.ended;
      expect(code).toBe(0);
      expect(objects().length).toBeGreaterThan(0);
    });

    test('--queue chooses among the consumers, and knows the others', async () => {
      const { cli, queue } = await applied();
      expect((await cli(['rabbit', 'stats', '--queue', queue])).code).toBe(0);
      const ran = await cli(['rabbit', 'stats', '--queue', 'other']);
      expect(ran.code).toBe(2);
      expect(ran.stderr).toContain(`known are ${queue}`);
    });
  });

  describe('drain', () => {
    test('counts, asks, and puts dead messages back to work', async () => {
      const { cli, queue, put, depth } = await applied();
      const dead = `${queue}.dlq`;
      await put(dead, ['a', 'b', 'c']);
      const dry = await cli(['rabbit', 'drain', dead, '--dry-run']);
      expect(dry).toMatchObject({ code: 0 });
      expect(dry.stdout).toBe(`would move 3 messages of ${dead} back to where they came from\n`);
      const unasked = await cli(['rabbit', 'drain', dead]);
      expect(unasked.code).toBe(4);
      expect(await depth(dead)).toBe(3);
      const some = await cli(['rabbit', 'drain', dead, '--limit', '1', '--yes', '--json']);
      expect(some.objects()).toMatchObject([{ action: 'move', moved: 1, end: 'max' }]);
      const rest = await cli(['rabbit', 'drain', dead, '--yes', '--keep-attempts']);
      expect(rest, rest.stderr).toMatchObject({ code: 0, stdout: 'moved 2\n' });
      expect(await depth(queue)).toBe(3);
      const none = await cli(['rabbit', 'drain', dead, '--yes']);
      expect(none).toMatchObject({ code: 0, stdout: 'the queue is empty; nothing to do\n' });
    });

    test('goes elsewhere with --to', async () => {
      const { cli, queue, put, depth } = await applied();
      await put(`${queue}.dlq`, ['a']);
      const ran = await cli([
        'rabbit',
        'drain',
        `${queue}.dlq`,
        '--to',
        `${queue}.parked`,
        '--yes',
      ]);
      expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'moved 1\n' });
      expect(await depth(`${queue}.parked`)).toBe(1);
    });

    test('--discard is asked for twice, and not together with --to', async () => {
      const { cli, queue, put, depth } = await applied();
      const dead = `${queue}.dlq`;
      await put(dead, ['a']);
      const asked: string[] = [];
      const words = ['rabbit', 'drain', dead, '--discard'];
      const tty = ['stdin', 'stderr'] as const;
      const yes = async (question: string): Promise<boolean> => asked.push(question) > 0;
      const both = await cli([...words, '--to', queue]);
      expect(both).toMatchObject({ code: 2 });
      const ran = await cli(words, { tty, confirm: yes });
      expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'discarded 1\n' });
      expect(asked).toEqual([
        `discard 1 message of ${dead}?`,
        'they are permanently removed: discard them?',
      ]);
      expect(await depth(dead)).toBe(0);
    });

    test('what cannot be drained is refused before anybody is asked', async () => {
      const { cli, queue, put, depth } = await applied();
      await put(queue, ['a']);
      for (const more of [['--dry-run'], [], ['--to', queue, '--yes']]) {
        const ran = await cli(['rabbit', 'drain', queue, ...more]);
        expect(ran, ran.stdout).toMatchObject({ code: 2, stdout: '' });
        expect(ran.stderr).toContain(`"${queue}" into itself`);
      }
      expect(await depth(queue)).toBe(1);
    });

    test('--url decides about the broker, whatever is configured elsewhere', async () => {
      const { cli, queue, put, depth, url, configure } = await applied();
      const dead = `${queue}.dlq`;
      await put(dead, ['a'], { headers: { 'respool-queue': queue } });
      const away = 'amqp://127.0.0.1:1';
      const consumer = { queue, deliver: { exec: ['true'] } };
      await configure({ rabbit: {}, consumers: [{ ...consumer, url: away }] });
      const elsewhere = await cli(['rabbit', 'drain', dead, '--yes']);
      expect(elsewhere, elsewhere.stderr).toMatchObject({ code: 3 });
      const both = [
        { ...consumer, url: away },
        { ...consumer, url },
      ];
      await configure({ rabbit: {}, consumers: both });
      const unclear = await cli(['rabbit', 'drain', dead, '--yes']);
      expect(unclear).toMatchObject({ code: 2 });
      expect(unclear.stderr).toContain('several brokers (amqp://127.0.0.1:1');
      await configure({ rabbit: {}, consumers: [{ ...consumer, url: away }] });
      const there = await cli(['rabbit', 'drain', dead, '--url', url, '--yes']);
      expect(there, there.stderr).toMatchObject({ code: 0, stdout: 'moved 1\n' });
      expect(await depth(queue)).toBe(1);
    });

    test('a queue that is not there is named', async () => {
      const { cli, prefix } = await applied();
      const ran = await cli(['rabbit', 'drain', `${prefix}.nothing`, '--yes']);
      expect(ran.code).toBe(2);
      expect(ran.stderr).toContain(`${prefix}.nothing`);
    });
  });

  describe('doctor', () => {
    test('finds nothing bad about queues as we make them', async () => {
      const { cli } = await applied();
      const ran = await cli(['rabbit', 'doctor']);
      expect(ran.code, ran.stdout).toBe(0);
      expect(ran.stdout).toMatch(/\d+ ok, \d+ warn, 0 bad\n$/);
    });

    test('says what is missing, how to fix it, and ends with 1', async () => {
      const { cli, queue, channel } = await applied();
      await channel.deleteQueue(`${queue}.parked`);
      const ran = await cli(['rabbit', 'doctor', '--json']);
      expect(ran.code).toBe(1);
      const bad = ran.objects().filter(({ level }) => level === 'bad');
      expect(JSON.stringify(bad)).toContain(`${queue}.parked`);
      expect(bad[0]).toMatchObject({ id: expect.any(String), todo: expect.stringMatching(/./) });
    });
  });
});

test('help of every command has examples and what the broker is', async () => {
  const { cli } = await setup();
  const help = await cli(['rabbit', '--help']);
  for (const name of ['consume', 'topology', 'stats', 'drain', 'doctor']) {
    expect(help.stdout).toContain(`  ${name}`);
  }
  const drain = await cli(['rabbit', 'drain', '--help']);
  expect(drain.stdout).toContain('respool rabbit drain orders.dlq');
});
