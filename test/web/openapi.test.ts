/** The OpenAPI document, the routes, real exchanges and the reference page say the same. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { createApp } from '../../src/web/server/app.ts';
import { ROOT, readPage, tableUnder } from '../docs/pages.ts';
import { json, setup, type World } from './setup.ts';

interface Operation {
  readonly description?: string;
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { schema: object }>> };
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { schema: object }>> }>
  >;
}

interface Document {
  readonly openapi: string;
  readonly info: { readonly version: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

const documentOf = async ({ ask }: World): Promise<Document> => json(ask('/openapi.json'));

const operationsOf = ({ paths }: Document): (readonly [string, Operation])[] =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(
      ([method, operation]) => [`${method.toUpperCase()} ${path}`, operation] as const,
    ),
  );

describe('the document', () => {
  test('is OpenAPI 3.1, with the version of the package', async () => {
    const document = await documentOf(await setup());
    expect(document).toMatchObject({ openapi: '3.1.0', info: { version: '1.2.3' } });
  });

  test('has every route that is served, and no other', async () => {
    const world = await setup();
    const app = createApp({
      operator: world.spool.operator({ by: 'a' }),
      clock: world.clock,
      bodyMaxBytes: 1,
      eventsMax: 1,
      version: '1',
      signal: new AbortController().signal,
      isReady: () => true,
      isFull: () => false,
      isRefusing: () => false,
      onError: () => undefined,
    });
    const served = app.routes
      .filter(({ method }) => method !== 'ALL')
      .map(({ method, path }) => `${method} ${path.replaceAll(/:(\w+)/g, '{$1}')}`);
    // By hand, before the app.
    const all = [...served, 'POST /v1/topics/{topic}/messages'];
    const document = await documentOf(world);
    expect(
      operationsOf(document)
        .map(([name]) => name)
        .toSorted(),
    ).toEqual(all.toSorted());
    expect(all.length).toBeGreaterThan(20);
  });

  test('names a role for everything but health and itself', async () => {
    const free = operationsOf(await documentOf(await setup()))
      .filter(([, { description }]) => description === undefined)
      .map(([name]) => name);
    expect(free).toEqual(['GET /healthz', 'GET /readyz', 'GET /openapi.json']);
  });
});

const action = { kind: 'hold', reason: 'odd' };
const COPY = { id: 'x', topic: 'a', headers: {}, bodyBase64: 'aGk=', reason: 'removed' };
const VALUES = [
  'POST /v1/records/{kind}/values',
  'GET /v1/records/{kind}/values',
  'DELETE /v1/records/{kind}/values',
  '/v1/records/dlq.notes/values',
] as const;

/** Requests as people send them: name, path, body, status. */
const EXCHANGES: readonly [string, string, unknown, number][] = [
  ['POST /v1/topics/{topic}/messages', '/v1/topics/a/messages', undefined, 201],
  ['POST /v1/messages', '/v1/messages', { topic: 'a', body: { b: 1 }, delay: '5m' }, 201],
  ['POST /v1/messages', '/v1/messages', { topic: 'a', id: 'x' }, 200],
  ['POST /v1/messages', '/v1/messages', [{ topic: 'a' }, { topic: 'b', bodyText: 'hi' }], 201],
  ['POST /v1/messages', '/v1/messages', { topic: 'no good' }, 400],
  ['GET /v1/messages', '/v1/messages?state=incoming&limit=1', undefined, 200],
  ['GET /v1/messages', '/v1/messages?state=lost', undefined, 400],
  ['GET /v1/messages/{id}', '/v1/messages/x', undefined, 200],
  ['GET /v1/messages/{id}', '/v1/messages/nobody', undefined, 404],
  ['POST /v1/messages/{id}/hold', '/v1/messages/x/hold', { reason: 'odd' }, 200],
  ['POST /v1/messages/{id}/release', '/v1/messages/x/release', {}, 200],
  ['POST /v1/messages/{id}/release', '/v1/messages/x/release', {}, 409],
  ['POST /v1/messages/{id}/policy', '/v1/messages/x/policy', { policy: 'default' }, 200],
  ['POST /v1/messages/{id}/bounce', '/v1/messages/x/bounce', { reason: 'odd' }, 200],
  ['POST /v1/messages/{id}/retry', '/v1/messages/x/retry', {}, 200],
  ['DELETE /v1/messages/{id}', '/v1/messages/x?reason=odd', undefined, 200],
  ['POST /v1/bulk', '/v1/bulk', { action, ids: ['x', 'y'] }, 200],
  ['POST /v1/bulk', '/v1/bulk', { action, filter: { topic: 'a', olderThan: '1s' } }, 200],
  ['POST /v1/bulk', '/v1/bulk', { action, filter: { topic: 'a' }, confirm: 'no' }, 409],
  ['POST /v1/pause', '/v1/pause', { topic: 'a.*' }, 200],
  ['GET /v1/pauses', '/v1/pauses', undefined, 200],
  ['GET /v1/stats', '/v1/stats', undefined, 200],
  ['POST /v1/resume', '/v1/resume', { topic: 'a.*' }, 200],
  ['GET /v1/order-keys', '/v1/order-keys?max=10', undefined, 200],
  ['GET /v1/policies', '/v1/policies', undefined, 200],
  ['GET /v1/audit', '/v1/audit?after=0&max=10', undefined, 200],
  ['GET /v1/shape', '/v1/shape?by=destination', undefined, 200],
  ['GET /v1/tally', '/v1/tally?by=topic', undefined, 200],
  ['POST /v1/check', '/v1/check', { repair: false }, 200],
  ['GET /v1/check', '/v1/check', undefined, 200],
  ['POST /v1/rekey', '/v1/rekey', { dryRun: true }, 200],
  ['POST /v1/rekey', '/v1/rekey', { confirm: 'no' }, 409],
  ['GET /v1/rekey', '/v1/rekey', undefined, 200],
  ['DELETE /v1/rekey', '/v1/rekey', undefined, 200],
  [
    'POST /v1/replay',
    '/v1/replay',
    { ids: ['x'], replay: 'r1', change: { headers: { a: null } } },
    200,
  ],
  ['POST /v1/replay', '/v1/replay', { ids: ['x'] }, 400],
  ['POST /v1/copies', '/v1/copies', { copies: [COPY] }, 200],
  ['POST /v1/audit', '/v1/audit', { action: 'sweep', details: { moved: 1 } }, 200],
  ['POST /v1/sweeps', '/v1/sweeps', { queue: 'q', target: 't', moved: 1, left: 0 }, 200],
  ['POST /v1/records/{kind}', '/v1/records/dlq.replay.1', { record: [1] }, 200],
  ['GET /v1/records/{kind}', '/v1/records/dlq.replay.1?after=0&max=10', undefined, 200],
  ['GET /v1/records/{kind}', '/v1/records/audit', undefined, 400],
  ['DELETE /v1/records/{kind}', '/v1/records/dlq.replay.1?upTo=1', undefined, 200],
  [VALUES[0], VALUES[3], { key: 'k', value: 1, revision: 0 }, 200],
  [VALUES[1], VALUES[3], undefined, 200],
  [VALUES[2], `${VALUES[3]}?key=k`, undefined, 200],
  ['GET /healthz', '/healthz', undefined, 200],
  ['GET /readyz', '/readyz', undefined, 200],
];

