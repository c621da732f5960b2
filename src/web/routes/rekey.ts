/**
 * rekey — bodies brought to the current encryption: counted first, then done behind the
 * answer, one at a time. Who wants to know how far it is asks again.
 */

import { z } from '@hono/zod-openapi';
import type { SpoolOperator } from '../../spool/operator/operator.ts';
import { isRespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { ListFilter } from '../../spool/list.ts';
import type { RekeyProgress } from '../../spool/rekey.ts';
import { Confirmations } from './confirmations.ts';
import { addEndpoint, type App, errorSchema } from '../server/endpoint.ts';
import { HttpRefusal } from '../server/refusal.ts';
import { filterSchema } from './schemas.ts';

/** A confirmation has its filter in it, and that may have 5,000 ids. */
const TOKEN_MAX_CHARS = 600_000;
const ACTION = { kind: 'rekey' } as const;

const rekeyBody = z.strictObject({
  filter: filterSchema.optional(),
  dryRun: z.literal(true).optional(),
  confirm: z.string().max(TOKEN_MAX_CHARS).optional(),
});

const troubleSchema = z.object({ id: z.string(), code: z.string(), text: z.string() });
const stateSchema = z.object({
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
const countSchema = z.object({ count: z.number(), confirm: z.string(), expiresAt: z.number() });

/** What the routes need. */
interface RekeyParts {
  readonly clock: Clock;
  /** Fires when the service stops. */
  readonly signal: AbortSignal;
  onError(error: unknown, path: string): void;
}

/** Adds them to the app. */
export function addRekeyRoutes(app: App, parts: RekeyParts): void {
  const runs = new Runs(parts);
  const confirms = new Confirmations(parts.clock);
  const state = {
    description: 'How far it is, or how far the last one came.',
    schema: stateSchema,
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
      200: { description: 'The count.', schema: countSchema },
      202: { description: 'It has begun.', schema: stateSchema },
      409: { description: 'The confirmation does not fit, or one runs.', schema: errorSchema },
    },
    answer: async ({ body: { filter = {}, dryRun, confirm }, operator }) => {
      if (confirm === undefined || dryRun === true) {
        const { count } = await operator.rekey({ filter, dryRun: true });
        return Response.json({ count, ...confirms.sign(ACTION, filter, { count, filter }) });
      }
      const counted = confirms.read(confirm, ACTION, filter);
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

type RunState = z.infer<typeof stateSchema>;

const NOTHING: RekeyProgress = { count: 0, done: 0, left: 0, unreadable: 0, troubles: [] };

/** The one that runs, and what came of the last. */
class Runs {
  readonly #parts: RekeyParts;
  #running: { readonly stop: AbortController; readonly ended: Promise<void> } | undefined;
  #progress: RekeyProgress = NOTHING;
  #by: string | undefined;
  #error: RunState['error'];

  constructor(parts: RekeyParts) {
    this.#parts = parts;
  }

  get state(): RunState {
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

  begin(operator: SpoolOperator, filter: ListFilter, count: number): void {
    const stop = new AbortController();
    this.#by = operator.by;
    this.#error = undefined;
    this.#progress = { ...NOTHING, count, left: count };
    const signal = AbortSignal.any([stop.signal, this.#parts.signal]);
    this.#running = { stop, ended: this.#run(operator, filter, signal) };
  }

  async stop(): Promise<void> {
    const { stop, ended } = this.#running ?? {};
    stop?.abort();
    await ended;
  }

  async #run(operator: SpoolOperator, filter: ListFilter, signal: AbortSignal): Promise<void> {
    const onProgress = (progress: RekeyProgress): void => {
      this.#progress = progress;
    };
    try {
      this.#progress = await operator.rekey({ filter, signal, onProgress });
    } catch (error) {
      this.#error = this.#told(error, signal);
    } finally {
      this.#running = undefined;
    }
  }

  #told(error: unknown, signal: AbortSignal): RunState['error'] {
    if (isRespoolError(error)) return { code: error.code, message: error.message };
    if (signal.aborted) {
      return { code: 'engine.stopping', message: 'it was stopped; run it again for the rest' };
    }
    this.#parts.onError(error, '/v1/rekey');
    const message = 'it failed inside the service; its log says why';
    return { code: 'store.unavailable', message };
  }
}
