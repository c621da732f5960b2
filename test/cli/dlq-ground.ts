/** dlq-ground — a spool with dead letters of several causes, and the command line beside it. */
import { PermanentError } from 'respool';
import { states } from './fill.ts';
import { setup, type Shell } from './setup.ts';
import { audited } from './steering.ts';

/** A shell with dead letters, and a look at what it left behind. */
export interface DeadShell extends Shell {
  readonly states: () => Promise<Record<string, string>>;
  /** What the command line put on record. */
  readonly audit: () => Promise<Record<string, unknown>[]>;
}

const BOUNCING = [
  { id: 'dead-1', topic: 'mail.send', headers: { tenant: 'a' }, body: '{"n":1}' },
  { id: 'dead-2', topic: 'mail.send', headers: { tenant: 'b' }, body: '{"n":2}' },
  { id: 'dead-3', topic: 'orders.created', destination: 'erp', body: 'three' },
];

/** Three that bounced, of two causes; one on hold, one removed, and one that waits. */
export async function deadSpool(): Promise<DeadShell> {
  const shell = await setup();
  const spool = shell.spool({ unhandled: 'leave' });
  spool.handle('mail.send', ({ headers }) => {
    throw new PermanentError('smtp.550', `no such user ${headers['tenant'] ?? ''}@example.com`);
  });
  spool.handle('orders.created', () => {
    throw new PermanentError('timeout', 'no answer within 30 s');
  });
  await spool.start();
  const bounced = new Promise<void>((resolve) => {
    let count = 0;
    spool.on('bounced', () => {
      count += 1;
      if (count === BOUNCING.length) resolve();
    });
  });
  for (const message of BOUNCING) await spool.enqueue(message);
  await bounced;
  await spool.stop();
  const idle = shell.spool();
  await idle.enqueue({ id: 'held-1', topic: 'orders.created', body: 'four' });
  await idle.operator({ by: 'somebody' }).hold(['held-1'], { reason: 'to look at it' });
  await idle.enqueue({ id: 'gone-1', topic: 'orders.created', body: 'five' });
  await idle.operator({ by: 'somebody' }).remove(['gone-1']);
  await idle.enqueue({ id: 'waits-1', topic: 'orders.created' });
  await idle.stop();
  return { ...shell, states: () => states(shell), audit: () => audited(shell) };
}
