/** fill — messages in every state, for commands to look at and steer. */
import type { Spool } from 'respool';
import { PermanentError, RetryableError } from 'respool';
import type { Shell } from './setup.ts';

/** Puts one message into each of these places, and closes the store again. */
export async function fill(shell: Shell): Promise<void> {
  const spool = shell.spool({ unhandled: 'leave' });
  spool.handle('fails.*', () => {
    throw new RetryableError('smtp.451', 'greylisted');
  });
  spool.handle('dies', () => {
    throw new PermanentError('http.410', 'gone');
  });
  await spool.start();
  const settled = [
    happened(spool, 'deferred', 'in-deferred'),
    happened(spool, 'bounced', 'in-bounce'),
  ];
  await spool.enqueue({
    id: 'in-deferred',
    topic: 'fails.mail',
    body: 'x',
    destination: 'mail-1',
    headers: { tenant: 'a' },
  });
  await spool.enqueue({ id: 'in-bounce', topic: 'dies', body: 'x' });
  await Promise.all(settled);
  await spool.enqueue({ id: 'in-incoming', topic: 'waits.new', body: '{"hello":1}' });
  await spool.enqueue({ id: 'in-hold', topic: 'waits.long' });
  await spool.operator({ by: 'somebody' }).hold(['in-hold'], { reason: 'to look at it' });
  await spool.enqueue({ id: 'in-archived', topic: 'waits.new' });
  await spool.operator({ by: 'somebody' }).remove(['in-archived']);
  await spool.stop();
}

/** Resolves when it happened to the message. */
function happened(spool: Spool, kind: 'deferred' | 'bounced' | 'delivered', id: string) {
  return new Promise<void>((resolve) => {
    const off = spool.on(kind, (event) => {
      if (event.id !== id) return;
      off();
      resolve();
    });
  });
}

/** The state of every message, by id. */
export async function states(shell: Shell): Promise<Record<string, string>> {
  const { objects } = await shell.cli(['list', '--json']);
  return Object.fromEntries(
    objects().map(({ id, status }) => [id as string, (status as { state: string }).state]),
  );
}
