/**
 * spool — the whole face of a spool in one program. Policies, handlers, a bounce handler, a streamed
 * body, looking, steering, stopping.
 */

import { createSpool, exponential, ladder, PermanentError, postfix, RetryableError } from 'respool';

// The other side, made up: the first answer is "later", the second is "yes".
let calls = 0;
const smtp = {
  async send(_mail: unknown, _options: { signal: AbortSignal; idempotencyKey: string }) {
    calls += 1;
    return calls === 1
      ? { code: 451, text: 'greylisted', queueId: '' }
      : { code: 250, text: 'ok', queueId: 'q-17' };
  },
};
const log = { info: (event: object) => console.log('event', event) };
const notify = async (id: string, failure: unknown) => console.log('bounced', id, failure);
async function* source() {
  for (let part = 0; part < 40; part += 1) yield Buffer.alloc(1024, part);
}

const spool = createSpool({
  path: './respool',
  policies: {
    default: postfix(),
    webhooks: exponential({ first: '1s', factor: 2, max: '1h', attempts: 12, jitter: 0.2 }),
    strict: ladder(['2s', '5s', '15s']),
  },
  concurrency: 50,
  lease: '60s',
  retention: { delivered: 'remove', bounced: 'keep' },
  limits: { bodyBytes: 64 * 2 ** 20, headerBytes: 32 * 2 ** 10 },
});

spool.handle(
  'mail.*',
  async (delivery) => {
    const mail = await delivery.json();
    const answer = await smtp.send(mail, { signal: delivery.signal, idempotencyKey: delivery.id });
    if (answer.code === 550) throw new PermanentError('smtp.550', answer.text);
    if (answer.code >= 400) {
      throw new RetryableError(`smtp.${answer.code}`, answer.text, { retryAfter: '10m' });
    }
    delivery.note('remote-queue-id', answer.queueId);
  },
  { policy: 'webhooks', concurrency: 20, timeout: '30s' },
);

spool.onBounce('mail.*', async (delivery) => notify(delivery.id, delivery.lastFailure));

spool.on('deferred', (event) => log.info(event));
await spool.start();

const { id, duplicate } = await spool.enqueue({
  topic: 'mail.welcome',
  body: { to: 'a@example.com' },
  headers: { tenant: 'acme' },
  policy: 'webhooks',
  delay: '5m',
  expires: '2d',
  priority: 3,
  dedupeKey: 'welcome-42',
});
console.log('enqueued', { duplicate });

await using tx = await spool.begin({ topic: 'report' });
for await (const chunk of source()) await tx.write(chunk);
await tx.commit();

console.log('state', (await spool.get(id))?.status.state);
for await (const chunk of await spool.body(id)) console.log('body', Buffer.from(chunk).toString());
for await (const entry of spool.list({ state: 'deferred', topic: 'mail.*', olderThan: '1h' })) {
  console.log('old', entry.envelope.id);
}
await spool.operator({ by: 'ops' }).hold([id], { reason: 'why' });
await spool.operator({ by: 'ops' }).release([id]);
await spool.operator({ by: 'ops' }).retry([id]);
await spool.operator({ by: 'ops' }).bounce([id]);
await spool.operator({ by: 'ops' }).remove([id]);
await spool.operator({ by: 'ops' }).pause('mail.*');
await spool.operator({ by: 'ops' }).resume('mail.*');
console.log('count', await spool.count());
await spool.stop({ within: '10s' });
