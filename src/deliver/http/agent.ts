/**
 * agent — the connections of one HTTP handler: kept open, and only to addresses that are allowed.
 *
 * The one file that imports undici; http.ts loads it with the first delivery. A name is resolved
 * once per connection, every address of it is checked, and the socket gets the checked addresses:
 * there is no second look-up that could answer differently.
 */

import { lookup as systemLookup } from 'node:dns/promises';
import { isIP, type LookupFunction } from 'node:net';
import { getCACertificates } from 'node:tls';
import { Agent, buildConnector } from 'undici';
import { AddressRefused, type Resolve } from './destination.ts';
import { followSocket } from './connection-reuse.ts';

/** A machine that does not even take the connection in this time is away. */
const CONNECT_TIMEOUT_MS = 10_000;

/** What an agent needs to know. */
export interface AgentParts {
  /** Sockets to one origin at most. */
  readonly connections: number;
  readonly timeoutMs: number;
  /** Own authorities besides those of the machine, in PEM. */
  readonly ca: string | undefined;
  readonly isAllowed: (hostname: string, port: number) => boolean;
  readonly whyRefused: (address: string) => string | undefined;
  readonly resolve: Resolve | undefined;
}

/** Two ways to the same places. */
export interface Agents {
  /** Its connections are used again. */
  readonly kept: Agent;
  /** Every request has a connection of its own. */
  readonly fresh: Agent;
}

/** Opens nothing yet: connections are made when there is a request for them. */
export function makeAgents(parts: AgentParts): Agents {
  return { kept: makeAgent(parts, 1), fresh: makeAgent(parts, 0) };
}

/** n.b. in undici a pipelining of 0 means that no connection is kept. */
function makeAgent(parts: AgentParts, pipelining: 0 | 1): Agent {
  const { connections, ca } = parts;
  const connectTimeout = Math.min(parts.timeoutMs, CONNECT_TIMEOUT_MS);
  const connectors = new Map<string, buildConnector.connector>();
  return new Agent({
    connections,
    pipelining,
    // One clock for a whole request is kept by the handler.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: (target, callback) => {
      const port = Number(target.port) || (target.protocol === 'https:' ? 443 : 80);
      const key = `${target.hostname} ${port}`;
      const literal = bare(target.hostname);
      const refusal = isIP(literal) === 0 ? undefined : refusalOf(parts, literal, port, [literal]);
      if (refusal !== undefined) return callback(refusal, null);
      let connect = connectors.get(key);
      if (connect === undefined) {
        connect = buildConnector({
          // HTTP/1.1 only: a request that is cut off takes its socket along, and no other one.
          allowH2: false,
          timeout: connectTimeout,
          lookup: checkedLookup(parts, port),
          // Said out loud, because an environment variable can turn the default round.
          rejectUnauthorized: true,
          ...(ca === undefined ? {} : { ca: [...getCACertificates('default'), ca] }),
        });
        connectors.set(key, connect);
      }
      return connect(target, (...made) => {
        if (made[0] === null) followSocket(made[1]);
        callback(...made);
      });
    },
  });
}

function checkedLookup(parts: AgentParts, port: number): LookupFunction {
  const { resolve = resolveBySystem } = parts;
  return (hostname, options, callback) => {
    resolve(hostname).then(
      (found) => {
        const [first] = found;
        const addresses = found.map(({ address }) => address);
        const refusal = refusalOf(parts, hostname, port, addresses);
        if (refusal !== undefined) return callback(refusal, '');
        if (first === undefined) return callback(noAddress(hostname), '');
        if (options.all === true) return callback(null, [...found]);
        return callback(null, first.address, first.family);
      },
      (error: NodeJS.ErrnoException) => callback(error, ''),
    );
  };
}

function noAddress(hostname: string): Error {
  return Object.assign(new Error(`"${hostname}" has no address`), { code: 'ENOTFOUND' });
}

const resolveBySystem: Resolve = (hostname) => systemLookup(hostname, { all: true });

/** The refusal when one of the addresses is not allowed: which one is taken is not ours to say. */
function refusalOf(
  { isAllowed, whyRefused }: AgentParts,
  hostname: string,
  port: number,
  addresses: readonly string[],
): AddressRefused | undefined {
  if (isAllowed(hostname, port)) return undefined;
  for (const address of addresses) {
    const why = whyRefused(address);
    if (why !== undefined) return new AddressRefused(hostname, address, why);
  }
  return undefined;
}

function bare(hostname: string): string {
  return hostname.replace(/^\[(.*)\]$/, '$1');
}
