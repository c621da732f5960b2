/**
 * bulk — one action over many messages: by their ids at once, or by a filter in two steps, a
 * dry run that counts and a confirmation that does at most what was counted.
 *
 * Also the rekeying, which is counted and confirmed in the same way and then runs in the
 * background, where its progress can be asked for.
 */

import { z } from '@hono/zod-openapi';
import type { BulkAction, Operator, ServiceOperator } from '../../spool/operator/operator.ts';
import { addProgress, isEmptyFilter, NO_PROGRESS } from '../../spool/operator/bulk-actions.ts';
import { isRespoolError, RespoolError, unreachable } from '../../core/errors.ts';
import { REASON_MAX_CHARS } from '../../core/failure.ts';
import { KEY_MAX_CHARS } from '../../core/limits.ts';
import type { Clock } from '../../ports/clock.ts';
import type { ActionResult } from '../../spool/actions.ts';
import type { ListFilter } from '../../spool/list.ts';
import type { RekeyProgress } from '../../spool/rekey.ts';
import { Confirmations } from './confirmations.ts';
import { addEndpoint, type App, errorSchema } from '../server/endpoint.ts';
import { checkRole } from '../server/request-gate.ts';
import { HttpRefusal } from '../server/refusal.ts';
import { filterSchema, IDS_MAX, idSchema, resultSchema } from './schemas.ts';

/** Maximum number of messages that one request acts on. Also in docs/reference/http-api.md. */
const REQUEST_MAX = 5_000;
/** A confirmation has its filter in it, and that may have IDS_MAX ids. */
const TOKEN_MAX_CHARS = 600_000;

const reason = z.string().min(1).max(REASON_MAX_CHARS).optional();
const actionSchema: z.ZodType<BulkAction> = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.enum(['hold', 'bounce']), reason }),
  z.strictObject({ kind: z.enum(['release', 'retry']) }),
  z.strictObject({ kind: z.literal('remove'), hard: z.boolean().optional(), reason }),
  z.strictObject({ kind: z.literal('policy'), policy: z.string().min(1).max(KEY_MAX_CHARS) }),
]);

const bulkBody = z.strictObject({
  action: actionSchema,
  filter: filterSchema.optional(),
  ids: z.array(idSchema).min(1).max(IDS_MAX).optional(),
  all: z.literal(true).optional().describe('Needed for a filter that leaves nothing out.'),
  dryRun: z.literal(true).optional(),
  confirm: z.string().max(TOKEN_MAX_CHARS).optional(),
  after: z.string().max(TOKEN_MAX_CHARS).optional().describe('The next of the answer before.'),
});
type BulkBody = z.infer<typeof bulkBody>;

const answerSchema = z.union([
  z.object({
    count: z.number(),
    filter: filterSchema.describe('As it stood: ages are times, what comes later does not fit.'),
    confirm: z.string(),
    expiresAt: z.number(),
  }),
  z.object({
    seen: z.number(),
    done: z.number(),
    refused: z.number(),
    unknown: z.number(),
    refusals: z.array(resultSchema),
    next: z.string().optional(),
  }),
  z.object({ results: z.array(resultSchema) }),
]);

/** Adds the route of bulk actions to the app. */
export function addBulkRoutes(app: App, { clock }: { readonly clock: Clock }): void {
  const confirms = new Confirmations(clock);
  addEndpoint(app, {
    method: 'post',
    path: '/v1/bulk',
    summary:
      'Acts on many messages: by ids at once; by filter first a dry run, then with its confirm.',
    role: 'operate',
    body: bulkBody,
    answers: {
      200: { description: 'A count, a progress, or results by id.', schema: answerSchema },
      409: { description: 'The confirmation does not fit, or more fits now.', schema: errorSchema },
    },
    answer: async ({ body, caller, operator }) => {
      const { action, ids, confirm } = body;
      if (action.kind === 'remove' && action.hard === true) checkRole(caller, 'admin');
      if (ids !== undefined) return byIds(operator, body, ids);
      const filter = filterOf(body);
      if (confirm === undefined || body.dryRun === true) {
        const { count, filter: fixed } = await operator.prepare(action, filter);
        const signed = confirms.sign(action, filter, { count, filter: fixed });
        return Response.json({ count, filter: fixed, ...signed });
      }
      return confirmed(operator, confirms, { ...body, confirm, filter });
    },
  });
}

