/**
 * endpoint — one path of the API: what it takes and answers as schemas, who may ask, and what is
 * done. From the same schemas come the checks of requests and the OpenAPI document; answers are not
 * checked. The files of routes/ add them.
 *
 * One path is not answered here: routes/post.ts takes raw posts by hand, and `describeRawPost` of
 * routes/messages.ts puts them into the document: change both.
 */

import { type OpenAPIHono, z } from '@hono/zod-openapi';
import type { ServiceOperator } from '../../spool/operator/operator.ts';
import { type ErrorCode, RespoolError } from '../../core/errors.ts';
import type { AnswerMemory } from './answer-memory.ts';
import type { ByteBudget, ByteLimit, Share } from './inlet.ts';
import { type Caller, checkRole } from './request-gate.ts';
import { jsonOf } from './json.ts';
import type { TokenRole } from './settings.ts';
import { JSON_TYPE } from './writing.ts';

/** What comes with each request to the app. */
interface Bindings {
  readonly caller: Caller;
  readonly operator: ServiceOperator;
  /** Reads the body, for handlers that need it. */
  read(limit: ByteLimit): Promise<Uint8Array>;
  readonly budget: ByteBudget;
  readonly memory: AnswerMemory;
  /** Fires when the caller is gone before it has its answer. */
  readonly signal: AbortSignal;
}

/** The app that carries the endpoints. */
export type App = OpenAPIHono<{ Bindings: Bindings }>;

/** A request whose parts fit their schemas. */
interface EndpointRequest<P, Q, B> extends Pick<Bindings, 'caller' | 'operator' | 'signal'> {
  readonly params: P;
  readonly query: Q;
  readonly body: B;
  readonly request: Request;
}

type Answers = Readonly<
  Record<
    number,
    { readonly description: string; readonly schema?: z.ZodType; readonly type?: string }
  >
>;

/** An endpoint. */
interface Endpoint<P, Q, B> {
  readonly method: 'get' | 'post' | 'delete';
  /** With parameters in braces. */
  readonly path: string;
  readonly summary: string;
  /** Who may ask; without: everybody, even without a token. */
  readonly role?: TokenRole;
  readonly params?: z.ZodType<P>;
  readonly query?: z.ZodType<Q>;
  /** Names in the query that may come more than once. */
  readonly lists?: readonly string[];
  readonly headers?: z.ZodType;
  readonly body?: z.ZodType<B>;
  readonly isBodyOptional?: boolean;
  /** How long the body may be; default 1 MiB. */
  readonly maxBytes?: number;
  /** What to do with a longer one. */
  readonly hint?: string;
  /** The code of a refusal of its body; default `config.invalid`. */
  readonly code?: ErrorCode;
  /** Its answer may have megabytes: few are made at once. */
  readonly isLarge?: boolean;
  readonly answers: Answers;
  answer(request: EndpointRequest<P, Q, B>): Promise<Response> | Response;
}

/** The one shape of errors. */
export const errorSchema: z.ZodType = z.object({
  error: z.object({
    code: z.string(),
    message: z.string(),
    reason: z.string().optional(),
  }),
});

/** Puts an endpoint into the app and into the document. */
export function addEndpoint<P, Q, B>(app: App, endpoint: Endpoint<P, Q, B>): void {
  const { method, path, role } = endpoint;
  describeEndpoint(app, endpoint);
  app.on(method.toUpperCase(), path.replaceAll(/\{(\w+)\}/g, ':$1'), async (context) => {
    const { env, req } = context;
    const { caller, operator, signal } = env;
    if (role !== undefined) checkRole(caller, role);
    const params = parsed(endpoint.params, req.param(), 'path') as P;
    const given = queryOf(new URL(req.url), endpoint.lists);
    const query = parsed(endpoint.query ?? NO_QUERY, given, 'query') as Q;
    const share = env.budget.open();
    try {
      // Last: nothing of it comes into memory before everything else is known to be right.
      const bytes = await bytesOf(endpoint, env, share);
      const body = bodyOf(endpoint, bytes, req.raw) as B;
      const asked = { caller, operator, signal, request: req.raw, params, query, body };
      if (endpoint.isLarge !== true) return await endpoint.answer(asked);
      return await env.memory.make(() =>
        // A caller that went away while it waited hears nothing of it.
        signal.aborted ? new Response(null) : endpoint.answer(asked),
      );
    } finally {
      share.giveBack();
    }
  });
}

async function bytesOf<P, Q, B>(
  { body, maxBytes = BODY_MAX_BYTES, hint = ENOUGH }: Endpoint<P, Q, B>,
  env: Bindings,
  share: Share,
): Promise<Uint8Array | undefined> {
  if (body === undefined) return undefined;
  return env.read({ what: 'the request', maxBytes, hint, share });
}

/** Largest body where an endpoint sets none. Also in docs/reference/http-api.md. */
const BODY_MAX_BYTES = 1_048_576;
const ENOUGH = 'nothing that this path takes is longer';

