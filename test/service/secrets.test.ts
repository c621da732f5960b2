/** What must not be seen: secrets in no output at all, bodies and headers in no log. */
import { expect, test } from 'vitest';
import { folder, receiver, respool, route, serve, until } from './binary.ts';

const TOKEN = 'canary-token-0123456789abcdef';
const SECRET = 'canary-secret-0123456789abcdef';
const FIXED = 'Bearer canary-authorization-0123';
const BODY = 'canary-body-0123456789';
const HEADER = 'canary-header-0123456789';

test('secrets are in no output, bodies and headers in no log', async () => {
  let requests = 0;
  const { url } = await receiver((request, response) => {
    requests += 1;
    request.resume();
    response.writeHead(requests % 2 === 0 ? 500 : 410).end('no');
  });
  const cwd = await folder({
    serve: { token: '${THE_TOKEN}' },
    log: { level: 'debug' },
    routes: [route('a', url, {}, { secret: '${THE_SECRET}', headers: { authorization: FIXED } })],
  });
  const env = { THE_TOKEN: TOKEN, THE_SECRET: SECRET, RESPOOL_TOKEN: TOKEN };
  const service = await serve(cwd, [], env);
  const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(`${service.url}${path}`, init);
  const authorized = { authorization: `Bearer ${TOKEN}` };
  const post = { method: 'POST', body: BODY };
  const headers = { ...authorized, 'respool-header-note': HEADER };
  expect((await ask('/v1/topics/a/messages', { ...post, headers })).status).toBe(201);
  expect((await ask('/v1/topics/a/messages', { ...post, headers })).status).toBe(201);
  // Refusals of all kinds: none of them may quote what was sent.
  await ask('/v1/messages', { headers: { authorization: `Bearer x${TOKEN}` } });
  await ask('/v1/topics/a/messages', { ...post, headers: { ...headers, 'respool-what': SECRET } });
  await ask(`/v1/messages/${TOKEN}?${SECRET}`, { headers: authorized });
  await until(async () => requests >= 2);
  await service.prints(/bounced/);

  const shown = await Promise.all(
    [
      ['config'],
      ['config', '--json'],
      ['doctor'],
      ['list', '--json'],
      ['stats'],
      ['audit'],
      ['policy', 'explain', 'default'],
      ['list', '--state', SECRET],
      ['serve', '--port', SECRET],
    ].map((words) => respool(cwd, words, { env })),
  );
  service.kill('SIGTERM');
  await service.ended;
  const outputs = shown.map(({ stdout, stderr }) => stdout + stderr);
  // A word that somebody typed himself may come back to him; nothing else may.
  const own = outputs.slice(0, -2).join('\n');
  for (const canary of [TOKEN, SECRET, FIXED.slice('Bearer '.length)]) {
    expect(own).not.toContain(canary);
    expect(service.printed()).not.toContain(canary);
  }
  expect(service.printed()).not.toContain(BODY);
  expect(service.printed()).not.toContain(HEADER);
  expect(own).not.toContain(BODY);
  expect(own).toContain('(secret)');
});

test('what must not be on the command line cannot be', async () => {
  const cwd = await folder();
  const refused = await respool(cwd, ['list', '--token', TOKEN]);
  expect(refused).toMatchObject({ code: 2, stdout: '' });
  expect(refused.stderr).toMatch(/unknown option "--token"/);
  expect(refused.stderr).not.toContain(TOKEN);
});
