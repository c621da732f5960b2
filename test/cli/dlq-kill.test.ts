/** dlq remove, killed at any moment: every letter is in its queue, in the archive, or in both. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { until } from '../rabbit/until.ts';
import { withService } from '../services/index.ts';
import { rabbitShell, type RabbitShell } from './rabbit-broker.ts';

const MAIN = path.join(import.meta.dirname, '../../src/cli/main.ts');
const LETTERS = 2_000;
const KILLS = 4;
/** In hand at once: what a kill can leave in both places. */
const IN_HAND = 100;

function launch(cwd: string, words: readonly string[]): ChildProcess {
  const node = ['--conditions=respool-source', MAIN, ...words];
  const child = spawn(process.execPath, node, { cwd, stdio: 'ignore' });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

async function archived({ cli }: RabbitShell): Promise<readonly string[]> {
  const { objects } = await cli(['dlq', 'list', '--kind', 'archived', '--json']);
  return objects().map(
    ({ headers }) => (headers as Record<string, string>)['respool-original-of'] ?? '',
  );
}

withService('rabbitmq', () => {
  test('a removal that is killed loses nothing, and the next one finishes it', async () => {
    const shell = await rabbitShell();
    const { channel, cli, configure, depth, folder, prefix, put } = shell;
    const queue = `${prefix}.dead`;
    await configure({});
    await channel.assertQueue(queue, { durable: true });
    const ids = Array.from({ length: LETTERS }, (_, at) => `m${at}`);
    for (const messageId of ids) await put(queue, [messageId], { messageId });
    // The store is made before: the child is to be killed at its work, not at its beginning.
    await cli(['enqueue', 'a', '--body', 'x']);
    const words = ['dlq', 'remove', '--queue', queue, '--category', 'other', '--yes'];
    let kills = 0;
    // Whoever is quicker than the kill has nothing left for the next.
    while (kills < KILLS && (await depth(queue)) > 0) {
      const before = (await archived(shell)).length;
      const child = launch(folder, words);
      const exit = once(child, 'exit');
      const isAtWork = async (): Promise<boolean> =>
        child.exitCode !== null || (await archived(shell)).length > before;
      await until(async () => ((await isAtWork()) ? true : undefined));
      child.kill('SIGKILL');
      await exit;
      kills += 1;
      await until(async () => {
        const { consumerCount } = await channel.checkQueue(queue);
        return consumerCount === 0 ? true : undefined;
      });
      const kept = await archived(shell);
      const lying = (await cli(['dlq', 'list', '--queue', queue, '--json'])).objects();
      const places = [...kept, ...lying.map(({ id }) => String(id))];
      expect(new Set(places)).toEqual(new Set(ids));
      expect(places.length - LETTERS).toBeLessThanOrEqual(IN_HAND * kills);
    }
    expect(kills).toBeGreaterThan(1);
    const last = await cli(words);
    expect(last.code, last.stderr).toBe(0);
    expect(await depth(queue)).toBe(0);
    expect(new Set(await archived(shell))).toEqual(new Set(ids));
  });
});
