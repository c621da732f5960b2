/**
 * inspect — the spool in numbers and shapes, heads of order keys, its policies and pauses, the
 * audit record, and the check.
 *
 * "At most 5 s old" is COUNTS of web/server/app.ts.
 */

import { z } from '@hono/zod-openapi';
import { checkNumber } from '../../core/limits.ts';
import type { TallyBy } from '../../ports/entry-store.ts';
import type { CheckProgress } from '../../spool/check.ts';
import { type Memo } from '../../system/wait.ts';
import { type App, addEndpoint } from '../server/endpoint.ts';
import { bytesAnswer } from '../server/shared-reads.ts';
import { JSON_TYPE } from '../server/writing.ts';
import { filterOf } from '../filter-query.ts';
import { auditQuery, FILTER_LISTS, headsQuery, shapeQuery, tallyQuery } from './schemas.ts';
import { wholeOf } from '../http-values.ts';

const pause = z.object({ topic: z.string(), by: z.string(), at: z.number() });
const stateStats = z.object({
  count: z.number(),
  oldestAt: z.number().nullable(),
  approximate: z.literal(true).optional(),
});
const statsSchema = z.looseObject({
  at: z.number(),
  states: z.record(z.string(), stateStats),
  nextDueAt: z.number().nullable(),
  paused: z.array(pause),
  load: z.looseObject({}).optional(),
  flow: z.looseObject({}).optional(),
  forecast: z
    .object({
      backlog: z.number(),
      inPerSecond: z.number(),
      outPerSecond: z.number(),
      drainsInMs: z.number().nullable(),
      fullInMs: z.number().nullable(),
    })
    .optional(),
});
const shapeRow = z.object({ key: z.string(), total: z.number(), counts: z.array(z.number()) });
const shapeSchema = z.object({
  at: z.number(),
  by: z.enum(['topic', 'destination']),
  boundsMs: z.array(z.number()),
  rows: z.array(shapeRow),
  total: shapeRow,
});
const tallySchema = z.object({
  rows: z.array(
    z.object({
      key: z.string(),
      count: z.number(),
      oldestAt: z.number().nullable(),
      approximate: z.literal(true).optional(),
    }),
  ),
});
const auditSchema = z.object({
  records: z.array(
    z.object({
      sequence: z.number(),
      at: z.number(),
      by: z.string(),
      action: z.string(),
      ids: z.array(z.string()),
      details: z.record(z.string(), z.unknown()).optional(),
    }),
  ),
});
const checkSchema = z.object({
  entries: z.number(),
  bodies: z.number(),
  findings: z.array(
    z.object({
      kind: z.string(),
      id: z.string().optional(),
      where: z.string(),
      text: z.string(),
      repaired: z.string().optional(),
    }),
  ),
});
const headsSchema = z.object({
  heads: z.array(
    z.object({
      orderKey: z.string(),
      id: z.string(),
      state: z.string(),
      dueAt: z.number().nullable(),
      behind: z.number(),
    }),
  ),
});
const policiesSchema = z.object({
  policies: z.array(z.object({ name: z.string(), policy: z.looseObject({}) })),
});

/** Adds them to the app. */
export function addInspectRoutes(app: App, shared: Memo): void {
  addCounts(app, shared);
  addEndpoint(app, {
    method: 'get',
    path: '/v1/policies',
    summary: 'The policies messages can name.',
    role: 'read',
    answers: { 200: { description: 'By name.', schema: policiesSchema } },
    answer: async ({ operator }) => Response.json({ policies: await operator.policies() }),
  });
  addEndpoint(app, {
    method: 'get',
    path: '/v1/order-keys',
    summary: 'The first message of each order key behind which others wait.',
    role: 'read',
    query: headsQuery,
    answers: {
      200: {
        description: 'Held and deferred ones first, then those of longest standing.',
        schema: headsSchema,
      },
    },
    answer: async ({ query, operator }) => {
      const max = query.max === undefined ? undefined : wholeOf('max', query.max);
      return Response.json({ heads: await operator.keyHeads(max) });
    },
  });
  addEndpoint(app, {
    method: 'get',
    path: '/v1/pauses',
    summary: 'Topics that are currently not delivered.',
    role: 'read',
    answers: {
      200: { description: 'The pauses.', schema: z.object({ pauses: z.array(pause) }) },
    },
    answer: async ({ operator }) => Response.json({ pauses: await operator.pauses() }),
  });
  addEndpoint(app, {
    method: 'get',
    path: '/v1/audit',
    summary: 'What operators did, oldest first.',
    role: 'read',
    isLarge: true,
    query: auditQuery,
    answers: { 200: { description: 'Records above the sequence.', schema: auditSchema } },
    answer: async ({ query, operator }) => {
      const after = query.after === undefined ? 0 : wholeOf('after', query.after);
      const max = query.max === undefined ? AUDIT_DEFAULT : wholeOf('max', query.max);
      checkNumber('max', max, { min: 1, max: AUDIT_MAX });
      return Response.json({ records: await operator.audit(after, max) });
    },
  });
  addCheck(app);
}

