/**
 * errors — what an answer of an S3 server means for the caller.
 *
 * Promise: only what a person has to change is `config.invalid`; what may pass is
 * `store.unavailable`, and costs a message no attempt.
 */

import { isRespoolError, RespoolError, textOf } from '../../core/errors.ts';

/** What is wrong, and what to do. */
type Words = readonly [pattern: RegExp, wrong: string, todo: string];

const CONFIG: readonly Words[] = [
  [/^NoSuchBucket$/, 'there is no such bucket', 'make it, or set createBucket: true'],
  [
    /^(?:InvalidAccessKeyId|SignatureDoesNotMatch|AuthorizationHeaderMalformed|InvalidSecurity)$/,
    'the server does not accept the keys',
    'check credentials and region',
  ],
  [
    /^(?:ExpiredToken|TokenRefreshRequired|InvalidToken|CredentialsProviderError)$/,
    'there are no keys that are valid now',
    'renew the credentials',
  ],
  [/^RequestTimeTooSkewed$/, 'the clock of this machine is wrong', 'set it by NTP'],
  [
    /^(?:PermanentRedirect|IllegalLocationConstraintException|MovedPermanently)$/,
    'the bucket is in another region',
    'set region to the one of the bucket',
  ],
  [
    /^InvalidObjectState$/,
    'the body is in an archive storage class',
    'restore it, and keep bodies out of there',
  ],
  [/^InvalidStorageClass$/, 'the server has no such storage class', 'choose another storageClass'],
  [
    /^(?:InvalidBucketName|MethodNotAllowed)$/,
    'the server refuses that',
    'check bucket and endpoint',
  ],
];

const FULL =
  /^(?:QuotaExceeded|InsufficientStorage|XMinioStorageFull|ServiceQuotaExceededException)$/;

/** The error code of the server, the package or Node; '' if there is none. */
export function codeOf(error: unknown): string {
  for (const key of ['Code', 'code', 'name'] as const) {
    const found = read(error, key);
    // A bare status, as a request without a body in its answer has.
    if (typeof found === 'string' && found !== 'Error' && found !== 'Unknown') return found;
  }
  return '';
}

/** The HTTP status of an answer; 0 where there was none. */
export function statusOf(error: unknown): number {
  const status = read(read(error, '$metadata'), 'httpStatusCode');
  return typeof status === 'number' ? status : 0;
}

/** Whether the server says that there is no such object. */
export function isMissing(error: unknown): boolean {
  return statusOf(error) === 404 && !/^NoSuch(?:Bucket|Upload)$/.test(codeOf(error));
}

/** Whether a condition on a write did not hold: there is an object already. */
export function isConditionFailed(error: unknown): boolean {
  // n.b. Some servers answered 304, which is for reads.
  return statusOf(error) === 412 || statusOf(error) === 304;
}

/** Whether another write to the same key was on its way. */
export function isConflict(error: unknown): boolean {
  return statusOf(error) === 409 && codeOf(error) !== 'NoSuchBucket';
}

/** Whether the server cannot do that at all. */
export function isUnsupported(error: unknown): boolean {
  const code = codeOf(error);
  return (
    statusOf(error) === 501 ||
    /^(?:NotImplemented|MissingContentMD5|UnsupportedOperation|XNotImplemented)$/.test(code) ||
    ([400, 405].includes(statusOf(error)) &&
      /^(?:InvalidRequest|InvalidArgument|MethodNotAllowed|InvalidDigest|BadRequest)$/.test(code))
  );
}

/** Whether we are not allowed to do that. */
export function isForbidden(error: unknown): boolean {
  return statusOf(error) === 403;
}

/** Turns a failed request into the error for the caller; a RespoolError passes unchanged. */
export function storeError(doing: string, error: unknown): RespoolError {
  if (isRespoolError(error)) return error;
  const code = codeOf(error);
  const said =
    code === '' || textOf(error).includes(code) ? textOf(error) : `${code}: ${textOf(error)}`;
  const refuse =
    (kind: 'config.invalid' | 'store.full' | 'limit.exceeded' | 'store.unavailable') =>
    (wrong: string, todo: string): RespoolError =>
      new RespoolError(kind, `cannot ${doing}: ${wrong} (${said}); ${todo}`, { cause: error });
  const [, wrong, todo] = CONFIG.find(([pattern]) => pattern.test(code)) ?? [];
  if (wrong !== undefined && todo !== undefined) return refuse('config.invalid')(wrong, todo);
  if (FULL.test(code) || statusOf(error) === 507) {
    return refuse('store.full')('there is no room left', 'raise the quota or make room');
  }
  if (code === 'EntityTooLarge') {
    return refuse('limit.exceeded')('the server takes no body this large', 'raise partBytes');
  }
  if (isForbidden(error)) {
    return refuse('config.invalid')('the keys do not allow that', RIGHTS);
  }
  if (statusOf(error) === 301) {
    return refuse('config.invalid')('the bucket is in another region', 'set region to its own');
  }
  const isBusy = /^(?:SlowDown|Throttling|TooManyRequests|RequestLimitExceeded)/.test(code);
  return refuse('store.unavailable')(
    isBusy ? 'the server asks us to slow down' : 'the server does not answer as it should',
    isBusy ? 'it is tried again later' : 'check the endpoint and the network',
  );
}

const RIGHTS =
  'allow s3:GetObject, PutObject, DeleteObject, AbortMultipartUpload below the prefix and ' +
  's3:ListBucket, ListBucketMultipartUploads on the bucket';

function read(from: unknown, key: string): unknown {
  return typeof from === 'object' && from !== null ? Reflect.get(from, key) : undefined;
}
