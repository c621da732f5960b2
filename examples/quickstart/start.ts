/**
 * quickstart — `npm start`: `respool serve` with the configuration beside this file, a receiver for
 * it to deliver to, and a few messages. Ends with Ctrl-C.
 */

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { startReceiver } from './receiver.ts';

const PORT = process.env['RESPOOL_SERVE_PORT'] ?? '7667';
const SERVICE = `http://127.0.0.1:${PORT}`;
const MESSAGES = [
  ['ann', 'order.new'],
  ['busy-bob', 'order.new'],
  ['carl', 'invoice.new'],
  ['gone-gus', 'order.new'],
  ['dora', 'invoice.new'],
  ['down-dan', 'order.new'],
  ['down-deb', 'invoice.new'],
  ['busy-flo', 'order.new'],
  ['down-dot', 'order.new'],
] as const;
/** Messages of another run may still be in the store: these get ids of their own. */
const RUN = Date.now().toString(36).slice(-4);
const ANSWERS_WITHIN_MS = 3_000;
const READY_WITHIN_MS = 60_000;

await refuseTakenPort();
console.log(`Nine customers are sent an order or an invoice. Their receivers:
  ann, carl, dora                accept it at once
  busy-bob, busy-flo             are overloaded (503), take it at the third attempt
  gone-gus                       refuses permanently (410): it bounces
  down-dan, down-deb, down-dot   are broken (500): it waits, and is tried again
`);
const { server, port } = await startReceiver();
const respool = spawn(
  process.execPath,
  [
    '--conditions=respool-source',
    fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url)),
    'serve',
    '--config',
    import.meta.dirname,
    '--port',
    PORT,
    ...process.argv.slice(2),
  ],
  { stdio: 'inherit', env: { ...process.env, QUICKSTART_PORT: String(port) } },
);
// Whatever ends us, the service must not be left behind.
process.on('exit', () => respool.kill('SIGTERM'));
// Ctrl-C reaches both of us; the service finishes what it has in hand, and we wait for it.
process.on('SIGINT', () => undefined);
process.on('SIGTERM', () => respool.kill('SIGTERM'));
respool.on('exit', (code) => {
  server.closeAllConnections();
  server.close();
  process.exit(code ?? 1);
});

await ready();
const events = await fetch(`${SERVICE}/v1/events?kinds=delivered,bounced`);
for (const [customer, topic] of MESSAGES) {
  const answer = await fetch(`${SERVICE}/v1/topics/${topic}/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'respool-id': `${customer}-${RUN}` },
    body: JSON.stringify({ customer }),
  });
  if (!answer.ok) throw new Error(`${topic} of ${customer} was refused: ${await answer.text()}`);
}
// All but those whose receivers stay down.
await endings(MESSAGES.filter(([customer]) => !customer.startsWith('down')).length);
console.log(`
It runs until Ctrl-C. In another terminal, now or after that, try next:
  npx respool list                  every message, and why it is where it is
  npx respool shape                 what waits, by topic and minutes of age
  npx respool show down-dan-${RUN}    one message, with its last failure
  curl -d '{"customer":"gina"}' ${SERVICE.slice('http://'.length)}/v1/topics/order.new/messages
`);

/** What else listens there would take the messages, or leave us waiting for ever. */
async function refuseTakenPort(): Promise<void> {
  const problem = await fetch(`${SERVICE}/healthz`, {
    signal: AbortSignal.timeout(ANSWERS_WITHIN_MS),
  }).then(() => 'something answers there already', whatListens);
  if (problem === undefined) return;
  console.error(
    `cannot start at ${SERVICE}: ${problem}; end it, or take another port: ` +
      'RESPOOL_SERVE_PORT=7700 npm start',
  );
  process.exit(2);
}

/** What a request that failed says about the port; undefined: nothing listens there. */
function whatListens(error: unknown): string | undefined {
  if (isTimeout(error)) return 'something listens there and does not answer';
  const { code } = ((error as Error).cause ?? {}) as { readonly code?: string };
  return code === 'ECONNREFUSED' ? undefined : 'something listens there that is no HTTP service';
}

/** Resolves when the service takes messages. */
async function ready(): Promise<void> {
  const deadline = Date.now() + READY_WITHIN_MS;
  while (Date.now() < deadline) {
    const answer = await fetch(`${SERVICE}/readyz`, {
      signal: AbortSignal.timeout(ANSWERS_WITHIN_MS),
    }).catch(() => undefined);
    if (answer?.ok === true) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  console.error(
    `the service at ${SERVICE} was not ready within ${READY_WITHIN_MS / 1_000} s; the lines ` +
      `above may say why, and so may: curl ${SERVICE}/readyz`,
  );
  process.exit(1);
}

function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.name === 'TimeoutError';
}

/** Resolves when this many messages of this run were delivered or bounced, as the service tells. */
async function endings(count: number): Promise<void> {
  const ended = new Set<string>();
  let rest = '';
  for await (const part of events.body ?? []) {
    rest += Buffer.from(part).toString();
    for (const [, id = ''] of rest.matchAll(/^data: .*"id":"([^"]+)".*\n/gm)) {
      if (id.endsWith(`-${RUN}`)) ended.add(id);
    }
    rest = rest.slice(rest.lastIndexOf('\n') + 1);
    if (ended.size >= count) return;
  }
}
