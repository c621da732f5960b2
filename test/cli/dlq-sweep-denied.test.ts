/** dlq sweep — what is not allowed, or belongs to somebody else, is told, and nothing is moved. */
import { randomBytes } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { withService } from '../services/index.ts';
import { died, type SweepShell, stranger, sweepShell } from './sweep-ground.ts';
import { connectAmqp } from '../rabbit/amqp.ts';

const ALL = { configure: '.*', write: '.*', read: '.*' };
const PASSWORD = 's3cr-et';

withService('rabbitmq', () => {
  test.each([
    ['the lock', { configure: '^dead' }, 'configure" on the queue "respool.lock.dlq"'],
    ['the target', { configure: '^respool' }, 'configure" on the queue "dead"'],
    ['the dead queue', { read: '^$' }, 'read" on the queue "dlq"'],
    ['the way to the target', { write: '^dead$' }, 'write" on the exchange "amq.default"'],
  ])('%s needs a permission, which is named', async (_, given, text) => {
    const { may, sweep, depth } = await strangeShell();
    await may({ ...ALL, ...given });
    const ran = await sweep();
    expect(ran, ran.stderr).toMatchObject({ code: 1 });
    expect(ran.stderr).toContain(`needs the permission "${text}`);
    expect(ran.stderr).not.toContain("declare: 'verify'");
    expect(ran.stdout + ran.stderr).not.toContain(PASSWORD);
    expect(await depth()).toBe(2);
    await may(ALL);
    expect(await sweep()).toMatchObject({ code: 0 });
    expect(await depth()).toBe(1);
  });
});

withService('rabbitmq', () => {
  test('a queue that another consumer has for himself is said to be', async () => {
    const { channel, prefix, put, sweep } = await sweepShell();
    const queue = `${prefix}.dlq`;
    const args = { 'x-single-active-consumer': true };
    await channel.assertQueue(queue, { durable: true, arguments: args });
    await channel.prefetch(1);
    await channel.consume(queue, () => undefined);
    await put(queue, ['a', 'b', 'c']);
    const ran = await sweep('--queue', queue, '--target', `${prefix}.dead`);
    expect(ran, ran.stderr).toMatchObject({ code: 0 });
    expect(ran.stderr).toContain(`warning: ${queue}: incomplete: another consumer has`);
  });
});

/** A virtual host with a dead queue, in which a user may do what a test says. */
async function strangeShell(): Promise<{
  may: (permissions: typeof ALL) => Promise<void>;
  sweep: () => ReturnType<SweepShell['cli']>;
  depth: () => Promise<number>;
}> {
  const shell = await sweepShell();
  const name = `stranger-${randomBytes(4).toString('hex')}`;
  const who = { name, password: PASSWORD, vhost: name };
  const may = await stranger(shell, who);
  const broker = withUser(shell.url, who, `/${name}`);
  const connection = await connectAmqp(broker);
  onTestFinished(() => connection.close());
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue('dlq', { durable: true });
  for (const count of [1, 9]) {
    const headers = { 'x-death': [died(count)] };
    await new Promise((resolve) => {
      channel.publish('', 'dlq', Buffer.from('x'), { headers, persistent: true }, resolve);
    });
  }
  const management = withUser(shell.managementUrl, who, '');
  const words = ['--broker', broker, '--management-url', management, '--verbose'];
  return {
    may,
    sweep: () => shell.sweep('--queue', 'dlq', '--target', 'dead', ...words),
    depth: async () => (await channel.checkQueue('dlq')).messageCount,
  };
}

function withUser(given: string, who: { name: string; password: string }, path: string): string {
  const url = new URL(given);
  url.username = who.name;
  url.password = who.password;
  url.pathname = path;
  return url.href;
}
