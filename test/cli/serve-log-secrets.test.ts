/** Nothing that a service prints holds a secret, from wherever it comes; log.redact hides more. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { setup } from './setup.ts';

const CANARY = 'canary';
let made = 0;

/** A secret nobody else has. */
function canary(): string {
  made += 1;
  return `${CANARY}-7f3a91c04be2-${made}`;
}

/** A service whose configuration and handlers are full of secrets. Nobody listens on port 1. */
async function serving(words: readonly string[], log: object = {}) {
  const shell = await setup();
  const token = canary();
  const said = [
    `cannot reach amqp://robot:${canary()}@mq.example`,
    `got Authorization: Bearer ${canary()}`,
    `{"password":"${canary()}"}`,
  ];
  const config = `
    let at = 0;
    const said = ${JSON.stringify(said)};
    const deliver = () => { throw new Error(said[at++ % said.length]); };
    export default {
      log: ${JSON.stringify(log)},
      serve: { port: 0, stopWithin: '100ms' },
      routes: [
        { topic: 'a', deliver },
        { topic: 'hook', deliver: { http: {
          url: 'http://127.0.0.1:1/x?token=${canary()}',
          allow: ['127.0.0.1'],
          headers: { authorization: 'Bearer ${canary()}', 'x-api-key': '${canary()}' },
        } } },
      ],
      consumers: [{ url: 'amqp://robot:${canary()}@127.0.0.1:1', queue: 'q', deliver }],
      outbox: {
        store: 'postgres://robot:${canary()}@127.0.0.1:1/db',
        relay: { to: { amqp: 'amqp://robot:${canary()}@127.0.0.1:1', exchange: 'x' } },
      },
    };
  `;
  await writeFile(path.join(shell.folder, 'respool.config.mjs'), config);
  const env = { NO_COLOR: '1', RESPOOL_TOKEN: token };
  const tty = words.includes('json') ? [] : (['stdout'] as const);
  const running = shell.start(['serve', '--verbose', ...words], { tty, env });
  onTestFinished(async () => {
    running.signal('SIGTERM');
    await running.ended;
  });
  const [, url = ''] = await running.printed(/listening on (http:[^\s,"]+)/);
  const post = async (topic: string): Promise<void> => {
    const headers = { authorization: `Bearer ${token}` };
    const where = `${url}/v1/topics/${topic}/messages`;
    expect((await fetch(where, { method: 'POST', headers, body: canary() })).status).toBe(201);
  };
  return { running, post, url };
}

test.each(['pretty', 'json'])(
  'as %s, no secret of configuration or handlers is printed',
  async (format) => {
    const { running, post, url } = await serving(['--log-format', format]);
    for (const topic of ['a', 'a', 'a', 'hook']) await post(topic);
    // One that is wrong, and one in a path.
    await fetch(`${url}/v1/stats`, { headers: { authorization: `Bearer ${canary()}` } });
    await running.printed(/cannot reach amqp:\/\/\(secret\)@mq/);
    await running.printed(/Authorization: Bearer \(secret\)|Authorization: \(secret\)/);
    await running.printed(/password\W+\(secret\)/);
    await running.printed(/cannot consume q/);
    await running.printed(/hook/);
    await running.printed(/token\.unknown/);
    running.signal('SIGTERM');
    const { stdout, stderr } = await running.ended;
    expect(stdout + stderr).not.toContain(CANARY);
    expect(stdout).toContain('(secret)');
  },
);

test.each([
  ['pretty', / deferred topic=\(secret\) attempt=1 .*code=error reason=/],
  ['json', /"topic":"\(secret\)".*"kind":"deferred"/],
])('as %s, log.redact hides what it names', async (format, line) => {
  const { running, post } = await serving(['--log-format', format], { redact: ['Topic', 'path'] });
  await post('a');
  await running.printed(line);
  running.signal('SIGTERM');
  const { stdout } = await running.ended;
  expect(stdout).not.toMatch(/topic"?[=:]"?a\b/);
});
