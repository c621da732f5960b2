/** dlq sweep — options whose effect is inside the sweep reach it; and what is refused without them. */
import { expect, test, vi } from 'vitest';
import type * as Sweeps from '../../src/rabbit/queues/sweep.ts';
import { withService } from '../services/index.ts';
import { sweepShell } from './sweep-ground.ts';

const given = vi.hoisted((): { options: Record<string, unknown>[] } => ({ options: [] }));

// The real sweep, with a look at what it is told.
vi.mock('../../src/rabbit/queues/sweep.ts', async (importOriginal) => {
  const original = await importOriginal<typeof Sweeps>();
  const sweepQueues: typeof original.sweepQueues = (options) => {
    given.options.push({ ...options });
    return original.sweepQueues(options);
  };
  return { ...original, sweepQueues };
});

withService('rabbitmq', () => {
  test('--window and --parallel reach the sweep, and are left to it otherwise', async () => {
    const { lay, sweep, prefix } = await sweepShell();
    const queue = await lay('dlq', [4]);
    const words = ['--queue', queue, '--target', `${prefix}.failed`];
    given.options = [];
    await sweep(...words);
    await sweep(...words, '--window', '7', '--parallel', '2');
    expect(given.options).toMatchObject([
      { window: undefined, parallel: undefined, limit: undefined, dedupe: undefined },
      { window: 7, parallel: 2 },
    ]);
  });

  test('--trust-limit sweeps where nobody can tell the delivery limit', async () => {
    const { lay, sweep, prefix, url, depth, configure } = await sweepShell();
    // Its management API is not where the URL leads to.
    await configure({ rabbit: { url } });
    const queue = await lay('dlq', [4]);
    const words = ['--queue', queue, '--target', `${prefix}.failed`];
    const refused = await sweep(...words, '--json');
    expect(refused, refused.stderr).toMatchObject({ code: 1 });
    expect(refused.objects()).toMatchObject([{ queues: [{ queue, end: 'refused' }] }]);
    expect(await depth(queue)).toBe(1);
    const ran = await sweep(...words, '--trust-limit');
    expect(ran, ran.stderr).toMatchObject({ code: 0 });
    expect(await depth(queue)).toBe(0);
  });

  test('--broker names the broker, --management-url its management API', async () => {
    const { lay, sweep, prefix, url, managementUrl, depth, configure } = await sweepShell();
    await configure({ rabbit: {} });
    await lay('dlq.a', [4]);
    const words = ['--queue', `${prefix}.dlq.*`, '--target', `${prefix}.dead.*`];
    const ran = await sweep(...words, '--broker', url, '--management-url', managementUrl);
    expect(ran, ran.stderr).toMatchObject({ code: 0 });
    expect(await depth(`${prefix}.dead.a`)).toBe(1);
    const two = await sweep(...words, '--broker', url, '--url', 'amqp://other');
    expect(two).toMatchObject({ code: 2 });
  });

  test('a store that cannot be opened leaves everything where it is', async () => {
    const { lay, sweep, prefix, depth } = await sweepShell();
    const queue = await lay('dlq', [4]);
    const words = ['--queue', queue, '--target', `${prefix}.failed`];
    const ran = await sweep(...words, '--store', 'sqlite:/dev/null/nowhere');
    expect(ran.code).not.toBe(0);
    expect(await depth(queue)).toBe(1);
  });
});
