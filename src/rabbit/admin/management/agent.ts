/** agent — the one file of the room that imports undici; loaded with the first question. */

import { Agent } from 'undici';
import type { TlsOptions } from '../../connection/connection.ts';

/** Pages are asked for one after the other; a few callers may ask side by side. */
const CONNECTIONS_MAX = 4;

/** How it connects. */
interface AgentOptions {
  readonly tls: TlsOptions;
  readonly timeoutMs: number;
}

export function makeAgent({ tls, timeoutMs }: AgentOptions): Agent {
  return new Agent({
    connections: CONNECTIONS_MAX,
    // One limit over the whole of a question is enough; ours is exact, theirs is by the second.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: {
      timeout: timeoutMs,
      ...tls,
      // Node wants a list that it could change.
      ...(Array.isArray(tls.ca) ? { ca: [...(tls.ca as (string | Buffer)[])] } : {}),
    } as Agent.Options['connect'] & object,
  });
}
