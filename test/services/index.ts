/**
 * services — real servers for tests, by name.
 *
 *   withService('postgres', (url) => { test('…', async () => connect(url())) });
 *   const server = await privateServer('nats');   // to kill, freeze and restart
 *
 * A server that cannot be had is a failure of the test, unless RESPOOL_TEST_SKIP names it.
 */

import { beforeAll, describe } from 'vitest';
import { connectKeeper, type Link } from '../../scripts/services/link.ts';
import type { Act, OwnedServer } from '../../scripts/services/protocol.ts';
import type { Operator } from '../../scripts/services/server.ts';
import {
  givenUrl,
  type ServerName,
  type ServiceName,
  serverOf,
  SKIP_VARIABLE,
  skippedNames,
} from '../../scripts/services/words.ts';
import { BROKER_VARIABLE } from './broker.ts';

/** Downloads included: a machine may have to install the server first. */
const START_TIMEOUT_MS = 15 * 60_000;

/** The URL of a shared server, started on the first ask; tests keep apart by names of their own. */
export async function service(name: ServiceName): Promise<string> {
  const reason = skipReason(name);
  if (reason !== undefined) throw new Error(`cannot use ${name}: ${reason}`);
  const given = givenUrl(name, process.env);
  if (given !== undefined) return given;
  return (await (await broker()).ask({ kind: 'url', service: name }, tell)) as string;
}

/** Why the tests of a service are to be skipped, if they are. */
export function skipReason(name: ServiceName): string | undefined {
  if (!skippedNames(process.env).has(serverOf(name))) return undefined;
  return `${SKIP_VARIABLE} names ${serverOf(name)}`;
}

/** Tests that need a service; `url()` is its URL while they run. Skipped where it is to be. */
export function withService(name: ServiceName, tests: (url: () => string) => void): void {
  const reason = skipReason(name);
  if (reason !== undefined) {
    describe.skip(`with ${name} (skipped: ${reason})`, () => tests(() => ''));
    return;
  }
  describe(`with ${name}`, () => {
    let url = '';
    beforeAll(async () => {
      url = await service(name);
    }, START_TIMEOUT_MS);
    tests(() => url);
  });
}

/** A server of one test file, to be treated badly. */
export interface PrivateServer extends AsyncDisposable {
  readonly url: string;
  /** The second door of RabbitMQ. */
  readonly managementUrl: string | undefined;
  /** How to call `rabbitmqctl`; undefined for one in a container. */
  readonly operator: Operator | undefined;
  /** A crash: PostgreSQL in its mode "immediate", others and with 'SIGKILL' all by that signal. */
  kill(how?: 'SIGKILL'): Promise<void>;
  /** SIGSTOP to all its processes: connections stay, nothing answers. */
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  /** Up again on the same port with the same data; ready when it resolves. */
  restart(): Promise<void>;
  /** Ends it; also happens when the test file ends. */
  stop(): Promise<void>;
}

/** Starts a server that belongs to this test file; `env` picks another binary, say. */
export async function privateServer(
  name: ServerName,
  { env = {} }: { readonly env?: Readonly<Record<string, string>> } = {},
): Promise<PrivateServer> {
  const link = await broker();
  const started = (await link.ask({ kind: 'private', server: name, env }, tell)) as OwnedServer;
  const { handle, urls, operator } = started;
  const act = async (what: Act): Promise<void> => {
    await link.ask({ kind: 'act', handle, act: what });
  };
  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> => (stopped ??= act('stop'));
  return {
    url: urls[name] ?? '',
    managementUrl: urls['rabbitmq-management'],
    operator,
    kill: (how) => act(how === 'SIGKILL' ? 'kill -9' : 'kill'),
    freeze: () => act('freeze'),
    thaw: () => act('thaw'),
    restart: () => act('restart'),
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

let connected: Promise<Link> | undefined;

/** Ends what was started for a test file; its process goes on with the next one. */
export async function leaveServers(): Promise<void> {
  const link = connected;
  connected = undefined;
  (await link)?.close();
}

/** One connection for a test file: what is started over it ends with it. */
function broker(): Promise<Link> {
  const door = process.env[BROKER_VARIABLE];
  if (door === undefined) {
    throw new Error('cannot ask for a server: the tests have to be run by vitest of this project');
  }
  connected ??= connectKeeper(door);
  return connected;
}

function tell(news: string): void {
  process.stderr.write(`test servers: ${news}\n`);
}