/** What was confirmed, for as many messages as one request may act on. */
async function confirmed(
  operator: ServiceOperator,
  confirms: Confirmations,
  { action, filter: asked, confirm, after: given }: BulkBody & Confirmed,
): Promise<Response> {
  const counted = confirms.read(confirm, action, asked);
  const { count, filter } = counted;
  const position = given === undefined ? undefined : confirms.useNext(confirm, given);
  if (position === undefined) {
    const now = await operator.prepare(action, filter);
    if (now.count > count) throw moreFit(count, now.count);
    confirms.begin(confirm, counted);
    await operator.beginBulk(action, counted);
  }
  const left = count - (position?.seen ?? 0);
  const max = Math.min(REQUEST_MAX, left);
  let after: string | undefined = position?.after;
  let progress = NO_PROGRESS;
  do {
    const step = await operator.stepBulk(action, {
      filter,
      max: max - progress.seen,
      ...(after === undefined ? {} : { after }),
    });
    progress = addProgress(progress, step.progress);
    after = step.next;
  } while (after !== undefined && progress.seen < max);
  if (after === undefined || progress.seen >= left) return Response.json(progress);
  const seen = (position?.seen ?? 0) + progress.seen;
  return Response.json({ ...progress, next: confirms.signNext(confirm, { after, seen }) });
}

interface Confirmed {
  readonly confirm: string;
  readonly filter: ListFilter;
}

async function byIds(
  operator: Operator,
  { action, filter, confirm, dryRun }: BulkBody,
  ids: readonly string[],
): Promise<Response> {
  if (filter !== undefined || confirm !== undefined || dryRun !== undefined) {
    throw new RespoolError(
      'config.invalid',
      'cannot use "ids" together with "filter", "confirm" or "dryRun": ids are acted on at once',
    );
  }
  return Response.json({ results: await actOn(operator, action, ids) });
}

function actOn(
  operator: Operator,
  action: BulkAction,
  ids: readonly string[],
): Promise<ActionResult[]> {
  switch (action.kind) {
    case 'hold':
      return operator.hold(ids, { reason: action.reason });
    case 'release':
      return operator.release(ids);
    case 'retry':
      return operator.retry(ids);
    case 'bounce':
      return operator.bounce(ids, { reason: action.reason });
    case 'remove':
      return operator.remove(ids, { hard: action.hard === true, reason: action.reason });
    case 'policy':
      return operator.setPolicy(ids, action.policy);
    default:
      return unreachable(action);
  }
}

/** An empty filter matches everything; omitting the filter must not have that effect. */
function filterOf({ filter = {}, all }: BulkBody): ListFilter {
  if (!isEmptyFilter(filter) || all === true) return filter;
  throw new RespoolError(
    'config.invalid',
    'cannot act without a filter: give one, or "all": true for all messages',
  );
}

function moreFit(count: number, now: number): HttpRefusal {
  return new HttpRefusal(
    409,
    'confirm.more',
    `cannot do this: ${count} were counted and ${now} fit now; ask again without "confirm"`,
    { code: 'move.refused' },
  );
}

// Rekeying

const REKEY = { kind: 'rekey' } as const;

const rekeyBody = z.strictObject({
  filter: filterSchema.optional(),
  dryRun: z.literal(true).optional(),
  confirm: z.string().max(TOKEN_MAX_CHARS).optional(),
});

const troubleSchema = z.object({ id: z.string(), code: z.string(), text: z.string() });
/** How far a rekeying is, or how far the last one came. */
export interface RekeyState extends RekeyProgress {
  readonly isRunning: boolean;
  /** Name of the operator who began it. */
  readonly by?: string | undefined;
  /** Why it ended before everything was done. */
  readonly error?: { readonly code: string; readonly message: string } | undefined;
}

const rekeyStateSchema: z.ZodType<RekeyState> = z.object({
  isRunning: z.boolean(),
  by: z.string().optional(),
  count: z.number(),
  done: z.number(),
  left: z.number(),
  unreadable: z.number(),
  troubles: z.array(troubleSchema),
  error: z
    .object({ code: z.string(), message: z.string() })
    .optional()
    .describe('Why it ended before everything was done.'),
});
const rekeyCountSchema = z.object({
  count: z.number(),
  confirm: z.string(),
  expiresAt: z.number(),
});

/** What the routes of a rekeying need. */
interface RekeyOptions {
  readonly clock: Clock;
  /** Fires when the service stops. */
  readonly signal: AbortSignal;
  onError(error: unknown, path: string): void;
}

