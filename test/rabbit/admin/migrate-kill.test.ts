/** migrate, killed — a mover that dies in the middle, again and again, under load. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { expect, test } from 'vitest';
import { type AmqpConnection, migrateTopology } from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { oldAndNew, waitName } from './migrate-plans.ts';
import { bodies, freshName, openBench } from './setup.ts';

const numbered = (what: string, count: number): string[] =>
  Array.from({ length: count }, (_, at) => `${what}${at}`);

/** Publishes to an exchange until it is told to stop; every id that was confirmed and routed. */
function startLoad(
  connection: AmqpConnection,
  exchange: string,
): { stop(): Promise<readonly string[]> } {
  const confirmed: string[] = [];
  const end = new AbortController();
  const run = async (): Promise<readonly string[]> => {
    const channel = await connection.createConfirmChannel();
    let returned = 0;
    channel.on('return', () => {
      returned += 1;
    });
    for (let at = 0; !end.signal.aborted; at += 1) {
      const id = `load${at}`;
      const before = returned;
      await new Promise<void>((resolve, reject) => {
        const options = { messageId: id, mandatory: true, deliveryMode: 2 };
        channel.publish(exchange, 'order.new', Buffer.from(id), options, (error) =>
          error === null || error === undefined
            ? resolve()
            : reject(new Error('not confirmed', { cause: error })),
        );
      });
      if (returned === before) confirmed.push(id);
    }
    await channel.close();
    expect(returned).toBe(0);
    return confirmed;
  };
  const running = run();
  return {
    stop: () => {
      end.abort();
      return running;
    },
  };
}

/** Kills a mover when it has told of its progress so many times. */
async function killMover(url: string, name: string, afterLines: number): Promise<boolean> {
  const file = new URL('./migrate-child.ts', import.meta.url).pathname;
  const child = spawn(process.execPath, ['--conditions=respool-source', file, url, name], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let lines = 0;
  let isAtEnd = false;
  createInterface({ input: child.stdout }).on('line', (line) => {
    lines += 1;
    if (line === 'end') isAtEnd = true;
    else if (lines === afterLines) child.kill('SIGKILL');
  });
  await once(child, 'close');
  return !isAtEnd;
}

withService('rabbitmq', () => {
  test('a mover that is killed five times under load loses nothing', async () => {
    await using bench = await openBench();
    const name = freshName('move');
    const { old, next } = oldAndNew(name);
    await bench.declare(old);
    bench.alsoRemove(next.topology);
    const main = numbered('main', 1500);
    const dead = numbered('dead', 300);
    const waiting = numbered('wait', 300);
    await bench.publish(old.queue, main);
    await bench.publish(old.dead.key, dead, {
      headers: { 'respool-ended': 'dead', 'respool-ended-code': 'why' },
    });
    await bench.publish(waitName(old, 600_000), waiting);
    const load = startLoad(bench.connection, `${name}.shop`);
    let kills = 0;
    for (let round = 1; round <= 5; round += 1) {
      if (await killMover(bench.url, name, round === 5 ? 4 : 3)) kills += 1;
    }
    expect(kills).toBe(5);
    const { connection, management } = bench;
    const first = await migrateTopology({ connection, from: old.topology, to: next });
    expect(first.isDone).toBe(false);
    const published = await load.stop();
    expect(published.length).toBeGreaterThan(100);
    const last = await migrateTopology({
      connection,
      management,
      from: old.topology,
      to: next,
      unrelated: ['*'],
    });
    expect(last.todo).toEqual([]);
    expect(last.isDone).toBe(true);
    for (const queue of old.topology.queues) expect(await bench.depth(queue.name)).toBeUndefined();

    const inMain = await bodies(bench, next.queue);
    expect(new Set(inMain)).toEqual(new Set([...main, ...published]));
    // n.b. While both queues are bound, both get what is published.
    const twice = inMain.filter((id, at) => inMain.indexOf(id) !== at && id.startsWith('main'));
    expect(twice.length).toBeLessThanOrEqual(5 * 50);
    const inDead = await bench.takeAll(next.dead.key);
    expect(new Set(inDead.map(({ body }) => body))).toEqual(new Set(dead));
    expect(inDead[0]?.properties.headers).toMatchObject({ 'respool-ended-code': 'why' });
    const inWait = await bodies(bench, waitName(next, 900_000));
    expect(new Set(inWait)).toEqual(new Set(waiting));
  });
});
