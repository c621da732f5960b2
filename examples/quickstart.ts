/**
 * quickstart — the main job on the embedded default: put messages down, let a handler try, see them
 * deferred, delivered, bounced. Run it with `npm start`; it ends by itself after a few seconds.
 */

import { styleText } from 'node:util';
import { createSpool, exponential, formatDuration, PermanentError, RetryableError } from 'respool';

const spool = createSpool({
  path: './respool',
  policies: { default: exponential({ first: '400ms', factor: 2, attempts: 4 }) },
});

spool.on('accepted', ({ id, topic, state }) => line(id, 'cyan', state, `topic=${topic}`));
spool.on('delivered', ({ id, attempt }) => line(id, 'green', 'delivered', `attempt=${attempt}`));
spool.on('deferred', ({ id, at, dueAt, attempt, because }) => {
  const wait = formatDuration(dueAt - at);
  line(id, 'yellow', 'deferred', `attempt=${attempt} again in ${wait}: ${because.text}`);
});
spool.on('bounced', ({ id, attempt, because }) =>
  line(id, 'red', 'bounce', `attempt=${attempt} ${because.code}: ${because.text}`),
);
spool.on('announced', ({ id }) => line(id, 'magenta', 'announced', 'the sender was told'));

spool.handle('mail.*', async (delivery) => {
  const { to } = (await delivery.json()) as { to: string };
  // A receiver as they are in real life: one is away for a moment, one does not exist.
  if (to.startsWith('busy') && delivery.attempt < 3) {
    throw new RetryableError('smtp.451', 'greylisted, try again later');
  }
  if (to.startsWith('nobody')) throw new PermanentError('smtp.550', 'no such mailbox');
  if (to.startsWith('down')) throw new Error('connection refused');
  delivery.note('remote-queue-id', `q-${delivery.attempt}`);
});
spool.onBounce('mail.*', async (delivery) => {
  delivery.note('told', delivery.lastFailure?.code ?? 'unknown');
});

console.log('A spool in ./respool: SQLite and files, nothing else to install.\n');
await spool.start();

const addresses = ['ann', 'busy-bob', 'carl', 'nobody', 'dora', 'down-town', 'eve', 'busy-frank'];
const allEnded = ended(addresses.length);
for (const name of addresses) {
  await spool.enqueue({ topic: 'mail.welcome', body: { to: `${name}@example.com` } });
}
await allEnded;

const counts = await spool.count();
const shown = Object.entries(counts).filter(([, count]) => count > 0);
console.log(
  `\nWhat is left in the spool: ${shown.map(([state, n]) => `${state} ${n}`).join(', ') || 'nothing'}.`,
);
console.log('A bounced message stays until somebody decides. Try next:');
console.log('  look at the code of this run:   examples/quickstart.ts');
console.log('  every feature in one program:   examples/spool.ts');
console.log('  words, how-to, reference:       docs/start.md');
await spool.stop();

/** Resolves when this many messages have come to an end. */
function ended(count: number): Promise<void> {
  let soFar = 0;
  return new Promise((resolve) => {
    const one = (): void => {
      soFar += 1;
      if (soFar === count) resolve();
    };
    spool.on('delivered', one);
    spool.on('announced', one);
  });
}

function line(
  id: string,
  color: 'cyan' | 'green' | 'yellow' | 'red' | 'magenta',
  state: string,
  text: string,
): void {
  console.log(`…${id.slice(-6)}  ${styleText(color, state.padEnd(10))} ${text}`);
}