const runningSchema = z.object({
  running: z.array(z.object({ by: z.string(), seen: z.number(), total: z.number() })),
});

function addCheck(app: App): void {
  const running = new Set<{ readonly by: string; seen: number; total: number }>();
  addEndpoint(app, {
    method: 'get',
    path: '/v1/check',
    summary: 'How far the checks are that run now.',
    role: 'admin',
    answers: { 200: { description: 'The oldest first.', schema: runningSchema } },
    answer: () => Response.json({ running: [...running] }),
  });
  addEndpoint(app, {
    method: 'post',
    path: '/v1/check',
    summary: 'Looks through every entry and body for damage; repairs when asked.',
    role: 'admin',
    body: z.strictObject({ repair: z.boolean().optional() }),
    isBodyOptional: true,
    answers: { 200: { description: 'What was found.', schema: checkSchema } },
    answer: async ({ body, operator }) => {
      const own = { by: operator.by, seen: 0, total: 0 };
      running.add(own);
      try {
        const repair = body.repair === true;
        const onProgress = (now: CheckProgress): void => void Object.assign(own, now);
        return Response.json(await operator.check({ repair, onProgress }));
      } finally {
        running.delete(own);
      }
    },
  });
}

/** Records without `max`. Also in auditQuery of schemas.ts and docs/reference/http-api.md. */
const AUDIT_DEFAULT = 100;
/** As many as a record store returns at once: ports/record-store.ts. Also in the CLI's audit.ts. */
const AUDIT_MAX = 1_000;

function addCounts(app: App, shared: Memo): void {
  addEndpoint(app, {
    method: 'get',
    path: '/v1/stats',
    summary: 'The spool in numbers; at most 5 s old.',
    role: 'read',
    answers: { 200: { description: 'The numbers.', schema: statsSchema } },
    answer: async ({ operator }) =>
      Response.json(await shared.get('stats', () => operator.stats())),
  });
  addEndpoint(app, {
    method: 'get',
    path: '/v1/shape',
    summary: 'What waits, by topic or destination and age; at most 5 s old.',
    role: 'read',
    query: shapeQuery,
    lists: FILTER_LISTS,
    answers: { 200: { description: 'The table.', schema: shapeSchema } },
    answer: async ({ query, operator }) => {
      const filter = filterOf(query);
      const by = (query['by'] ?? 'topic') as 'topic' | 'destination';
      const options = Object.keys(filter).length === 0 ? { by } : { by, filter };
      const question = `shape ${JSON.stringify(options)}`;
      return Response.json(await shared.get(question, () => operator.shape(options)));
    },
  });
  addEndpoint(app, {
    method: 'get',
    path: '/v1/tally',
    summary: 'Counts by state, topic, destination or failure; at most 5 s old.',
    role: 'read',
    isLarge: true,
    query: tallyQuery,
    lists: FILTER_LISTS,
    answers: { 200: { description: 'The counts.', schema: tallySchema } },
    answer: async ({ query, operator }) => {
      const filter = filterOf(query);
      const by = query['by'] as TallyBy;
      const question = `tally ${by} ${JSON.stringify(filter)}`;
      // Kept as the bytes that are sent: a row for each of many names is several times as large.
      const bytes = await shared.get(question, async () =>
        Buffer.from(JSON.stringify({ rows: await operator.tally(by, filter) })),
      );
      return bytesAnswer(bytes, JSON_TYPE);
    },
  });
}
