/**
 * quickstart — `npm start`: `respool serve` with the configuration beside this file, a receiver for
 * it to deliver to, and a few orders. Ends with Ctrl-C.
 */

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { startReceiver } from './receiver.ts';

const PORT = process.env['RESPOOL_SERVE_PORT'] ?? '7667';
const SERVICE = `http://127.0.0.1:${PORT}`;
const CUSTOMERS = ['ann', 'busy-bob', 'carl', 'gone-gus', 'dora', 'down-dan', 'eve', 'busy-flo'];

if ((await fetch(`${SERVICE}/healthz`).catch(() => undefined)) !== undefined) {
  console.error(`something answers at ${SERVICE} already; end it, or set RESPOOL_SERVE_PORT`);
  process.exit(2);
}
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
for (const customer of CUSTOMERS) {
  await fetch(`${SERVICE}/v1/topics/order.new/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ customer }),
  });
}
// All but the one whose receiver stays down: that takes a while longer.
await endings(CUSTOMERS.length - 1);
console.log(`
It runs until Ctrl-C. In another terminal, try next:
  curl -H 'content-type: application/json' -d '{"customer":"gina"}' ${SERVICE.slice('http://'.length)}/v1/topics/order.new/messages
  npx respool list
  npx respool shape
`);

/** Resolves when the service takes messages. */
async function ready(): Promise<void> {
  for (;;) {
    const answer = await fetch(`${SERVICE}/readyz`).catch(() => undefined);
    if (answer?.ok === true) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Resolves when so many messages were delivered or bounced, as the service tells. */
async function endings(count: number): Promise<void> {
  let seen = 0;
  for await (const part of events.body ?? []) {
    seen +=
      Buffer.from(part)
        .toString()
        .match(/^event: (?:delivered|bounced)/gm)?.length ?? 0;
    if (seen >= count) return;
  }
}