test('real requests and answers fit the schemas of the document', async () => {
  const world = await setup();
  await world.spool.enqueue({ topic: 'a', id: 'x', body: 'hi', expires: '1h', dedupeKey: 'k' });
  const operations = new Map(operationsOf(await documentOf(world)));
  for (const [name, path, body, status] of EXCHANGES) {
    const operation = operations.get(name);
    const [method = ''] = name.split(' ');
    const answer = await (body === undefined
      ? world.ask(path, { method })
      : world.post(path, body, { method }));
    expect([name, answer.status]).toEqual([name, status]);
    const taken = operation?.requestBody?.content['application/json']?.schema;
    if (body !== undefined && status !== 400) {
      expect([name, fits(taken, body)]).toEqual([name, true]);
    }
    const given = operation?.responses[status]?.content?.['application/json']?.schema;
    expect([name, fits(given, await json(answer))]).toEqual([name, true]);
    expect([name, fits(given, { wrong: true })]).toEqual([name, false]);
  }
});

function fits(schema: object | undefined, value: unknown): boolean | undefined {
  if (schema === undefined) return undefined;
  const read = z.fromJSONSchema as (schema: object) => z.ZodType;
  return read(schema).safeParse(value).success;
}

describe('http-api.md', () => {
  const { text } = readPage('docs/reference/http-api.md');

  test('has a heading for each path and method, with its role, and no other', async () => {
    const headings = [...text.matchAll(/^### `(\w+ \S+)`\n\nRole: (.+)\.$/gm)].map(
      ([, name, role]) => [name, role],
    );
    const documented = operationsOf(await documentOf(await setup())).map(([name, operation]) => [
      name,
      operation.description?.replace(/^Role: (\w+)\.$/, '$1') ?? 'none',
    ]);
    const order = (rows: (string | undefined)[][]) => rows.map((row) => row.join(' ')).toSorted();
    expect(order(headings)).toEqual(order(documented));
  });

  test('has every reason of a refusal', () => {
    const source = readFileSync(path.join(ROOT, 'src/web/server/refusal.ts'), 'utf8');
    const union = /type RefusalReason =([^;]+);/.exec(source)?.[1] ?? '';
    const coded = [...union.matchAll(/'([\w.-]+)'/g)].map(([, reason = '']) => reason);
    const written = tableUnder(readPage('docs/reference/http-api.md'), 'Answers')
      .filter(([first = '']) => first.startsWith('`'))
      .flatMap(([first = '']) =>
        [...first.matchAll(/`([^`]+)`/g)].map(([, reason = '']) => reason),
      );
    expect(coded.length).toBeGreaterThan(10);
    expect(written.toSorted()).toEqual(coded.toSorted());
  });

  test('names every parameter, header, field and status where it belongs', async () => {
    const missing: string[] = [];
    for (const [name, operation] of operationsOf(await documentOf(await setup()))) {
      const section = text.split(`### \`${name}\`\n`)[1]?.split(/^##+ /m)[0] ?? '';
      const hasFilters = section.includes('](#filters)');
      const filters = hasFilters ? (text.split('## Filters\n')[1]?.split(/^## /m)[0] ?? '') : '';
      const common = text.split('## Answers\n')[1]?.split(/^## /m)[0] ?? '';
      for (const { name: parameter, in: where } of operation.parameters ?? []) {
        if (where === 'path' || `${section}${filters}`.includes(`\`${parameter}\``)) continue;
        missing.push(`${name} ${parameter}`);
      }
      const body = operation.requestBody?.content['application/json']?.schema;
      for (const field of fieldsOf(body)) {
        if (!section.includes(`\`${field}\``)) missing.push(`${name} field ${field}`);
      }
      for (const status of Object.keys(operation.responses)) {
        if (!section.includes(status) && !common.includes(status)) {
          missing.push(`${name} ${status}`);
        }
      }
    }
    expect(missing).toEqual([]);
  });
});

/** The names at the top of an object, or of the first of several. */
function fieldsOf(schema: object | undefined): string[] {
  const { properties, anyOf } = (schema ?? {}) as { properties?: object; anyOf?: object[] };
  return properties === undefined
    ? (anyOf ?? []).slice(0, 1).flatMap(fieldsOf)
    : Object.keys(properties);
}
