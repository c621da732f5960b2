/**
 * schemas — the parts that several endpoints share: ids, messages, filters and results.
 */

import { z } from '@hono/zod-openapi';
import type { State } from '../../core/state.ts';
import { STATES } from '../../core/state.ts';
import { ID_PATTERN } from '../../core/limits.ts';
import type { ActionResult } from '../../spool/actions.ts';
import type { ListFilter } from '../../spool/list.ts';
import { momentOf } from '../http-values.ts';

/**
 * Maximum number of ids in one request; LIST_MAX of server/json.ts lets them through. Also in
 * web/client/client.ts and docs/reference/http-api.md.
 */
export const IDS_MAX = 5_000;
/** Maximum number of ids in one query. Also in docs/reference/http-api.md. */
const QUERY_IDS_MAX = 500;
const TEXT_MAX_CHARS = 1_000;
/** Headers of a message have no more bytes than this by default, all together. */
const VALUE_MAX_CHARS = 32_768;

const ID_TEXT = 'a message id: 1 to 64 of 0-9 a-z _ -';

/** An id. */
export const idSchema: z.ZodType<string> = z.string().regex(ID_PATTERN, ID_TEXT);

/** The id in the path. */
export const idParams: z.ZodType<{ id: string }> = z.object({ id: idSchema });

/** More than there are: the same one twice is no mistake. */
const STATES_MAX = 20;
const CURSOR_MAX_CHARS = 8_192;

/** A state. */
export const stateSchema: z.ZodType<State> = z.enum(STATES as [State, ...State[]]);

const headersSchema = z.record(z.string(), z.string());

/** A message as the API shows it. */
export const messageSchema: z.ZodType = z.object({
  id: z.string(),
  envelope: z.object({
    id: z.string(),
    topic: z.string(),
    headers: headersSchema,
    enqueuedAt: z.number(),
    expiresAt: z.number().optional(),
    eta: z.number().optional(),
    priority: z.number(),
    dedupeKey: z.string().optional(),
    ownId: z.literal(true).optional(),
    destination: z.string().optional(),
    orderKey: z.string().optional(),
    body: z.object({
      ref: z.string(),
      place: z.enum(['inline', 'store', 'none']),
      size: z.number(),
      storedSize: z.number(),
      digest: z.string(),
      encodings: z.array(z.string()),
    }),
  }),
  status: z.looseObject({
    state: stateSchema,
    lane: z.enum(['delivery', 'notice']),
    policy: z.string().nullable(),
    revision: z.number(),
    attempts: z.number(),
    postponed: z.number(),
    lost: z.number(),
    replays: z.number(),
    notices: z.number(),
    dueAt: z.number().nullable(),
    updatedAt: z.number(),
    notes: headersSchema,
    history: z.array(z.looseObject({ at: z.number(), code: z.string() })),
  }),
  unhandled: z
    .literal(true)
    .optional()
    .describe('It waits, and no handler of this service is for its topic.'),
});

/** What became of one message. */
export const resultSchema: z.ZodType<ActionResult> = z.object({
  id: z.string(),
  result: z.enum(['done', 'refused', 'unknown']),
  why: z.string().optional(),
}) as z.ZodType<ActionResult>;

/** What was enqueued. */
export const enqueuedSchema: z.ZodType = z.object({ id: z.string(), duplicate: z.boolean() });

const text = z.string().min(1).max(TEXT_MAX_CHARS);
const spanText = text.describe('Milliseconds, or a span such as 15m.');
const momentText = text.describe(
  'Milliseconds since 1970, or a time such as 2030-01-31T12:00:00Z.',
);

const filterFields = {
  state: z.array(stateSchema).max(STATES_MAX).optional(),
  id: z.array(idSchema).max(QUERY_IDS_MAX).optional(),
  idPrefix: idSchema.optional().describe('How ids begin.'),
  topic: text.optional().describe('A topic, or a pattern with * and #.'),
  destination: text.optional(),
  header: text.optional().describe('A name, or name:value.'),
  code: text.optional(),
  fingerprint: text.optional(),
  text: text.optional(),
  lane: z.enum(['delivery', 'notice']).optional(),
  olderThan: spanText.optional(),
  since: spanText.optional(),
  enqueuedBefore: momentText.optional(),
  enqueuedAfter: momentText.optional(),
  updatedBefore: momentText.optional(),
  updatedAfter: momentText.optional(),
  dueBefore: momentText.optional(),
  dueAfter: momentText.optional(),
};

const whole = z.string().regex(/^\d{1,15}$/, 'a whole number');
/** A flag in a query. */
export const flagSchema: z.ZodType<'true' | 'false'> = z.enum(['true', 'false']);

/** A filter in a query. */
interface FilterQuery {
  readonly state?: State[] | undefined;
  readonly id?: string[] | undefined;
  readonly header?: string | undefined;
  readonly [name: string]: string | string[] | undefined;
}

/** Names in a filter that may come more than once. */
export const FILTER_LISTS: readonly string[] = ['state', 'id'];

/** One page of a list, in a query. */
export const pageQuery: z.ZodType<FilterQuery> = z.strictObject({
  ...filterFields,
  order: z.enum(['id', 'dueAt', 'updatedAt', 'priority', 'attempts']).optional(),
  descending: flagSchema.optional(),
  after: z
    .string()
    .min(1)
    .max(CURSOR_MAX_CHARS)
    .optional()
    .describe('The next of the page before.'),
  limit: whole.optional().describe('1 to 500; default 100.'),
});

/** What a shape is made of, in a query. */
export const shapeQuery: z.ZodType<FilterQuery> = z.strictObject({
  ...filterFields,
  by: z.enum(['topic', 'destination']).optional(),
});

/** What to count by, in a query. */
export const tallyQuery: z.ZodType<FilterQuery> = z.strictObject({
  ...filterFields,
  by: z.enum(['state', 'topic', 'destination', 'fingerprint']),
});

/** What of the audit record, in a query. */
export const auditQuery: z.ZodType<{ after?: string; max?: string }> = z.strictObject({
  after: whole.optional().describe('Only above this sequence.'),
  max: whole.optional().describe('1 to 1,000; default 100.'),
}) as z.ZodType<{ after?: string; max?: string }>;

/** How many heads of order keys, in a query. */
export const headsQuery: z.ZodType<{ max?: string }> = z.strictObject({
  max: whole.optional().describe('1 to 500; default 100.'),
}) as z.ZodType<{ max?: string }>;

const moment = z
  .union([z.number().int().nonnegative(), momentText])
  .transform((value) => momentOf('filter', value))
  .optional();
const span = z.union([z.number().nonnegative(), text]).optional();

/** A filter in JSON. */
export const filterSchema: z.ZodType<ListFilter> = z.strictObject({
  state: z.union([stateSchema, z.array(stateSchema).max(STATES_MAX)]).optional(),
  ids: z.array(idSchema).max(IDS_MAX).optional(),
  idPrefix: idSchema.optional(),
  topic: text.optional(),
  destination: text.optional(),
  header: z
    .strictObject({ name: text, value: z.string().max(VALUE_MAX_CHARS).optional() })
    .optional(),
  code: text.optional(),
  fingerprint: text.optional(),
  text: text.optional(),
  lane: z.enum(['delivery', 'notice']).optional(),
  olderThan: span,
  since: span,
  enqueuedBefore: moment,
  enqueuedAfter: moment,
  updatedBefore: moment,
  updatedAfter: moment,
  dueBefore: moment,
  dueAfter: moment,
}) as unknown as z.ZodType<ListFilter>;
