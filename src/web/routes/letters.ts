/**
 * letters — dead letters: messages sent once more by a replay, copies of what is removed
 * elsewhere, and lines of the audit record for what is done to them outside of the spool.
 */

import { z } from '@hono/zod-openapi';
import type { LetterChange } from '../../ports/dead-letters.ts';
import { REASON_MAX_CHARS } from '../../core/failure.ts';
import { KEY_MAX_CHARS, TOPIC_MAX_CHARS } from '../../core/limits.ts';
import type { ReplayOrder } from '../../spool/replay.ts';
import { addEndpoint, type App } from '../server/endpoint.ts';
import { IDS_MAX, idSchema, resultSchema } from './schemas.ts';

/**
 * Maximum number of copies in one request, as in web/client/client.ts. Also in
 * docs/reference/http-api.md.
 */
const COPIES_MAX = 500;
/**
 * Bodies come in Base64, which is a third longer: BODY_MAX_BYTES of web/client/client.ts fits. Also
 * in docs/reference/http-api.md.
 */
const JSON_MAX_BYTES = 16_777_216;
const LARGER = 'longer bodies are changed or kept at the store itself, without a service';
/** Generous upper bound of values; the spool checks the exact limit. */
const VALUE_MAX_CHARS = 65_536;

const word = z.string().min(1).max(KEY_MAX_CHARS);
const topic = z.string().max(TOPIC_MAX_CHARS);
const value = z.string().max(VALUE_MAX_CHARS);
const base64 = z.base64().describe('Bytes in Base64.');
const ok = { 200: { description: 'Done.', schema: z.object({ ok: z.literal(true) }) } } as const;

const replayBody = z.strictObject({
  ids: z.array(idSchema).max(IDS_MAX),
  replay: word.describe('The operation; each message has it in its header respool-replay.'),
  topic: topic.optional().describe('Another topic.'),
  replays: z
    .number()
    .int()
    .nonnegative()
    .optional()
    .describe('Only letters with this number of replays.'),
  change: z
    .strictObject({
      bodyBase64: base64.optional(),
      contentType: value.optional(),
      headers: z.record(z.string(), value.nullable()).optional().describe('null takes one away.'),
    })
    .optional(),
});
const keepBody = z.strictObject({
  copies: z
    .array(
      z.strictObject({
        id: word.describe('Of the message that it is a copy of.'),
        topic,
        headers: z.record(z.string(), value),
        bodyBase64: base64,
        reason: z.string().max(REASON_MAX_CHARS),
      }),
    )
    .max(COPIES_MAX),
});
const auditBody = z.strictObject({
  action: word,
  details: z.record(z.string(), z.unknown()),
});

const sweepBody = z.strictObject({
  queue: word,
  target: word,
  moved: z.number().int().nonnegative(),
  left: z.number().int().nonnegative(),
  error: z.string().max(REASON_MAX_CHARS).optional(),
});

/** Adds them to the app. */
export function addLetterRoutes(app: App): void {
  addEndpoint(app, {
    method: 'post',
    path: '/v1/replay',
    summary: 'Sends what bounced, is archived or held once more, perhaps repaired.',
    role: 'operate',
    body: replayBody,
    maxBytes: JSON_MAX_BYTES,
    hint: LARGER,
    answers: {
      200: {
        description: 'What became of each.',
        schema: z.object({ results: z.array(resultSchema) }),
      },
    },
    answer: async ({ body: { ids, ...order }, operator }) =>
      Response.json({ results: await operator.replay(ids, orderOf(order)) }),
  });
  addEndpoint(app, {
    method: 'post',
    path: '/v1/copies',
    summary: 'Puts copies of messages that are removed elsewhere down as archived.',
    role: 'operate',
    body: keepBody,
    code: 'message.invalid',
    maxBytes: JSON_MAX_BYTES,
    hint: LARGER,
    answers: ok,
    answer: async ({ body: { copies }, operator }) => {
      const given = copies.map(({ bodyBase64, ...copy }) => ({
        ...copy,
        body: Buffer.from(bodyBase64, 'base64'),
      }));
      await operator.keep(given);
      return Response.json({ ok: true });
    },
  });
  addEndpoint(app, {
    method: 'post',
    path: '/v1/audit',
    summary: 'Writes a line into the audit record, for what is done outside of the spool.',
    role: 'operate',
    body: auditBody,
    answers: ok,
    answer: async ({ body: { action, details }, operator }) => {
      await operator.recordAction(action, details);
      return Response.json({ ok: true });
    },
  });
  addEndpoint(app, {
    method: 'post',
    path: '/v1/sweeps',
    summary: 'Tells those who listen to events of a dead queue that was swept.',
    role: 'operate',
    body: sweepBody,
    answers: ok,
    answer: async ({ body: { error, ...swept }, operator }) => {
      await operator.tellSweep({ ...swept, ...(error === undefined ? {} : { error }) });
      return Response.json({ ok: true });
    },
  });
}

type OrderJson = Omit<z.infer<typeof replayBody>, 'ids'>;

function orderOf({ replay, topic: other, replays, change }: OrderJson): ReplayOrder {
  return {
    replay,
    ...(other === undefined ? {} : { topic: other }),
    ...(replays === undefined ? {} : { replays }),
    ...(change === undefined ? {} : { change: changeOf(change) }),
  };
}

function changeOf(change: NonNullable<OrderJson['change']>): LetterChange {
  const { bodyBase64, contentType, headers } = change;
  return {
    ...(bodyBase64 === undefined ? {} : { body: Buffer.from(bodyBase64, 'base64') }),
    ...(contentType === undefined ? {} : { contentType }),
    ...(headers === undefined ? {} : { headers }),
  };
}
