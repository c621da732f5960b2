/** dlq restore — copies of messages of queues: which of them go back, where, and how often. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { generateKey } from 'respool/transforms';
import { expect, test } from 'vitest';
import { lockQueue } from '../../src/rabbit/queues/lock.ts';
import { withService } from '../services/index.ts';
import { type DeadQueue, deadQueue } from './dlq-queue-ground.ts';
import { audited } from './steering.ts';
import { connectAmqp } from '../rabbit/amqp.ts';

type Seen = Record<string, unknown> & { readonly headers: Record<string, string> };

async function archived({ cli }: DeadQueue): Promise<Seen[]> {
  const ran = await cli(['dlq', 'list', '--kind', 'archived', '--json']);
  expect(ran.code, ran.stderr).toBe(0);
  return ran.objects() as Seen[];
}

withService('rabbitmq', () => {
  test('what a sealed and encrypted spool keeps is found, and comes back by queue and by id', async () => {
    const keys = { k1: 'file:k1.key' };
    const config = { seal: { keys }, transforms: ['zstd', { encrypt: { keys } }] };
    const ground = await deadQueue({ type: 'classic', config });
    const { cli, dead, die, idsIn, depth, folder } = ground;
    await writeFile(path.join(folder, 'k1.key'), generateKey(), { mode: 0o600 });
    await die(['m-1', 'm-2', 'm-3']);
    const purged = await cli(['dlq', 'purge', '--queue', dead, '--count', '3']);
    expect(purged.code, purged.stderr).toBe(0);
    for (const filter of ['--header=respool-original-of=m-2', `--text=${dead.toUpperCase()}`]) {
      const found = await cli(['dlq', 'list', '--kind', 'archived', filter, '--json']);
      expect(found.objects(), found.stderr).toHaveLength(filter.startsWith('--header') ? 1 : 3);
    }
    const one = await cli(['dlq', 'restore', 'm-2']);
    expect(one, one.stderr).toMatchObject({ code: 0, stdout: 'restored 1\n' });
    const rest = await cli(['dlq', 'restore', '--queue', dead, '--yes']);
    expect(rest, rest.stderr).toMatchObject({ code: 0, stdout: 'restored 2\n' });
    expect(await depth(dead)).toBe(3);
    expect(await idsIn(dead)).toEqual(['m-2', 'm-1', 'm-3']);
    expect(await archived(ground)).toEqual([]);
  });

  test('a copy that is named by both of its ids goes back once', async () => {
    const ground = await deadQueue({ type: 'classic' });
    const { cli, dead, die, idsIn } = ground;
    await die(['m-1']);
    await cli(['dlq', 'remove', 'm-1', '--queue', dead]);
    const [copy] = await archived(ground);
    const ran = await cli(['dlq', 'restore', 'm-1', String(copy?.['id']), 'm-1']);
    expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'restored 1\n' });
    expect(await idsIn(dead)).toEqual(['m-1']);
  });

  test('--limit holds for copies of one id, too, and for what is on record', async () => {
    const ground = await deadQueue({ type: 'classic' });
    const { cli, dead, die, depth } = ground;
    await die(['m-1', 'm-1', 'm-2']);
    await cli(['dlq', 'purge', '--queue', dead, '--count', '3']);
    const ran = await cli(['dlq', 'restore', 'm-1', 'm-2', '--limit', '1']);
    expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'restored 1\n' });
    expect([await depth(dead), (await archived(ground)).length]).toEqual([1, 2]);
    const line = (await audited(ground)).find(({ action }) => action === 'dlq.restore');
    expect(line).toMatchObject({ details: { ids: ['m-1'], count: 1 } });
  });

  test('a message of the spool that has the id of the letter does not hide its copy', async () => {
    const ground = await deadQueue({ type: 'classic' });
    const { cli, dead, die, idsIn } = ground;
    await die(['m-1']);
    await cli(['enqueue', 'some.topic', '--id', 'm-1', '--body', 'x']);
    await cli(['dlq', 'remove', 'm-1', '--queue', dead]);
    const ran = await cli(['dlq', 'restore', 'm-1']);
    expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'restored 1\n' });
    expect(await idsIn(dead)).toEqual(['m-1']);
  });

  test('the original of a letter that a replay changed goes back by its own id alone', async () => {
    const ground = await deadQueue({ type: 'classic' });
    const { cli, main, dead, die, declare, idsIn, folder, depth } = ground;
    await declare(main);
    await die(['m-1']);
    const repair = 'export default () => ({ headers: { mended: "yes" } });\n';
    await writeFile(path.join(folder, 'repair.mjs'), repair);
    const words = ['--transform', './repair.mjs', '--canary', '0', '--yes', '--quiet'];
    const sent = await cli(['dlq', 'replay', '--queue', dead, ...words]);
    expect(sent.code, sent.stderr + sent.stdout).toBe(0);
    expect(await idsIn(main)).toEqual(['m-1']);
    const all = await cli(['dlq', 'restore', '--queue', dead, '--yes']);
    expect(all.stdout).toBe('nothing was kept there; nothing to do\n');
    const [copy] = await archived(ground);
    const id = String(copy?.['id']);
    const named = await cli(['dlq', 'restore', 'm-1']);
    expect(named).toMatchObject({ code: 1, stdout: 'restored 0, refused 1\n' });
    expect(named.stderr).toContain(`it was not removed, it was changed by replay`);
    expect(named.stderr).toContain(id);
    expect(await depth(dead)).toBe(0);
    expect(await cli(['dlq', 'restore', id])).toMatchObject({ code: 0, stdout: 'restored 1\n' });
    expect(await idsIn(dead)).toEqual(['m-1']);
  });

  test('what was removed at another broker stays, unless --any-broker', async () => {
    const ground = await deadQueue({ type: 'classic' });
    const { cli, url, managementUrl, dead, die, idsIn, depth } = ground;
    await die(['m-1', 'm-2']);
    const other = url.replace('127.0.0.1', 'localhost');
    const there = ['--broker', other, '--management-url', managementUrl];
    await cli(['dlq', 'remove', 'm-1', '--queue', dead, ...there]);
    await cli(['dlq', 'remove', 'm-2', '--queue', dead]);
    const copies = await archived(ground);
    const { port, password } = new URL(url);
    expect(copies.map(({ headers }) => headers['respool-amqp-broker'])).toEqual([
      `amqp://localhost:${port}`,
      `amqp://127.0.0.1:${port}`,
    ]);
    expect(JSON.stringify(copies)).not.toContain(password);
    const ran = await cli(['dlq', 'restore', '--queue', dead, '--yes']);
    expect(ran).toMatchObject({ code: 1, stdout: 'restored 1, refused 1\n' });
    expect(ran.stderr).toContain(`it was removed at the broker amqp://localhost:${port}`);
    expect(await depth(dead)).toBe(1);
    const any = await cli(['dlq', 'restore', 'm-1', '--any-broker']);
    expect(any, any.stderr).toMatchObject({ code: 0, stdout: 'restored 1\n' });
    expect(await idsIn(dead)).toEqual(['m-2', 'm-1']);
  });

  test('one address written in two ways is one broker', async () => {
    const { cli, url, managementUrl, dead, die } = await deadQueue({ type: 'classic' });
    await die(['m-1']);
    await cli(['dlq', 'remove', 'm-1', '--queue', dead]);
    const there = ['--broker', `${url}/%2F`, '--management-url', managementUrl];
    const ran = await cli(['dlq', 'restore', 'm-1', ...there]);
    expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'restored 1\n' });
  });

  test('two restores of one queue do not go beside each other', async () => {
    const { cli, url, dead, die, idsIn } = await deadQueue({ type: 'classic' });
    await die(['m-1']);
    await cli(['dlq', 'remove', 'm-1', '--queue', dead]);
    const other = await connectAmqp(url);
    try {
      expect(await lockQueue(other, `restore.${dead}`)).not.toBe('elsewhere');
      const ran = await cli(['dlq', 'restore', 'm-1']);
      expect(ran).toMatchObject({ code: 1, stdout: 'restored 0, refused 1\n' });
      expect(ran.stderr).toContain('another restore puts letters into its queue');
    } finally {
      await other.close();
    }
    const words = ['dlq', 'restore', '--queue', dead, '--yes'];
    await Promise.all([cli(words), cli(words), cli(words)]);
    expect(await idsIn(dead)).toEqual(['m-1']);
  });

  test('a broker that does not answer ends it before anything is done or on record', async () => {
    const ground = await deadQueue({ type: 'classic' });
    const { cli, dead, die } = ground;
    await die(['m-1']);
    await cli(['dlq', 'remove', 'm-1', '--queue', dead]);
    const nobody = ['--broker', 'amqp://127.0.0.1:1', '--any-broker'];
    const ran = await cli(['dlq', 'restore', 'm-1', ...nobody]);
    expect(ran.code, ran.stderr).toBe(3);
    expect(await archived(ground)).toHaveLength(1);
    expect((await audited(ground)).map(({ action }) => action)).toEqual(['dlq.remove']);
  });
});
