/**
 * actions — operator actions on one message, pauses, and the cleanup. Each is on the audit record
 * before it is done, in the name of the caller.
 */

import { z } from '@hono/zod-openapi';
import type { Operator } from '../../spool/operator/operator.ts';
import { assert, RespoolError } from '../../core/errors.ts';
import { REASON_MAX_CHARS } from '../../core/failure.ts';
import { KEY_MAX_CHARS, TOPIC_MAX_CHARS } from '../../core/limits.ts';
import type { ActionResult } from '../../spool/actions.ts';
import { addEndpoint, type App, errorSchema } from '../server/endpoint.ts';
import { checkRole } from '../server/request-gate.ts';
import { flagSchema, idParams, resultSchema, stateSchema } from './schemas.ts';

const reason = z.string().min(1).max(REASON_MAX_CHARS).optional();
const reasonBody = z.strictObject({ reason });
const policyBody = z.strictObject({ policy: z.string().min(1).max(KEY_MAX_CHARS) });
const noBody = z.strictObject({});
const pattern = z.string().max(TOPIC_MAX_CHARS);
const pauseBody = z.strictObject({
  topic: pattern.describe('A topic or pattern; # for everything.'),
});
const resumeBody = z.strictObject({
  topic: pattern.describe('The pattern that was paused; # for everything.'),
});

const headersBody = z.strictObject({
  headers: z.record(z.string(), z.string().nullable()),
  revision: z.int().min(0).optional().describe('Only if the message is still at this revision.'),
});
const okSchema = z.object({ ok: z.literal(true) });
const cleanupSchema = z.object({
  forgotten: z.number(),
  orphans: z.number(),
  unhandled: z.number(),
});

const ANSWERS = {
  200: { description: 'Done.', schema: resultSchema },
  404: { description: 'There is no such message.', schema: errorSchema },
  409: { description: 'The message is in no state for this.', schema: errorSchema },
} as const;

/** Adds them to the app. */
export function addActionRoutes(app: App): void {
  addAction(
    app,
    'hold',
    'It is not attempted until it is released.',
    reasonBody,
    (operator, id, body) => operator.hold([id], body),
  );
  addAction(
    app,
    'release',
    'Releases a held message to its former state.',
    noBody,
    (operator, id) => operator.release([id]),
  );
  addAction(
    app,
    'retry',
    'Due at once; also what bounced or is archived.',
    noBody,
    (operator, id) => operator.retry([id]),
  );
  addAction(app, 'bounce', 'Gives it up.', reasonBody, (operator, id, body) =>
    operator.bounce([id], body),
  );
  addAction(app, 'policy', 'Gives it another policy.', policyBody, (operator, id, body) =>
    operator.setPolicy([id], body.policy),
  );
  addRemove(app);
  addChanges(app);
  addPauses(app);
}

function addAction<B>(
  app: App,
  name: string,
  summary: string,
  body: z.ZodType<B>,
  act: (operator: Operator, id: string, body: B) => Promise<ActionResult[]>,
): void {
  addEndpoint(app, {
    method: 'post',
    path: `/v1/messages/{id}/${name}`,
    summary,
    role: 'operate',
    params: idParams,
    body,
    isBodyOptional: name !== 'policy',
    answers: ANSWERS,
    answer: async ({ params, body: given, operator }) =>
      answerOf(await act(operator, params.id, given)),
  });
}

function addRemove(app: App): void {
  addEndpoint(app, {
    method: 'delete',
    path: '/v1/messages/{id}',
    summary: 'Removes a message: to the archive, or with hard=true (role admin) for good.',
    role: 'operate',
    params: idParams,
    query: z.strictObject({ hard: flagSchema.optional(), reason }),
    answers: ANSWERS,
    answer: async ({ params, query, operator, caller }) => {
      const hard = query.hard === 'true';
      if (hard) checkRole(caller, 'admin');
      const { reason } = query;
      return answerOf(await operator.remove([params.id], { hard, reason }));
    },
  });
}

function addChanges(app: App): void {
  addEndpoint(app, {
    method: 'post',
    path: '/v1/messages/{id}/move',
    summary: 'Moves a message from one state to another.',
    role: 'operate',
    params: idParams,
    body: z.strictObject({ from: stateSchema, to: stateSchema, reason }),
    answers: { ...ANSWERS, 200: { description: 'Done.', schema: okSchema } },
    answer: async ({ params, body, operator }) => {
      await operator.move(params.id, body);
      return Response.json({ ok: true });
    },
  });
  addEndpoint(app, {
    method: 'post',
    path: '/v1/messages/{id}/headers',
    summary: 'Changes headers of a message; null removes one.',
    role: 'operate',
    params: idParams,
    body: headersBody,
    answers: {
      ...ANSWERS,
      200: {
        description: 'Done, or stale: the message is no longer at that revision.',
        schema: z.object({ result: z.enum(['done', 'stale']) }),
      },
    },
    answer: async ({ params, body: { headers, revision }, operator }) =>
      Response.json({ result: await operator.setHeaders(params.id, headers, { revision }) }),
  });
  addEndpoint(app, {
    method: 'post',
    path: '/v1/cleanup',
    summary: 'Runs one round of the caretaker now: retention, orphaned bodies, unhandled messages.',
    role: 'operate',
    body: noBody,
    isBodyOptional: true,
    answers: { 200: { description: 'What was removed.', schema: cleanupSchema } },
    answer: async ({ operator }) => Response.json(await operator.cleanUp()),
  });
}

function addPauses(app: App): void {
  const answers = {
    200: { description: 'Done.', schema: okSchema },
  } as const;
  addEndpoint(app, {
    method: 'post',
    path: '/v1/pause',
    summary: 'Stops delivering a topic, or everything, in every process.',
    role: 'operate',
    body: pauseBody,
    isBodyOptional: true,
    answers,
    answer: async ({ body, operator }) => {
      await operator.pause(body.topic);
      return Response.json({ ok: true });
    },
  });
  addEndpoint(app, {
    method: 'post',
    path: '/v1/resume',
    summary: 'Ends a pause: the same pattern it was made with.',
    role: 'operate',
    body: resumeBody,
    isBodyOptional: true,
    answers,
    answer: async ({ body, operator }) => {
      await operator.resume(body.topic);
      return Response.json({ ok: true });
    },
  });
}

function answerOf([result]: readonly ActionResult[]): Response {
  assert(result !== undefined, 'an action on one message has one result');
  const { id, why } = result;
  if (result.result === 'unknown') {
    throw new RespoolError('message.unknown', `there is no message "${id}"`);
  }
  if (result.result === 'refused') {
    throw new RespoolError('move.refused', why ?? `the message "${id}" is in no state for this`);
  }
  return Response.json(result);
}
