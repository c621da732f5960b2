/** A store that has one owner: commands reach it through the service, whose address the lock names. */
import { expect, test } from 'vitest';
import { folder, respool, serve } from './binary.ts';

test.each(['file:./spool', 'memory:'])(
  '%s: commands go through the running service',
  async (store) => {
    // A memory store has no lock to ask: there the address stands in the configuration.
    const cwd = await folder({ store });
    const service = await serve(cwd);
    const env = store === 'memory:' ? { RESPOOL_URL: service.url } : {};
    const put = await respool(cwd, ['enqueue', 'a', '--body', 'hello'], { env });
    expect(put).toMatchObject({ code: 0 });
    const id = put.stdout.trim();
    expect((await respool(cwd, ['cat', id], { env })).stdout).toBe('hello');
    expect((await respool(cwd, ['hold', id], { env })).code).toBe(0);
    const listed = await respool(cwd, ['list', '--state', 'hold', '--json'], { env });
    expect(JSON.parse(listed.stdout)).toMatchObject({ id });
    const audit = await respool(cwd, ['audit', '--json'], { env });
    expect(JSON.parse(audit.stdout.trim().split('\n').at(-1) ?? '')).toMatchObject({
      action: 'hold',
      by: expect.stringMatching(/@cli$/),
    });
    expect((await respool(cwd, ['remove', 'ALL', '--yes'], { env })).code).toBe(0);
    service.kill('SIGTERM');
    await service.ended;
  },
);

test('without its service a folder of files is opened by the command itself', async () => {
  const cwd = await folder({ store: 'file:./spool' });
  const id = (await respool(cwd, ['enqueue', 'a', '--body', 'hello'])).stdout.trim();
  expect((await respool(cwd, ['cat', id])).stdout).toBe('hello');
  const service = await serve(cwd);
  expect((await respool(cwd, ['cat', id])).stdout).toBe('hello');
  // Killed, it leaves its address behind; nobody answers there, and nobody has the lock.
  service.kill('SIGKILL');
  await service.ended;
  expect((await respool(cwd, ['cat', id])).stdout).toBe('hello');
});

test('a second service on the same folder is refused, and told who has it', async () => {
  const cwd = await folder({ store: 'file:./spool' });
  const service = await serve(cwd);
  const second = await respool(cwd, ['serve', '--port', '0']);
  expect(second.code).toBe(3);
  expect(second.stderr).toContain(`whose service is at ${service.url}`);
});

test('a memory store without its service says where it lives', async () => {
  const cwd = await folder({ store: 'memory:', serve: { port: 1 } });
  const listed = await respool(cwd, ['list']);
  expect(listed.code).toBe(3);
  expect(listed.stderr).toMatch(/memory/);
});

test('sqlite: a service on a port of its own is found by who asks what only it knows', async () => {
  const cwd = await folder({ routes: [{ topic: 'a', deliver: { exec: ['true'] } }] });
  const service = await serve(cwd);
  await fetch(`${service.url}/v1/topics/a/messages`, { method: 'POST', body: 'x' });
  await service.prints(/"kind":"delivered"/);
  const stats = await respool(cwd, ['stats', '--json']);
  expect(JSON.parse(stats.stdout)).toMatchObject({ flow: { delivered: 1 }, load: { settled: 1 } });
  expect((await respool(cwd, ['doctor'])).stdout).toContain(`answers at ${service.url}`);
  // Killed, it can be asked no more, and its address is not believed.
  service.kill('SIGKILL');
  await service.ended;
  const left = await respool(cwd, ['stats', '--json']);
  expect(JSON.parse(left.stdout)).not.toHaveProperty('flow');
});

test('sqlite: without a token of the service there is still the store', async () => {
  const cwd = await folder({ serve: { token: '${SERVE_TOKEN}' } });
  const env = { SERVE_TOKEN: 'a-token-that-is-long-enough' };
  await serve(cwd, [], env);
  const strange = { ...env, RESPOOL_TOKEN: 'another-token-which-is-not-known' };
  const stats = await respool(cwd, ['stats', '--json', '--verbose'], { env: strange });
  expect(stats.stderr).toMatch(/the service did not let us in/);
  expect(JSON.parse(stats.stdout)).toMatchObject({ states: { incoming: { count: 0 } } });
  const known = await respool(cwd, ['stats', '--json'], { env });
  expect(JSON.parse(known.stdout)).toHaveProperty('load');
});
