/** The way of a thousand messages through the real binary, to receivers as they are in real life. */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { folder, receiver, respool, route, serve, until } from './binary.ts';

/** What each kind of receiver does, how its messages end, and after how many attempts. */
const KINDS = {
  good: { answer: () => 200, ending: 'delivered', attempts: 1 },
  flaky: {
    answer: (attempt: number) => (attempt < 3 ? 500 : 204),
    ending: 'delivered',
    attempts: 3,
  },
  busy: {
    answer: (attempt: number) => (attempt < 2 ? 429 : 200),
    ending: 'delivered',
    attempts: 2,
  },
  broken: { answer: () => 500, ending: 'bounce', attempts: 4 },
  gone: { answer: () => 410, ending: 'bounce', attempts: 1 },
  hanging: { answer: () => undefined, ending: 'bounce', attempts: 4 },
} as const;
type Kind = keyof typeof KINDS;
const MESSAGES = 1_000;
const CLIENTS = 20;
const RETRY_AFTER_MS = 1_000;

interface Seen {
  readonly at: number;
  readonly attempt: number;
}

test('a thousand messages end where they should, also when the service is killed', async () => {
  const seen = new Map<string, Seen[]>();
  const { url } = await receiver((request, response) => {
    const id = String(request.headers['respool-id']);
    const attempt = Number(request.headers['respool-attempt']);
    seen.set(id, [...(seen.get(id) ?? []), { at: Date.now(), attempt }]);
    const kind = KINDS[(request.url ?? '').slice(1) as Kind];
    const status = kind.answer(attempt);
    request.resume();
    if (status === undefined) return;
    if (status === 429) response.setHeader('retry-after', RETRY_AFTER_MS / 1_000);
    response.writeHead(status).end(`attempt ${attempt}`);
  });
  const cwd = await folder();
  expect((await respool(cwd, ['init', '--format', 'json', '--config-only'])).code).toBe(0);
  const file = path.join(cwd, 'respool.config.json');
  const config = {
    ...(JSON.parse(await readFile(file, 'utf8')) as object),
    policies: { default: { exponential: { first: '100ms', factor: 2, attempts: 4 } } },
    retention: { delivered: { archive: '1d' } },
    routes: Object.keys(KINDS).map((kind) =>
      route(`${kind}.*`, `${url}/${kind}`, {}, kind === 'hanging' ? { timeout: '300ms' } : {}),
    ),
  };
  await writeFile(file, JSON.stringify(config));
  let service = await serve(cwd);

  const accepted = new Map<string, Kind>();
  let toPost = MESSAGES;
  const kinds = Object.keys(KINDS) as Kind[];
  const client = async (): Promise<void> => {
    while (toPost > 0) {
      toPost -= 1;
      // Few of those that hang: each holds its slot for its whole time.
      const kind = toPost % 50 === 0 ? 'hanging' : (kinds[toPost % 5] ?? 'good');
      const answer = await fetch(`${service.url}/v1/topics/${kind}.test/messages`, {
        method: 'POST',
        body: `message ${toPost}`,
      }).catch(() => undefined);
      // Not answered 201: nobody promised anything, and the client posts it again.
      if (answer?.status !== 201) {
        toPost += 1;
        await service.ended.then(() => restarted);
        continue;
      }
      const { id } = (await answer.json()) as { id: string };
      accepted.set(id, kind);
    }
  };
  let restarted: Promise<void> = Promise.resolve();
  const half = until(async () => accepted.size >= MESSAGES / 2).then(() => {
    restarted = (async () => {
      service.kill('SIGKILL');
      await service.ended;
      service = await serve(cwd);
    })();
    return restarted;
  });
  await Promise.all([...Array.from({ length: CLIENTS }, client), half]);
  expect(accepted.size).toBe(MESSAGES);

  const list = async (query: string): Promise<Listed[]> => {
    const listed: Listed[] = [];
    let next: string | undefined;
    do {
      const after = next === undefined ? '' : `&after=${encodeURIComponent(next)}`;
      const answer = await fetch(`${service.url}/v1/messages?limit=500&${query}${after}`);
      const page = (await answer.json()) as { messages: Listed[]; next?: string };
      listed.push(...page.messages);
      next = page.next;
    } while (next !== undefined);
    return listed;
  };
  await until(async () => (await list('state=incoming&state=active&state=deferred')).length === 0);

  const ended = new Map((await list('')).map((message) => [message.id, message]));
  // Posts that the killed service stored and could not answer are there too; nothing is lost.
  expect([...accepted.keys()].filter((id) => !ended.has(id))).toEqual([]);
  const wrong: unknown[] = [];
  for (const [id, kind] of accepted) {
    const { status } = ended.get(id) as Listed;
    const { ending, attempts } = KINDS[kind];
    const state = ending === 'bounce' ? 'bounce' : 'archived';
    // An attempt whose process was killed is counted, and nobody was there to write it down.
    const wasLost = status.history.length < status.attempts;
    const most = attempts + (wasLost ? 1 : 0);
    const isRight =
      status.state === state && status.attempts >= attempts && status.attempts <= Math.min(most, 4);
    if (!isRight) wrong.push({ id, kind, status });
  }
  expect(wrong).toEqual([]);
  for (const [id, kind] of accepted) {
    const tries = seen.get(id) ?? [];
    expect(tries.length, `${kind} ${id}`).toBeGreaterThan(0);
    const { history, attempts } = (ended.get(id) as Listed).status;
    const wasLost = history.length < attempts;
    expect(new Set(tries.map((one) => one.attempt)).size).toBeGreaterThanOrEqual(
      attempts - (wasLost ? 1 : 0),
    );
    expect(Math.max(...tries.map((one) => one.attempt))).toBeLessThanOrEqual(attempts);
    if (!wasLost) expect(tries).toHaveLength(attempts);
    if (kind !== 'busy' || tries.length !== 2 || wasLost) continue;
    const [first, second] = tries as [Seen, Seen];
    expect(second.at - first.at).toBeGreaterThanOrEqual(RETRY_AFTER_MS);
  }
  const noted = [...ended.values()].find(
    ({ topic, envelope }) => (topic ?? envelope.topic) === 'gone.test',
  );
  expect(noted?.status.notes).toMatchObject({ 'http-status': '410', 'http-response': 'attempt 1' });

  service.kill('SIGTERM');
  expect(await service.ended).toBe(0);
  const counted = await respool(cwd, ['stats', '--json']);
  expect(counted.code).toBe(0);
});

interface Listed {
  readonly id: string;
  readonly topic?: string;
  readonly envelope: { readonly topic: string };
  readonly status: {
    readonly state: string;
    readonly attempts: number;
    readonly history: readonly unknown[];
    readonly notes: Readonly<Record<string, string>>;
  };
}