/** Adds the routes of a rekeying to the app. */
export function addRekeyRoutes(app: App, options: RekeyOptions): void {
  const runs = new RekeyRuns(options);
  const confirms = new Confirmations(options.clock);
  const state = {
    description: 'How far it is, or how far the last one came.',
    schema: rekeyStateSchema,
  };
  addEndpoint(app, {
    method: 'post',
    path: '/v1/rekey',
    summary:
      'Brings bodies and sealed entries to the current encryption: first a dry run, then with ' +
      'its confirm, in the background.',
    role: 'admin',
    body: rekeyBody,
    isBodyOptional: true,
    answers: {
      200: { description: 'The count.', schema: rekeyCountSchema },
      202: { description: 'It has begun.', schema: rekeyStateSchema },
      409: { description: 'The confirmation does not fit, or one runs.', schema: errorSchema },
    },
    answer: async ({ body: { filter = {}, dryRun, confirm }, operator }) => {
      if (confirm === undefined || dryRun === true) {
        const { count } = await operator.rekey({ filter, dryRun: true });
        return Response.json({ count, ...confirms.sign(REKEY, filter, { count, filter }) });
      }
      const counted = confirms.read(confirm, REKEY, filter);
      runs.checkFree();
      confirms.begin(confirm, counted);
      runs.begin(operator, filter, counted.count);
      return Response.json(runs.state, { status: 202 });
    },
  });
  addEndpoint(app, {
    method: 'get',
    path: '/v1/rekey',
    summary: 'How far the rekeying is, or how far the last one came.',
    role: 'admin',
    answers: { 200: state },
    answer: () => Response.json(runs.state),
  });
  addEndpoint(app, {
    method: 'delete',
    path: '/v1/rekey',
    summary: 'Stops the rekeying between two messages; what is done stays done.',
    role: 'admin',
    answers: { 200: state },
    answer: async () => {
      await runs.stop();
      return Response.json(runs.state);
    },
  });
}

const NOTHING: RekeyProgress = { count: 0, done: 0, left: 0, unreadable: 0, troubles: [] };

/** The rekeying that runs, and the result of the last. */
class RekeyRuns {
  readonly #options: RekeyOptions;
  #running: { readonly stop: AbortController; readonly ended: Promise<void> } | undefined;
  #progress: RekeyProgress = NOTHING;
  #by: string | undefined;
  #error: RekeyState['error'];

  constructor(options: RekeyOptions) {
    this.#options = options;
  }

  get state(): RekeyState {
    return {
      isRunning: this.#running !== undefined,
      ...(this.#by === undefined ? {} : { by: this.#by }),
      ...this.#progress,
      troubles: [...this.#progress.troubles],
      ...(this.#error === undefined ? {} : { error: this.#error }),
    };
  }

  checkFree(): void {
    if (this.#running === undefined) return;
    throw new HttpRefusal(
      409,
      'rekey.running',
      'cannot rekey: one runs already; GET /v1/rekey says how far it is, DELETE stops it',
      { code: 'move.refused' },
    );
  }

  begin(operator: ServiceOperator, filter: ListFilter, count: number): void {
    const stop = new AbortController();
    this.#by = operator.by;
    this.#error = undefined;
    this.#progress = { ...NOTHING, count, left: count };
    const signal = AbortSignal.any([stop.signal, this.#options.signal]);
    this.#running = { stop, ended: this.#run(operator, filter, signal) };
  }

  async stop(): Promise<void> {
    const { stop, ended } = this.#running ?? {};
    stop?.abort();
    await ended;
  }

  async #run(operator: ServiceOperator, filter: ListFilter, signal: AbortSignal): Promise<void> {
    const onProgress = (progress: RekeyProgress): void => {
      this.#progress = progress;
    };
    try {
      this.#progress = await operator.rekey({ filter, signal, onProgress });
    } catch (error) {
      this.#error = this.#errorOf(error, signal);
    } finally {
      this.#running = undefined;
    }
  }

  #errorOf(error: unknown, signal: AbortSignal): RekeyState['error'] {
    if (isRespoolError(error)) return { code: error.code, message: error.message };
    if (signal.aborted) {
      return { code: 'engine.stopping', message: 'it was stopped; run it again for the rest' };
    }
    this.#options.onError(error, '/v1/rekey');
    const message = 'it failed inside the service; its log says why';
    return { code: 'store.unavailable', message };
  }
}
