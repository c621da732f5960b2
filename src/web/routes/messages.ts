/**
 * messages — enqueues messages, shows them, and reads their bodies; and describes the raw post,
 * which post.ts takes.
 */

import { z } from '@hono/zod-openapi';
import type { Envelope } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Operator, MessageView } from '../../spool/operator/operator.ts';
import { utf8Of } from '../../spool/body.ts';
import type { Message } from '../../spool/message.ts';
import { pageOf } from '../filter-query.ts';
import { addEndpoint, type App, describeEndpoint, errorSchema } from '../server/endpoint.ts';
import { refuseTooLarge } from '../server/refusal.ts';
import { JSON_TYPE } from '../server/writing.ts';
import { momentOf, textOfHeader } from '../http-values.ts';
import { keysDiffer, OPTION_HEADERS } from './post.ts';
import { enqueuedSchema, FILTER_LISTS, idParams, messageSchema, pageQuery } from './schemas.ts';

/**
 * Maximum number of messages in one request, as in web/client/client.ts. Also in
 * docs/reference/http-api.md.
 */
const MESSAGES_MAX = 1_000;
/**
 * Larger bodies go as raw posts; MESSAGES_MAX_BYTES of web/client/client.ts fits. Also in
 * docs/reference/http-api.md.
 */
const JSON_MAX_BYTES = 16_777_216;
const LARGER = 'larger bodies go to /v1/topics/{topic}/messages';
/** Generous upper bound of names; the spool checks the exact limit. */
const WORD_MAX_CHARS = 1_000;
const VALUE_MAX_CHARS = 65_536;

const span = z
  .union([z.number(), z.string().max(WORD_MAX_CHARS)])
  .describe('Milliseconds, or a span such as 15m.');
const word = z.string().max(WORD_MAX_CHARS);
const newMessage = z.strictObject({
  topic: word,
  body: z.unknown().optional().describe('Any JSON value; kept as JSON text.'),
  bodyText: z.string().optional().describe('Text, kept as UTF-8.'),
  bodyBase64: z.base64().optional().describe('Bytes in Base64.'),
  headers: z.record(word, z.string().max(VALUE_MAX_CHARS)).optional(),
  id: word.optional(),
  policy: word.optional(),
  priority: z.number().optional(),
  delay: span.optional(),
  dueAt: z.union([z.number(), word]).optional(),
  expires: span.optional(),
  destination: word.optional(),
  dedupeKey: word.optional(),
  orderKey: word.optional().describe('Messages of one key go one at a time, in order.'),
});
type NewMessage = z.infer<typeof newMessage>;

const keyHeader = z.object({
  'idempotency-key': z.string().optional().describe('The dedupe key.'),
});

/** Adds them to the app. */
export function addMessageRoutes(
  app: App,
  { bodyMaxBytes }: { readonly bodyMaxBytes: number },
): void {
  describeRawPost(app);
  addEndpoint(app, {
    method: 'post',
    path: '/v1/messages',
    summary: 'Puts one message down, or up to 1,000 in one write.',
    role: 'post',
    headers: keyHeader,
    body: z.union([newMessage, z.array(newMessage).min(1).max(MESSAGES_MAX)]),
    code: 'message.invalid',
    maxBytes: JSON_MAX_BYTES,
    hint: LARGER,
    answers: {
      201: {
        description: 'Durable. A list is answered with a list, in the same order.',
        schema: z.union([enqueuedSchema, z.array(enqueuedSchema)]),
      },
      200: {
        description: 'It was there already, or all of the list was.',
        schema: z.union([enqueuedSchema, z.array(enqueuedSchema)]),
      },
      413: { description: 'The body is too large.', schema: errorSchema },
      507: { description: 'The disk is full.', schema: errorSchema },
    },
    answer: ({ body, operator, request }) => {
      const given = request.headers.get('idempotency-key');
      const key = given === null ? null : textOfHeader('idempotency-key', given);
      if (Array.isArray(body)) return postMany(operator, body, key, bodyMaxBytes);
      return postOne(operator, body, key, bodyMaxBytes);
    },
  });
  addEndpoint(app, {
    method: 'get',
    path: '/v1/messages',
    summary: 'Lists messages, page by page.',
    role: 'read',
    isLarge: true,
    query: pageQuery,
    lists: FILTER_LISTS,
    answers: {
      200: {
        description: 'One page, and next where there is another.',
        schema: z.object({
          messages: z.array(messageSchema),
          corrupt: z.array(
            z.object({ id: z.string().optional(), where: z.string(), reason: z.string() }),
          ),
          next: z.string().optional(),
        }),
      },
    },
    answer: async ({ query, operator }) => {
      const { entries, corrupt, next } = await operator.page(pageOf(query));
      return Response.json({ messages: entries.map(viewOf), corrupt, next });
    },
  });
  addOneMessage(app);
}

function addOneMessage(app: App): void {
  const unknown = { description: 'There is no such message.', schema: errorSchema };
  addEndpoint(app, {
    method: 'get',
    path: '/v1/messages/{id}',
    summary: 'One message.',
    role: 'read',
    params: idParams,
    answers: { 200: { description: 'The message.', schema: messageSchema }, 404: unknown },
    answer: async ({ params, operator }) => {
      return Response.json(viewOf(await known(operator, params.id)));
    },
  });
  addEndpoint(app, {
    method: 'get',
    path: '/v1/messages/{id}/body',
    summary: 'The body of a message, as a file to save.',
    role: 'read',
    isLarge: true,
    params: idParams,
    answers: {
      200: {
        description: 'The bytes. A connection that is cut means that they are damaged.',
        schema: z.string(),
        type: 'application/octet-stream',
      },
      404: unknown,
      410: { description: 'The body is not kept any more.', schema: errorSchema },
      500: { description: 'The body is damaged.', schema: errorSchema },
    },
    answer: async ({ params, operator }) => {
      const { envelope } = await known(operator, params.id);
      return bodyAnswer(envelope, await operator.body(params.id));
    },
  });
}

