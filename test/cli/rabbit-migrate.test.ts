/** rabbit topology migrate — against the real broker. Removing waits for it to count anew. */
import { expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { rabbitShell } from './rabbit-broker.ts';

/** A consumer with names of its own. */
function consumerOf(prefix: string, more: object): object {
  return {
    queue: `${prefix}.orders`,
    topology: { shared: { prefix } },
    policy: { ladder: ['1h'] },
    waits: [],
    deliver: { exec: ['true'] },
    ...more,
  };
}

withService('rabbitmq', () => {
  test('what lies in the old queues is moved, after a look and a question', async () => {
    const shell = await rabbitShell();
    const { cli, prefix, put, depth, url } = shell;
    // Nobody answers there: without the management API nothing is removed.
    const rabbit = { url };
    const old = consumerOf(prefix, { topology: 'perDelay' });
    await shell.configure({ rabbit, consumers: [old] });
    expect((await cli(['rabbit', 'topology', 'apply', '--yes'])).code).toBe(0);
    await put(`${prefix}.orders.dlq`, ['1', '2', '3']);
    await put(`${prefix}.orders.delay_3600s`, ['4']);
    await shell.configure({
      rabbit,
      consumers: [consumerOf(prefix, { queue: `${prefix}.orders2` })],
    });
    const words = ['rabbit', 'topology', 'migrate', '--from-queue', `${prefix}.orders`];
    const from = ['--from-topology', 'perDelay'];
    const dry = await cli([...words, ...from, '--dry-run', '--json']);
    expect(dry.code, dry.stderr).toBe(0);
    expect(dry.objects()).toMatchObject([{ isDryRun: true }]);
    expect(await depth(`${prefix}.orders.dlq`)).toBe(3);
    const asked: string[] = [];
    const confirm = async (question: string): Promise<boolean> => {
      asked.push(question);
      return false;
    };
    const refused = await cli([...words, ...from], { tty: ['stdin', 'stderr'], confirm });
    expect(refused.code).toBe(4);
    expect(asked).toEqual([expect.stringContaining(`migrate ${prefix}.orders2 at amqp://`)]);
    const left = await cli([...words, ...from, '--yes', '--leave-waits', '--json']);
    expect(left.code, left.stderr).toBe(1);
    expect(left.objects()).toMatchObject([{ isDone: false }]);
    expect(await depth(`${prefix}.orders2.dlq`)).toBe(3);
    expect(await depth(`${prefix}.orders.delay_3600s`)).toBe(1);
    const moved = await cli([...words, ...from, '--yes']);
    expect(moved.stdout).toContain(`${prefix}.orders.delay_3600s`);
    expect(moved.stdout).toContain('not done: run it again');
    expect(await depth(`${prefix}.wait.3600s`)).toBe(1);
  });

  test('wait queues beyond those of the policy are emptied, too', async () => {
    const { cli, configure, prefix, put, depth, url } = await rabbitShell();
    const waits = ['2h'];
    const consumer = { topology: 'perDelay', waits };
    await configure({ rabbit: { url }, consumers: [consumerOf(prefix, consumer)] });
    expect((await cli(['rabbit', 'topology', 'apply', '--yes'])).code).toBe(0);
    await put(`${prefix}.orders.delay_7200s`, ['a']);
    const next = consumerOf(prefix, { ...consumer, queue: `${prefix}.orders2` });
    await configure({ rabbit: { url }, consumers: [next] });
    const words = ['rabbit', 'topology', 'migrate', '--from-queue', `${prefix}.orders`];
    const moved = await cli([...words, '--yes']);
    expect(moved.stdout, moved.stderr).toContain(
      `${prefix}.orders.delay_7200s (1 messages): moved`,
    );
    expect(await depth(`${prefix}.orders2.delay_7200s`)).toBe(1);
  });

  test('what another system retried keeps its attempts', async () => {
    const { cli, configure, prefix, put, channel, url } = await rabbitShell();
    const rabbit = { url };
    const old = { compat: 'goqueue', topology: undefined, type: 'classic' };
    await configure({ rabbit, consumers: [consumerOf(prefix, old)] });
    const applied = await cli(['rabbit', 'topology', 'apply', '--yes']);
    expect(applied.stderr).toContain('policies need the management API');
    const headers = { 'goqueue-retry-count': 1 };
    await put(`${prefix}.orders__retry.1`, ['a'], { expiration: '3600000', headers });
    await configure({ rabbit, consumers: [consumerOf(prefix, { queue: `${prefix}.orders2` })] });
    const from = ['--from-queue', `${prefix}.orders`, '--from-compat', 'goqueue'];
    const words = ['--from-type', 'classic', '--yes'];
    const moved = await cli(['rabbit', 'topology', 'migrate', ...from, ...words]);
    expect(moved.stdout, moved.stderr).toContain(`${prefix}.orders__retry.1 (1 messages): moved`);
    const message = await new Promise((resolve, reject) => {
      channel.consume(`${prefix}.wait.3600s`, resolve).catch(reject);
    });
    expect(message).toMatchObject({ properties: { headers: { 'respool-attempts': 1 } } });
  });

  test('queues in which nothing is left are removed', async () => {
    const { cli, configure, prefix, channel } = await rabbitShell();
    const types = { topology: 'perDelay', type: 'classic' };
    await configure({ consumers: [consumerOf(prefix, types)] });
    expect((await cli(['rabbit', 'topology', 'apply', '--yes'])).code).toBe(0);
    await configure({ consumers: [consumerOf(prefix, { queue: `${prefix}.orders2` })] });
    const words = ['rabbit', 'topology', 'migrate', '--from-queue', `${prefix}.orders`];
    const from = ['--from-topology', 'perDelay', '--from-type', 'classic', '--from-delays', '1h'];
    const done = await cli([
      ...words,
      ...from,
      '--yes',
      '--old-consumers-gone',
      '--unrelated',
      '*',
    ]);
    expect(done.stdout, done.stderr).toContain('done: nothing of the old is left');
    expect(done.code).toBe(0);
    const { queue } = await channel.checkQueue(`${prefix}.orders2`);
    expect(queue).toBe(`${prefix}.orders2`);
    const again = await cli(['rabbit', 'stats', '--json']);
    expect(again.stdout).not.toContain(`"${prefix}.orders"`);
  });

  test('an outbox fleet whose exchange has another name is refused, and loses nothing', async () => {
    const { cli, configure, prefix, put, depth } = await rabbitShell();
    const shop = `${prefix}.shop`;
    const bindings = [{ exchange: shop, key: 'order.#' }];
    const fleet = { compat: { outbox: { exchange: shop } }, topology: undefined, bindings };
    await configure({ consumers: [consumerOf(prefix, fleet)] });
    const applied = await cli(['rabbit', 'topology', 'apply', '--yes']);
    expect(applied.code, applied.stderr).toBe(0);
    const twenty = Array.from({ length: 20 }, (_, at) => String(at));
    await put(`${shop}.delay_1h`, twenty);
    await configure({ consumers: [consumerOf(prefix, { queue: `${prefix}.orders2`, bindings })] });
    const from = ['--from-queue', `${prefix}.orders`, '--from-compat', 'outbox'];
    const words = ['rabbit', 'topology', 'migrate', ...from, '--unrelated', '*', '--yes'];
    const refused = await cli(words);
    expect(refused.code).not.toBe(0);
    expect(refused.stdout).toBe('');
    expect(refused.stderr).toContain(`the old queue "${prefix}.orders" is not as described`);
    expect(refused.stderr).toContain(`"x-dead-letter-exchange" is ${shop}.dlx there`);
    expect(await depth(`${shop}.delay_1h`)).toBe(20);
  });
});
