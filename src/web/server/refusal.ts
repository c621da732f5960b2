/**
 * refusal — an error as an HTTP answer: one shape for all, `{ error: { code, message, reason? } }`.
 *
 * Codes are those of RespoolError. Where HTTP distinguishes more cases, `reason` names them.
 */

import { type ErrorCode, isRespoolError, RespoolError } from '../../core/errors.ts';

/** Cases that HTTP distinguishes beyond the codes. Also in docs/reference/http-api.md. */
type RefusalReason =
  | 'busy'
  | 'confirm.invalid'
  | 'confirm.more'
  | 'content-encoding'
  | 'content-type'
  | 'host.invalid'
  | 'host.unknown'
  | 'internal'
  | 'json.invalid'
  | 'json.too-much'
  | 'length.missing'
  | 'method.unknown'
  | 'not-ready'
  | 'origin.foreign'
  | 'rate.exceeded'
  | 'rekey.running'
  | 'role.missing'
  | 'route.unknown'
  | 'token.locked'
  | 'token.unknown'
  | 'too-large'
  | 'transfer-encoding';

/** A refusal with its status. */
export class HttpRefusal extends RespoolError {
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
interface HttpRefusalBody {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

/** How long a caller should wait after a 503 that sets no time of its own. */
const RETRY_AFTER_SECONDS = '5';
/** The same after a 507: space has to be freed first. Also in docs/reference/http-api.md. */
const FULL_RETRY_AFTER_SECONDS = '30';
/** An error may quote its input; long input is truncated. */
const TEXT_MAX_CHARS = 1_000;

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
  'transform.missing': 503,
  'limit.exceeded': 400,
  'engine.stopping': 503,
};

/** The answer to whatever was thrown. Only a RespoolError shows its text. */
export function refusedOf(thrown: unknown): HttpRefusalBody {
  if (!isRespoolError(thrown)) return { status: 500, headers: {}, text: INTERNAL };
  const { code } = thrown;
  const message = cut(thrown.message);
  if (thrown instanceof HttpRefusal) {
    const { status, headers, reason } = thrown;
    return { status, headers, text: JSON.stringify({ error: { code, message, reason } }) };
  }
  const status = STATUS[code];
  return {
    status,
    headers: retryAfter(status),
    text: JSON.stringify({ error: { code, message } }),
  };
}

function retryAfter(status: number): Readonly<Record<string, string>> {
  if (status === 503) return { 'retry-after': RETRY_AFTER_SECONDS };
  return status === 507 ? { 'retry-after': FULL_RETRY_AFTER_SECONDS } : {};
}

function cut(text: string): string {
  return text.length <= TEXT_MAX_CHARS ? text : `${text.slice(0, TEXT_MAX_CHARS)}…`;
}

const INTERNAL = JSON.stringify({
  error: {
    code: 'store.unavailable',
    message: 'the request failed inside the service; its log says why',
    reason: 'internal',
  },
});

/** Too many bytes, by their limit. */
export function refuseTooLarge(what: string, maxBytes: number, hint: string): HttpRefusal {
  const text = `cannot accept ${what}: it has more than the allowed ${maxBytes} bytes (${hint})`;
  return new HttpRefusal(413, 'too-large', text, { code: 'limit.exceeded' });
}

/** The service takes nothing new. */
export function stopping(): RespoolError {
  return new RespoolError(
    'engine.stopping',
    'the service is stopping and takes nothing new; send it again in a few seconds',
  );
}