/** A message as the API shows it. */
function viewOf(view: MessageView): object {
  return { id: view.envelope.id, ...view };
}

async function known(operator: Operator, id: string): Promise<MessageView> {
  const entry = await operator.get(id);
  if (entry !== undefined) return entry;
  throw new RespoolError('message.unknown', `there is no message "${id}"`);
}

async function postOne(
  operator: Operator,
  newMessage: NewMessage,
  key: string | null,
  maxBytes: number,
): Promise<Response> {
  const message = messageOf(newMessage, maxBytes);
  const { dedupeKey = key } = message;
  if (key !== null && dedupeKey !== key) throw keysDiffer();
  const enqueued = await operator.enqueue(dedupeKey === null ? message : { ...message, dedupeKey });
  return Response.json(enqueued, { status: enqueued.duplicate ? 200 : 201 });
}

async function postMany(
  operator: Operator,
  newMessages: readonly NewMessage[],
  key: string | null,
  maxBytes: number,
): Promise<Response> {
  if (key !== null) {
    throw new RespoolError(
      'message.invalid',
      'cannot use the header idempotency-key for a list: give each message its own dedupeKey',
    );
  }
  const messages = newMessages.map((one) => messageOf(one, maxBytes));
  const enqueued = await operator.enqueueMany(messages);
  const isNews = enqueued.some(({ duplicate }) => !duplicate);
  return Response.json(enqueued, { status: isNews ? 201 : 200 });
}

function messageOf(message: NewMessage, maxBytes: number): Message {
  const { body, bodyText, bodyBase64, dueAt, ...rest } = message;
  const bodies = [body, bodyText, bodyBase64].filter((one) => one !== undefined);
  if (bodies.length > 1) {
    const text = 'cannot use more than one of body, bodyText and bodyBase64: give one of them';
    throw new RespoolError('message.invalid', text);
  }
  const bytes = bytesOf(message);
  if (bytes !== undefined && bytes.byteLength > maxBytes) {
    throw refuseTooLarge('the body', maxBytes, 'limits.bodyBytes');
  }
  const options = Object.fromEntries(
    Object.entries(rest).filter(([, value]) => value !== undefined),
  ) as Omit<Message, 'body'>;
  return {
    ...options,
    ...(dueAt === undefined ? {} : { dueAt: momentOf('dueAt', dueAt) }),
    ...(bytes === undefined ? {} : { body: bytes }),
    ...(body === undefined ? {} : { headers: typed(rest.headers) }),
  };
}

function bytesOf({ body, bodyText, bodyBase64 }: NewMessage): Uint8Array | undefined {
  if (bodyText !== undefined) return utf8Of(bodyText);
  if (bodyBase64 !== undefined) return Buffer.from(bodyBase64, 'base64');
  return body === undefined ? undefined : Buffer.from(JSON.stringify(body), 'utf8');
}

/** A JSON body says so itself, unless its headers do. */
function typed(headers: Readonly<Record<string, string>> = {}): Record<string, string> {
  const hasType = Object.keys(headers).some((name) => name.toLowerCase() === 'content-type');
  return hasType ? headers : { ...headers, 'content-type': JSON_TYPE };
}

function describeRawPost(app: App): void {
  const options = OPTION_HEADERS.map((name) => [name, z.string().optional()] as const);
  describeEndpoint(app, {
    method: 'post',
    path: '/v1/topics/{topic}/messages',
    summary: 'Puts one message down; the bytes of the request are its body, streamed.',
    role: 'post',
    params: z.object({ topic: z.string() }),
    headers: z.object({
      ...Object.fromEntries(options),
      'respool-header-*': z.string().optional().describe('A header of the message, by its name.'),
      'content-type': z.string().optional().describe('Becomes the header of the message.'),
      'idempotency-key': z.string().optional().describe('The dedupe key.'),
    }),
    body: z.string(),
    bodyType: '*/*',
    isBodyOptional: true,
    answers: {
      201: { description: 'Durable.', schema: enqueuedSchema },
      200: { description: 'It was there already.', schema: enqueuedSchema },
      411: { description: 'Nothing says how long the body is.', schema: errorSchema },
      413: { description: 'The body is too large; nothing was kept.', schema: errorSchema },
      415: { description: 'The body has a content-encoding.', schema: errorSchema },
      501: { description: 'The body has a transfer-encoding.', schema: errorSchema },
      507: { description: 'The disk is full.', schema: errorSchema },
    },
  });
}

// The body of a message as a download. Never shown as a page: whatever a message
// says of its own type, it goes out as bytes to be saved.

/** Answers with the bytes. */
async function bodyAnswer(
  { id, body }: Envelope,
  bytes: AsyncIterable<Uint8Array>,
): Promise<Response> {
  const parts = bytes[Symbol.asyncIterator]();
  // The last part waits for the verdict on the whole: a damaged body must not look finished. Two
  // parts ahead, so that what fits into one is judged before the status is out.
  let held = await parts.next();
  let next = held.done === true ? held : await parts.next();
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (held.done === true) {
          controller.close();
          return;
        }
        controller.enqueue(held.value);
        held = next;
        if (held.done !== true) next = await parts.next();
      },
      async cancel() {
        await parts.return?.();
      },
    },
    { highWaterMark: 0 },
  );
  return new Response(stream, {
    headers: {
      'content-type': 'application/octet-stream',
      'content-length': String(body.size),
      // An id has no character that would need quoting.
      'content-disposition': `attachment; filename="${id}"`,
    },
  });
}
