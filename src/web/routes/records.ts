/**
 * records — small durable facts beside the messages: replays, notes on groups, the state of
 * rules and alerts. Logs (`/v1/records/{kind}`) and maps (`/v1/records/{kind}/values`), in bounded
 * pages.
 */

import { z } from '@hono/zod-openapi';
import { RespoolError } from '../../core/errors.ts';
import { checkNumber, KEY_MAX_CHARS } from '../../core/limits.ts';
import { addEndpoint, type App } from '../server/endpoint.ts';
import { wholeOf } from '../http-values.ts';

/** Maximum number of records in one answer: ports/record-store.ts, docs/reference/http-api.md. */
const RECORDS_MAX = 1_000;
/**
 * An answer that is longer goes on in the next; a single record always fits. Also in
 * docs/reference/http-api.md.
 */
const ANSWER_MAX_CHARS = 4_194_304;

const whole = z.string().regex(/^\d{1,15}$/, 'a whole number');
const key = z.string().min(1).max(KEY_MAX_CHARS);
const kindParams = z.object({
  kind: z
    .string()
    .max(KEY_MAX_CHARS)
    .regex(/^(?:dlq|alert)\../, 'a kind of facts, which begins with dlq. or alert.'),
});
const ok = { 200: { description: 'Done.', schema: z.object({ ok: z.literal(true) }) } } as const;
const logSchema = z.object({
  records: z.array(z.object({ sequence: z.number(), record: z.unknown() })),
  next: z.number().optional(),
});
const mapSchema = z.object({
  values: z.array(z.object({ key: z.string(), value: z.unknown(), revision: z.number() })),
  next: z.string().optional(),
});

/** Adds them to the app. */
export function addRecordRoutes(app: App): void {
  addLog(app);
  addMap(app);
}

function addLog(app: App): void {
  const path = '/v1/records/{kind}';
  addEndpoint(app, {
    method: 'get',
    path,
    summary: 'The log of a kind, oldest first.',
    role: 'read',
    isLarge: true,
    params: kindParams,
    query: z.strictObject({
      after: whole.optional().describe('Only above this sequence.'),
      max: whole.optional().describe('1 to 1,000; default 1,000.'),
    }),
    answers: { 200: { description: 'Records, and next where there are more.', schema: logSchema } },
    answer: async ({ params, query, operator }) => {
      const after = query.after === undefined ? 0 : wholeOf('after', query.after);
      const max = query.max === undefined ? RECORDS_MAX : wholeOf('max', query.max);
      checkNumber('max', max, { min: 1, max: RECORDS_MAX });
      const all = await operator.records.read(params.kind, after, max);
      const records = beginningOf(all);
      const isCut = records.length < all.length;
      return Response.json({ records, ...(isCut ? { next: records.at(-1)?.sequence } : {}) });
    },
  });
  addEndpoint(app, {
    method: 'post',
    path,
    summary: 'Adds to the log of a kind.',
    role: 'operate',
    params: kindParams,
    body: z.strictObject({ record: z.unknown() }),
    answers: { 200: { description: 'Durable.', schema: z.object({ sequence: z.number() }) } },
    answer: async ({ params, body, operator }) => {
      const record = given('record', body.record);
      return Response.json({ sequence: await operator.records.append(params.kind, record) });
    },
  });
  addEndpoint(app, {
    method: 'delete',
    path,
    summary: 'Forgets the log of a kind up to and including a sequence.',
    role: 'operate',
    params: kindParams,
    query: z.strictObject({ upTo: whole }),
    answers: ok,
    answer: async ({ params, query, operator }) => {
      await operator.records.trim(params.kind, wholeOf('upTo', query.upTo));
      return Response.json({ ok: true });
    },
  });
}

function addMap(app: App): void {
  const path = '/v1/records/{kind}/values';
  addEndpoint(app, {
    method: 'get',
    path,
    summary: 'The values of a kind by key, or one of them.',
    role: 'read',
    isLarge: true,
    params: kindParams,
    query: z.strictObject({
      key: key.optional().describe('Only this one.'),
      after: key.optional().describe('The next of the page before.'),
    }),
    answers: { 200: { description: 'Values, and next where there are more.', schema: mapSchema } },
    answer: async ({ params: { kind }, query, operator }) => {
      if (query.key !== undefined) {
        const found = await operator.records.get(kind, query.key);
        return Response.json({ values: found === undefined ? [] : [found] });
      }
      const all = (await operator.records.list(kind)).toSorted(byKey);
      const { after } = query;
      const left = after === undefined ? all : all.filter((one) => one.key > after);
      const values = beginningOf(left);
      const isCut = values.length < left.length;
      return Response.json({ values, ...(isCut ? { next: values.at(-1)?.key } : {}) });
    },
  });
  addEndpoint(app, {
    method: 'post',
    path,
    summary: 'Puts a value; with a revision only if that is the current one (0: none yet).',
    role: 'operate',
    params: kindParams,
    body: z.strictObject({
      key,
      value: z.unknown(),
      revision: z.number().int().nonnegative().optional(),
    }),
    answers: {
      200: { description: 'What came of it.', schema: z.object({ result: z.string() }) },
    },
    answer: async ({ params, body, operator }) => {
      const value = given('value', body.value);
      const { records } = operator;
      const result = await records.put(params.kind, body.key, value, body.revision);
      return Response.json({ result });
    },
  });
  addEndpoint(app, {
    method: 'delete',
    path,
    summary: 'Removes a value.',
    role: 'operate',
    params: kindParams,
    query: z.strictObject({ key }),
    answers: ok,
    answer: async ({ params, query, operator }) => {
      await operator.records.remove(params.kind, query.key);
      return Response.json({ ok: true });
    },
  });
}

/** As many as one answer holds. */
function beginningOf<T>(all: readonly T[]): readonly T[] {
  let chars = 0;
  const end = all.slice(0, RECORDS_MAX).findIndex((one) => {
    chars += JSON.stringify(one).length;
    return chars > ANSWER_MAX_CHARS;
  });
  return all.slice(0, end < 0 ? RECORDS_MAX : Math.max(end, 1));
}

function byKey(a: { readonly key: string }, b: { readonly key: string }): number {
  if (a.key === b.key) return 0;
  return a.key < b.key ? -1 : 1;
}

/** JSON has no undefined: what is left out was forgotten. */
function given(name: string, value: unknown): unknown {
  if (value !== undefined) return value;
  throw new RespoolError('config.invalid', `cannot use the request: "${name}" is missing`);
}
