/**
 * refusal — an error as an HTTP answer: one shape for all, `{ error: { code, message, reason? } }`.
 *
 * Codes are those of RespoolError. Where HTTP tells more apart than they do, `reason` has the word.
 */

import { type ErrorCode, isRespoolError, RespoolError } from '../core/errors.ts';

/** What HTTP callers did wrong that the spool never hears of. */
export type RefusalReason =
  | 'confirm.invalid'
  | 'confirm.more'
  | 'content-type'
  | 'host.unknown'
  | 'internal'
  | 'json.invalid'
  | 'method.unknown'
  | 'not-ready'
  | 'origin.foreign'
  | 'rate.exceeded'
  | 'role.missing'
  | 'route.unknown'
  | 'token.locked'
  | 'token.unknown'
  | 'too-large';

/** A refusal with its status. */
export class Refusal extends RespoolError {
  readonly status: number;
  readonly reason: RefusalReason;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: number,
    reason: RefusalReason,
    text: string,
    { code = 'config.invalid', headers = {} }: RefusalOptions = {},
  ) {
    super(code, text);
    this.status = status;
    this.reason = reason;
    this.headers = headers;
  }
}

interface RefusalOptions {
  readonly code?: ErrorCode;
  readonly headers?: Readonly<Record<string, string>>;
}

/** An answer before it is written. */
export interface Refused {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

/** How long a caller should wait before it asks a service again that cannot work now. */
const RETRY_AFTER_SECONDS = '5';

const STATUS: Readonly<Record<ErrorCode, number>> = {
  'store.unavailable': 503,
  'store.corrupt': 500,
  'store.version': 500,
  'store.full': 507,
  'body.missing': 410,
  'body.corrupt': 500,
  'move.refused': 409,
  'message.unknown': 404,
  'message.duplicate': 409,
  'message.invalid': 400,
  'policy.unknown': 400,
  'policy.invalid': 400,
  'handler.missing': 500,
  'config.invalid': 400,
  'peer.missing': 500,
  'broker.unavailable': 503,
  'broker.unroutable': 503,
  'broker.unconfirmed': 503,
  'topology.mismatch': 500,
  'key.unavailable': 503,
  'limit.exceeded': 400,
  'engine.stopping': 503,
};

/** The answer to whatever was thrown. What is no RespoolError is told without its text. */
export function refusedOf(thrown: unknown): Refused {
  if (!isRespoolError(thrown)) return { status: 500, headers: {}, text: INTERNAL };
  const { code, message } = thrown;
  if (thrown instanceof Refusal) {
    const { status, headers, reason } = thrown;
    return { status, headers, text: JSON.stringify({ error: { code, message, reason } }) };
  }
  const status = STATUS[code];
  return {
    status,
    headers: status === 503 ? { 'retry-after': RETRY_AFTER_SECONDS } : {},
    text: JSON.stringify({ error: { code, message } }),
  };
}

const INTERNAL = JSON.stringify({
  error: {
    code: 'store.unavailable',
    message: 'the request failed inside the service; its log says why',
    reason: 'internal',
  },
});

/** Too many bytes, by their limit. */
export function tooLarge(what: string, maxBytes: number, hint: string): Refusal {
  const text = `cannot accept ${what}: it has more than the allowed ${maxBytes} bytes (${hint})`;
  return new Refusal(413, 'too-large', text, { code: 'limit.exceeded' });
}

/** The service takes nothing new. */
export function stopping(): RespoolError {
  return new RespoolError(
    'engine.stopping',
    'the service is stopping and takes nothing new; send it again in a few seconds',
  );
}
