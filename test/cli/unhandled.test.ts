/** list and show say which messages wait without a handler, where the answering process knows. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { setup, type Shell } from './setup.ts';

const TEXT = 'no handler for this topic in this process';
/** The secret is not in the environment of an operator. */
const URL_OF_SECRET = 'https://example.org/${RECEIVER_SECRET}';

async function configured(config: object): Promise<Shell> {
  const shell = await setup({ hasStore: true });
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
  const spool = shell.spool();
  await spool.enqueueMany([
    { id: 'm-mail', topic: 'mail.new', delay: '1h' },
    { id: 'm-hook', topic: 'hook', delay: '1h' },
    { id: 'm-other', topic: 'other', delay: '1h' },
    { id: 'm-alert', topic: 'respool.alert.ops', delay: '1h' },
  ]);
  await spool.stop();
  return shell;
}

/** The ids that list, show and their JSON call unhandled; all have to agree. */
async function unhandled({ cli }: Shell, ...words: string[]): Promise<string[]> {
  const listed = await cli(['list', '--wide', ...words]);
  expect(listed).toMatchObject({ code: 0, stderr: '' });
  const lines = listed.stdout.split('\n').filter((line) => line.includes(TEXT));
  const ids = lines.map((line) => line.split(' ')[0] ?? '');
  const objects = (await cli(['list', '--json', ...words])).objects();
  expect(objects).toHaveLength(4);
  expect(objects.filter((one) => one['unhandled'] === true).map(({ id }) => id)).toEqual(ids);
  for (const { id } of objects) {
    const shown = await cli(['show', id as string, ...words]);
    const line = new RegExp(`^handler +${TEXT}$`, 'm');
    expect(line.test(shown.stdout)).toBe(ids.includes(id as string));
  }
  return ids;
}

const routes = [
  { topic: 'mail.*', deliver: { http: { url: URL_OF_SECRET } } },
  { topic: 'hook', deliver: { http: { url: URL_OF_SECRET } } },
];

describe('a command on the store itself', () => {
  test('knows the routes of its configuration, without the secrets of their handlers', async () => {
    expect(await unhandled(await configured({ routes }))).toEqual(['m-other']);
  });

  test('reads the topics of a configuration that is a program', async () => {
    const shell = await configured({ routes });
    const program = "export default { routes: [{ topic: 'mail.#', deliver: () => {} }] };";
    await writeFile(path.join(shell.folder, 'program.mjs'), program);
    expect(await unhandled(shell, '--config', 'program.mjs')).toEqual(['m-hook', 'm-other']);
  });

  test('says nothing where it does not know', async () => {
    expect(await unhandled(await configured({}))).toEqual([]);
    expect(await unhandled(await configured({ routes: [] }))).toEqual([]);
    expect(await unhandled(await configured({ routes, unhandled: 'leave' }))).toEqual([]);
    const filled = [...routes, { topic: '${TOPIC}', deliver: { exec: ['true'] } }];
    expect(await unhandled(await configured({ routes: filled }))).toEqual([]);
    // The routes of a configuration are for its own store.
    expect(await unhandled(await configured({ routes }), '--store', 'sqlite:./respool')).toEqual(
      [],
    );
  });
});

test('the service tells it of its own handlers', async () => {
  const shell = await configured({
    routes: [{ topic: 'mail.*', deliver: { exec: ['true'] } }],
    alerts: { to: { ops: { exec: ['true'] } } },
  });
  const service = shell.start(['serve', '--port', '0']);
  onTestFinished(async () => {
    service.signal('SIGTERM');
    await service.ended;
  });
  const [, url = ''] = await service.printed(/"url":"(http:[^"]+)"/);
  expect(await unhandled(await setup(), '--url', url)).toEqual(['m-hook', 'm-other']);
  const answer = await fetch(`${url}/v1/messages/m-other`);
  expect(await answer.json()).toMatchObject({ id: 'm-other', unhandled: true });
  const handled = await fetch(`${url}/v1/messages/m-mail`);
  expect(await handled.json()).not.toHaveProperty('unhandled');
});
