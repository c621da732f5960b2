/** network-error — a request without a response, as a failure. Always tried again. */

import { asError, textOf } from '../../core/errors.ts';
import { type Failure, failure } from '../../core/failure.ts';
import { plainText } from '../plain-text.ts';

const REASON_MAX_CHARS = 200;

/** The first that fits decides; codes of Node, of OpenSSL and of undici. */
const CODES: readonly (readonly [RegExp, string])[] = [
  [
    /^(?:UND_ERR_CONNECT_TIMEOUT|ETIMEDOUT|ECONNREFUSED|EHOST|ENET|EADDR|EAI_|E?NOTFOUND|ENODATA)/,
    'http.unreachable',
  ],
  [
    /^(?:ECONNRESET|ECONNABORTED|EPIPE|UND_ERR_SOCKET|UND_ERR_CLOSED|UND_ERR_DESTROYED)/,
    'http.reset',
  ],
  [/^(?:ERR_TLS|ERR_SSL|EPROTO|CERT_|UNABLE_TO_|HOSTNAME_)|SELF_SIGNED|_CERT|_CRL/, 'http.tls'],
  [/^(?:HPE_|UND_ERR_HEADERS_OVERFLOW|UND_ERR_RES)/, 'http.protocol'],
];

/** The failure behind an error of the network; `host` is named, the rest of the URL is not. */
export function networkFailure(
  thrown: unknown,
  host: string,
  hide: (text: string) => string,
): Failure {
  const error = innermost(asError(thrown));
  const own = (error as { code?: unknown }).code;
  const text = typeof own === 'string' ? own : '';
  // n.b. the parser's errors have no code of their own in every release of undici; and an answer
  // that nobody asked for, such as "100 Continue", has the code of a broken socket.
  const isUnasked = text === 'UND_ERR_SOCKET' && /^bad (?:response|upgrade)$/.test(error.message);
  const isParser = text === '' && error.name === 'HTTPParserError';
  const mark = isParser || isUnasked ? 'HPE_' : text;
  const code = CODES.find(([pattern]) => pattern.test(mark))?.[1] ?? 'http.error';
  const said = plainText(hide(textOf(error)), REASON_MAX_CHARS);
  const aside = text === '' || said.includes(text) ? '' : ` (${text})`;
  return failure('transient', code, `no answer from ${host}: ${said}${aside}`);
}

/** Several addresses were tried and each has its error: the first one is told. */
function innermost(error: Error): Error {
  const first: unknown = error instanceof AggregateError ? error.errors[0] : undefined;
  return first === undefined ? error : asError(first);
}
