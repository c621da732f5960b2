/** dlq sweep under the names of rmq_retry_checker, against the real broker. */
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type AmqpMessage, sweepJournal } from 'respool/rabbit';
import { connectAmqp, shownUrl } from '../../src/rabbit/connection/connection.ts';
import { withService } from '../services/index.ts';
import { died, stranger, type SweepShell, sweepShell, tlsDoor } from './sweep-ground.ts';
import { HOUR_MS, systemClock } from '../time.ts';

/** Where the broker is, by the old names. */
function placeOf({ url, managementUrl }: SweepShell): Place {
  const { hostname, port } = new URL(url);
  return { host: hostname, port, 'mgmt-port': new URL(managementUrl).port };
}

type Place = Record<'host' | 'port' | 'mgmt-port', string>;

/** Who the tests are there. */
function userOf({ url }: SweepShell): Record<'username' | 'password', string> {
  const { username, password } = new URL(url);
  return { username: username || 'guest', password: password || 'guest' };
}

function flagsOf(given: Readonly<Record<string, string>>): string[] {
  return Object.entries(given).flatMap(([name, value]) => [`--${name}`, value]);
}

withService('rabbitmq', () => {
  test('flags name the broker, the queues and the limit', async () => {
    const shell = await sweepShell();
    const { lay, prefix, depth, cli, configure } = shell;
    await configure({ rabbit: {} });
    const queue = await lay('dlq', [2, 1]);
    const flags = flagsOf({
      ...placeOf(shell),
      ...userOf(shell),
      vhost: '/',
      dlq: `${prefix}.dl?`,
      'target-queue': `${prefix}.failed`,
      'max-retries': '1',
    });
    const ran = await cli(['dlq', 'sweep', ...flags]);
    expect(ran, ran.stderr).toMatchObject({ code: 0 });
    expect(ran.stderr).toContain('a password on the command line');
    expect(await depth(queue)).toBe(1);
    expect(await depth(`${prefix}.failed`)).toBe(1);
  });

  test('the YAML file is used as it is, below flags and above the environment', async () => {
    const shell = await sweepShell();
    const { lay, prefix, depth, cli, folder } = shell;
    const [a, b] = [await lay('dlq.a', [4]), await lay('dlq.b', [4])];
    const { host, port, 'mgmt-port': management } = placeOf(shell);
    const { username, password } = userOf(shell);
    const yaml = [
      'rabbitmq:',
      `host: ${host}`,
      `port: ${port}`,
      `mgmt_port: ${management}`,
      `username: ${username}`,
      `password: ${password}`,
      'vhost: /',
      'use_ssl: false',
      'ssl_verify: true',
    ].join('\n  ');
    const queues = ['queues:', `dlq_name: ${a}`, `target_queue: ${prefix}.dead.a`];
    const rest = [...queues, 'max_retry_count: 3'].join('\n  ');
    await writeFile(path.join(folder, 'checker.yaml'), `${yaml}\n${rest}\n`);
    const words = ['dlq', 'sweep', '--config', 'checker.yaml'];
    const env = { DLQ_NAME: b, RMQ_HOST: '127.0.0.1', RMQ_PORT: '1' };
    const ran = await cli(words, { env });
    expect(ran, ran.stderr).toMatchObject({ code: 0 });
    expect(await depth(`${prefix}.dead.a`)).toBe(1);
    expect(await depth(b)).toBe(1);
    const other = await cli([...words, '--dlq', b], { env });
    expect(other, other.stderr).toMatchObject({ code: 0 });
    expect(await depth(b)).toBe(0);
  });

  test('the environment and .env are enough', async () => {
    const shell = await sweepShell();
    const { lay, prefix, depth, cli, folder, configure } = shell;
    await configure({ rabbit: {} });
    const queue = await lay('dlq', [6]);
    const { host, port, 'mgmt-port': management } = placeOf(shell);
    const { username, password } = userOf(shell);
    await writeFile(
      path.join(folder, '.env'),
      `RMQ_HOST=${host}\nRMQ_PORT=${port}\nRMQ_MGMT_PORT=${management}\nMAX_RETRY_COUNT=9\n` +
        `RMQ_USERNAME=${username}\nRMQ_PASSWORD=${password}\nRMQ_VHOST=/\n`,
    );
    const env = { DLQ_NAME: queue, TARGET_QUEUE: `${prefix}.failed` };
    const kept = await cli(['dlq', 'sweep'], { env });
    expect(kept, kept.stderr).toMatchObject({ code: 0 });
    expect(await depth(queue)).toBe(1);
    const ran = await cli(['dlq', 'sweep'], { env: { ...env, MAX_RETRY_COUNT: '5' } });
    expect(ran, ran.stderr).toMatchObject({ code: 0 });
    expect(await depth(queue)).toBe(0);
  });

  test('a user, a password and a virtual host beyond ASCII work', async () => {
    const shell = await sweepShell();
    await shell.configure({ rabbit: {} });
    const who = { name: `jörg-${randomBytes(3).toString('hex')}`, password: 'pä:ss/@%wörd' };
    const vhost = `haus/ö-${randomBytes(3).toString('hex')}`;
    await stranger(shell, { ...who, vhost });
    const { host, port } = placeOf(shell);
    const user = `${encodeURIComponent(who.name)}:${encodeURIComponent(who.password)}`;
    const connection = await connectAmqp(
      `amqp://${user}@${host}:${port}/${encodeURIComponent(vhost)}`,
    );
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue('dlq.ä', { durable: true });
    await new Promise((resolve) => {
      const headers = { 'x-death': [died(4)] };
      channel.publish('', 'dlq.ä', Buffer.from('x'), { headers, persistent: true }, resolve);
    });
    const flags = flagsOf({ ...placeOf(shell), username: who.name, vhost });
    const words = ['dlq', 'sweep', ...flags, '--dlq', 'dlq.*', '--target-queue', 'dead.*'];
    const ran = await shell.cli(words, { env: { RMQ_PASSWORD: who.password } });
    expect(ran, ran.stderr).toMatchObject({ code: 0 });
    expect((await channel.checkQueue('dead.ä')).messageCount).toBe(1);
    const refused = await shell.cli(words, { env: { RMQ_PASSWORD: 'other' } });
    expect(refused).toMatchObject({ code: 1 });
    expect(refused.stderr).toContain('cannot connect to RabbitMQ');
    await connection.close();
  });

  test('--ssl goes over TLS, and trusts nobody it does not know unless told', async () => {
    const shell = await sweepShell();
    const { lay, prefix, cli, depth, url, managementUrl } = shell;
    const queue = await lay('dlq', [4]);
    const flags = flagsOf({
      host: 'localhost',
      port: String(await tlsDoor(url)),
      'mgmt-port': String(await tlsDoor(managementUrl)),
      dlq: queue,
      'target-queue': `${prefix}.failed`,
    });
    const strict = await cli(['dlq', 'sweep', ...flags, '--ssl']);
    expect(strict).toMatchObject({ code: 1 });
    expect(strict.stderr).toMatch(/certificate/);
    expect(await depth(queue)).toBe(1);
    const ran = await cli(['dlq', 'sweep', ...flags, '--ssl', '--no-ssl-verify']);
    expect(ran, ran.stderr).toMatchObject({ code: 0 });
    expect(await depth(`${prefix}.failed`)).toBe(1);
  });

  test('what --dedup-file remembers of a killed run is not copied again while it is young', async () => {
    const shell = await sweepShell();
    const { lay, prefix, folder, sweep, depth, url } = shell;
    const queue = await lay('dlq', [4]);
    await writeFile(path.join(folder, 'moved'), await entryOf(url, queue, 2 * HOUR_MS));
    const words = ['--dlq', queue, '--target-queue', `${prefix}.failed`, '--dedup-file', 'moved'];
    const young = ['--dedup-max-age-hours', '3', '--json'];
    const ran = await sweep(...words, ...young);
    expect(ran, ran.stderr).toMatchObject({ code: 0 });
    expect(ran.objects()).toMatchObject([{ total: { already: 1, moved: 0 } }]);
    expect(await depth(`${prefix}.failed`)).toBe(0);
    expect(await depth(queue)).toBe(0);
  });

  test('what --dedup-file remembers for longer than --dedup-max-age-hours is not used', async () => {
    const shell = await sweepShell();
    const { lay, prefix, folder, sweep, depth, url } = shell;
    const queue = await lay('dlq', [4]);
    await writeFile(path.join(folder, 'moved'), await entryOf(url, queue, 2 * HOUR_MS));
    const words = ['--dlq', queue, '--target-queue', `${prefix}.failed`, '--dedup-file', 'moved'];
    const ran = await sweep(...words, '--dedup-max-age-hours', '1', '--json');
    expect(ran.objects()).toMatchObject([{ total: { already: 0, moved: 1 } }]);
    expect(await depth(`${prefix}.failed`)).toBe(1);
  });
});

/** What a run would have written that was killed after it moved the first message of a queue. */
async function entryOf(url: string, queue: string, agoMs: number): Promise<string> {
  const connection = await connectAmqp(url);
  const channel = await connection.createChannel();
  const message = await new Promise<AmqpMessage>((resolve, reject) => {
    const take = (one: AmqpMessage | null): void => {
      if (one === null) reject(new Error(`queue ${queue} is gone`));
      else resolve(one);
    };
    channel.consume(queue, take).catch(reject);
  });
  // Not acked: it goes back as one that was delivered before.
  await channel.close();
  await connection.close();
  const identity = sweepJournal('unused', { place: `${shownUrl(url)}/%2F` }).identityOf(
    queue,
    message,
  );
  return `+ ${systemClock.now() - agoMs} ${identity}\n`;
}
