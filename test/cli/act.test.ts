/** act — what every action does with ids from stdin, with --dry-run, and when it breaks off. */
import { createServer, request as sendOn } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { setup } from './setup.ts';
import { audited, steering } from './steering.ts';
import { systemClock } from '../time.ts';

async function withMessages(count: number) {
  const shell = await setup();
  const own = shell.spool();
  const messages = Array.from({ length: count }, () => ({ topic: 'a', delay: '1h' }));
  const ids = (await own.enqueueMany(messages)).map(({ id }) => id);
  await own.stop();
  return { ...shell, ids };
}

async function serving(shell: Awaited<ReturnType<typeof setup>>): Promise<string> {
  const service = shell.start(['serve', '--port', '0']);
  onTestFinished(async () => {
    service.signal('SIGTERM');
    await service.ended;
  });
  const [, url = ''] = await service.printed(/"url":"(http:[^"]+)"/);
  return url;
}

describe('ids from stdin', () => {
  test('a line without an id is refused by its number, and the others are done', async () => {
    const { cli, ids } = await withMessages(600);
    const stdin = [...ids.slice(0, 550), 'bad id !!', ...ids.slice(550)].join('\n');
    const ran = await cli(['hold', '-'], { stdin });
    expect(ran).toMatchObject({ code: 1, stdout: 'held 600, refused 1\n' });
    expect(ran.stderr).toMatch(/^cannot use line 551 of stdin: cannot use "bad id !!" as id/);
    const json = await cli(['release', '-', '--json'], { stdin: `${ids[0]}\n{"no":1}\n` });
    expect(json.code).toBe(1);
    expect(json.objects()).toMatchObject([
      { line: 2, result: 'refused' },
      { id: ids[0], result: 'done' },
    ]);
  });

  test('through a service many are looked up in few requests', async () => {
    const shell = await withMessages(620);
    const url = await serving(shell);
    const stdin = [...shell.ids.toReversed(), 'nobody'].join('\n');
    const shown = await shell.cli(['show', '-', '--json', '--url', url], { stdin });
    expect(shown.objects().map(({ id }) => id)).toEqual(shell.ids.toReversed());
    expect(shown.code).toBe(1);
    expect(shown.stderr).toContain('there is no message \\"nobody\\"');
    const dry = await shell.cli(['hold', '-', '--dry-run', '--url', url], { stdin });
    expect(dry).toMatchObject({ code: 1, stdout: 'would hold 620, unknown 1\n' });
  });
});

describe('--dry-run by ids', () => {
  test.each([
    ['release', 'in-incoming', /only a held message can be released/],
    ['hold', 'in-hold', /it is in hold already/],
    ['retry', 'in-incoming', /cannot .* message "in-incoming"/],
    ['bounce', 'in-archived', /cannot .* message "in-archived"/],
    ['remove', 'in-archived', /cannot .* message "in-archived"/],
  ])('%s of %s is refused as it would be', async (action, id, why) => {
    const shell = await steering();
    const ran = await shell.cli([action, id, '--dry-run']);
    expect(ran).toMatchObject({ code: 1, stdout: `would ${action} 0, refused 1\n` });
    expect(ran.stderr).toMatch(why);
    expect(await audited(shell)).toEqual([]);
    const real = await shell.cli([action, id]);
    expect(real.code).toBe(1);
    expect(real.stderr).toBe(ran.stderr);
  });

  test('what would be done is possible, not done', async () => {
    const { cli } = await steering();
    const ran = await cli(['retry', 'in-hold', '--dry-run', '--json']);
    expect(ran).toMatchObject({ code: 0 });
    expect(ran.objects()).toEqual([{ id: 'in-hold', result: 'possible', dryRun: true }]);
    expect((await cli(['remove', 'in-archived', '--hard', '--dry-run'])).code).toBe(0);
  });

  test('an unknown policy is refused', async () => {
    const { cli } = await steering();
    const known = await cli(['policy', 'set', 'default', 'in-hold', '--dry-run']);
    expect(known).toMatchObject({ code: 0, stdout: 'would set the policy of 1\n' });
    const ran = await cli(['policy', 'set', 'nope', 'in-hold', '--dry-run', '--json']);
    expect(ran).toMatchObject({ code: 1, stdout: '' });
    expect(JSON.parse(ran.stderr)).toMatchObject({ error: { code: 'policy.unknown' } });
  });
});

describe('an end in the middle', () => {
  /** A service behind a door that falls shut at the third POST. */
  async function dying(shell: Awaited<ReturnType<typeof setup>>): Promise<string> {
    const url = await serving(shell);
    let posts = 0;
    const door = createServer((request, response) => {
      posts += request.method === 'POST' ? 1 : 0;
      if (posts > 2) {
        request.socket.destroy();
        return;
      }
      const { method = 'GET', headers } = request;
      const onward = sendOn(`${url}${request.url}`, { method, headers }, (answer) => {
        response.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(response);
      });
      request.pipe(onward);
    });
    await new Promise<void>((resolve) => door.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      door.closeAllConnections();
      door.close();
    });
    return `http://127.0.0.1:${(door.address() as AddressInfo).port}`;
  }

  test('a service that goes away leaves the count of what was done', async () => {
    const shell = await withMessages(5_200);
    const ran = await shell.cli(['hold', 'ALL', '--yes', '--url', await dying(shell)]);
    expect(ran).toMatchObject({ code: 3, stdout: '' });
    expect(ran.stderr).toMatch(
      /^respool: held 5000 of 5200, then: the service at .* did not answer/,
    );
  });

  test('so it does by ids', async () => {
    const shell = await withMessages(1_200);
    const stdin = shell.ids.join('\n');
    const ran = await shell.cli(['hold', '-', '--url', await dying(shell)], { stdin });
    expect(ran).toMatchObject({ code: 3, stdout: '' });
    expect(ran.stderr).toMatch(/^respool: held 1000, then: the service at .* did not answer/);
  });

  test('SIGTERM says how far it came, and ends with 143', async () => {
    const shell = await steering();
    const running = shell.start(['retry', '--state', 'deferred', '--yes'], {
      clock: {
        ...systemClock,
        // Asked for the first time when the work begins.
        monotonic: () => {
          running.signal('SIGTERM');
          return 0;
        },
      },
    });
    const ran = await running.ended;
    expect(ran).toMatchObject({ code: 143, stdout: '' });
    expect(ran.stderr).toMatch(/ended by SIGTERM after 0 of 1 message: 0 done, the rest untouched/);
  });
});