/** Puts an endpoint into the document; alone for one that is served elsewhere. */
export function describeEndpoint<P, Q, B>(
  app: App,
  endpoint: Omit<Endpoint<P, Q, B>, 'answer'> & { readonly bodyType?: string },
): void {
  const { method, path, summary, role, params, query, headers, body, answers } = endpoint;
  const { bodyType = JSON_TYPE, isBodyOptional = false } = endpoint;
  app.openAPIRegistry.registerPath({
    method,
    path,
    summary,
    ...(role === undefined ? {} : { security: [{ token: [] }], description: `Role: ${role}.` }),
    request: {
      ...(params === undefined ? {} : { params: params as never }),
      ...(query === undefined ? {} : { query: query as never }),
      ...(headers === undefined ? {} : { headers: headers as never }),
      ...(body === undefined
        ? {}
        : { body: { required: !isBodyOptional, content: { [bodyType]: { schema: body } } } }),
    },
    responses: responsesOf(
      answers,
      role !== undefined,
      body !== undefined && bodyType === JSON_TYPE,
    ),
  });
}

function responsesOf(
  answers: Answers,
  isGuarded: boolean,
  takesJson: boolean,
): Record<string, never> {
  const responses: Record<string, unknown> = {};
  for (const [status, { description, schema, type = JSON_TYPE }] of Object.entries(answers)) {
    responses[status] = {
      description,
      ...(schema === undefined ? {} : { content: { [type]: { schema } } }),
    };
  }
  const refused = (description: string): unknown => ({
    description,
    content: { [JSON_TYPE]: { schema: errorSchema } },
  });
  if (takesJson) {
    responses['413'] ??= refused('The request is too large.');
    responses['415'] ??= refused('The request is no JSON.');
  }
  if (isGuarded) {
    responses['400'] ??= refused('Something in the request is not allowed; the text says what.');
    responses['401'] ??= refused('No token, or an unknown one.');
    responses['403'] ??= refused('The role of the token, or a page of another origin.');
    responses['429'] ??= refused('Too many requests; Retry-After says when to come back.');
    responses['503'] ??= refused('Starting, stopping, or the store does not answer now.');
  }
  responses['421'] ??= refused('A host name that is not served here.');
  return responses as Record<string, never>;
}

/** Parameters of one query, ids included. Also in docs/reference/http-api.md. */
const PARAMETERS_MAX = 1_000;
const NO_QUERY = z.strictObject({});

function queryOf(
  { search, searchParams: params }: URL,
  lists: readonly string[] = [],
): Record<string, unknown> {
  checkEscapes(search);
  if (params.size > PARAMETERS_MAX) {
    throw new RespoolError('limit.exceeded', `cannot use more than ${PARAMETERS_MAX} parameters`);
  }
  const query: Record<string, unknown> = {};
  for (const name of new Set(params.keys())) {
    const values = params.getAll(name);
    if (values.length > 1 && !lists.includes(name)) {
      throw new RespoolError(
        'config.invalid',
        `cannot use the parameter "${name}" twice: give one`,
      );
    }
    const value = lists.includes(name) ? values : values[0];
    Object.defineProperty(query, name, { value, enumerable: true });
  }
  return query;
}

/** `URLSearchParams` replaces what is not UTF-8, and takes a `%` without its digits as it is. */
function checkEscapes(search: string): void {
  try {
    decodeURIComponent(search);
  } catch {
    throw new RespoolError(
      'config.invalid',
      'cannot read the query: allowed is text in UTF-8, with % written as %25',
    );
  }
}

function bodyOf<P, Q, B>(
  { body: schema, isBodyOptional = false, code }: Endpoint<P, Q, B>,
  bytes: Uint8Array | undefined,
  request: Request,
): unknown {
  if (schema === undefined) return undefined;
  const isEmpty = bytes === undefined || bytes.byteLength === 0;
  if (isEmpty && isBodyOptional) return parsed(schema, {}, 'body', code);
  return parsed(schema, jsonOf(bytes ?? new Uint8Array(0), request), 'body', code);
}

function parsed(
  schema: z.ZodType | undefined,
  value: unknown,
  where: string,
  code: ErrorCode = 'config.invalid',
): unknown {
  if (schema === undefined) return undefined;
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const { path, message } = plainest(result.error.issues[0]);
  const at = path.length === 0 ? '' : ` "${path.join('.')}"`;
  const text = message.charAt(0).toLowerCase() + message.slice(1);
  throw new RespoolError(code, `cannot use the ${where}${at} of the request: ${text}`);
}

/** Of several forms, what is wrong with the one that was meant. */
function plainest(issue: Issue | undefined): { path: readonly PropertyKey[]; message: string } {
  if (issue === undefined) return { path: [], message: 'it does not fit' };
  if (issue.code !== 'invalid_union') return issue;
  for (const [first] of issue.errors) {
    const isOtherForm = first?.code === 'invalid_type' && first.path.length === 0;
    if (first === undefined || isOtherForm) continue;
    const { path, message } = plainest(first);
    return { path: [...issue.path, ...path], message };
  }
  return issue;
}

type Issue = z.core.$ZodIssue;
