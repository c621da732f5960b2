/**
 * test-rabbit4 — the tests of RabbitMQ against a 4.x: `npm run test:rabbit4 [more for vitest]`.
 *
 *   RESPOOL_TEST_AMQP_URL       one that runs; RESPOOL_TEST_AMQP_MANAGEMENT_URL is its second door
 *   RESPOOL_TEST_RABBITMQ_BIN   the folder of a rabbitmq-server; without it, the installed one
 *   docker                      where an engine answers; n.b. tests that kill their own broker then
 *                               still use the installed one
 *
 * n.b. What differs there for dead letters: from 4.0 to 4.2 a quorum queue without a limit of its
 * own drops a message after 20 looks, so that nothing looks into it. A test that is about something
 * else declares its quorum queues with `x-delivery-limit` of 1,000,000, as our own dead queues are.
 */

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { connectAmqp } from '../src/rabbit/connection/connection.ts';
import { connectKeeper, startKeeper } from './services/link.ts';
import { thisMachine } from './services/machine.ts';
import { untilReady } from './services/processes.ts';
import { givenUrl, VARIABLES } from './services/words.ts';

const TESTS = ['test/rabbit/', 'test/cli/rabbit', 'test/cli/dlq', 'test/middleware/rabbit'];
const IMAGE = 'rabbitmq:4-management';
const WANTED_MAJOR = 4;
const ASK_TIMEOUT_MS = 5_000;
const PULL_TIMEOUT_MS = 10 * 60_000;
const READY_TIMEOUT_MS = 60_000;

/** Variables that lead the tests to a 4.x, and how to end what was started for them. */
interface Found {
  readonly env: Readonly<Record<string, string>>;
  readonly version: string;
  readonly end?: () => Promise<unknown>;
}

process.exitCode = await main(process.argv.slice(2));

async function main(more: readonly string[]): Promise<number> {
  const troubles: string[] = [];
  const found =
    (await given(troubles)) ?? (await installed(troubles)) ?? (await contained(troubles));
  if (found === undefined) {
    process.stderr.write(
      `no RabbitMQ ${WANTED_MAJOR} is here (${troubles.join('; ')}): set ` +
        'RESPOOL_TEST_RABBITMQ_BIN to the folder of its rabbitmq-server, set ' +
        `${VARIABLES.rabbitmq} and ${VARIABLES['rabbitmq-management']} to one that runs, or ` +
        'start a docker engine\n',
    );
    return 1;
  }
  process.stdout.write(`testing against RabbitMQ ${found.version}\n`);
  try {
    return await vitest(found.env, more);
  } finally {
    await found.end?.();
  }
}

/** One that somebody named. */
async function given(troubles: string[]): Promise<Found | undefined> {
  const url = givenUrl('rabbitmq', process.env);
  if (url === undefined) return undefined;
  if (givenUrl('rabbitmq-management', process.env) === undefined) {
    // Tests would ask the management API of another broker.
    troubles.push(`${VARIABLES['rabbitmq-management']} is not set`);
    return undefined;
  }
  try {
    return ofVersion(await versionAt(url), VARIABLES.rabbitmq, troubles);
  } catch (error) {
    troubles.push(error instanceof Error ? error.message : String(error));
    return undefined;
  }
}

/** The one that tests start by themselves: looked at once, then theirs. */
async function installed(troubles: string[]): Promise<Found | undefined> {
  // Anyone who named a broker means that one.
  if (troubles.length > 0) return undefined;
  const keeper = await startKeeper('owned');
  try {
    const link = await connectKeeper(keeper.door);
    const tell = (news: string): void => void process.stdout.write(`${news}\n`);
    const url = (await link.ask({ kind: 'url', service: 'rabbitmq' }, tell)) as string;
    const version = await versionAt(url);
    link.close();
    return ofVersion(version, 'the installed one', troubles);
  } catch (error) {
    troubles.push(error instanceof Error ? error.message : String(error));
    return undefined;
  } finally {
    await keeper.end();
  }
}

/** A container of our own. */
async function contained(troubles: string[]): Promise<Found | undefined> {
  if (givenUrl('rabbitmq', process.env) !== undefined) return undefined;
  const machine = thisMachine();
  const docker = machine.find('docker') ?? 'docker';
  const call = (timeoutMs: number, ...args: readonly string[]): Promise<string> =>
    machine.run(docker, args, { timeoutMs });
  try {
    await call(ASK_TIMEOUT_MS, 'version', '--format', '{{.Server.Version}}');
  } catch {
    troubles.push('no docker engine answers');
    return undefined;
  }
  const name = `respool-test-${randomBytes(6).toString('hex')}`;
  const ports = ['127.0.0.1::5672', '127.0.0.1::15672'].flatMap((port) => ['--publish', port]);
  const user = ['RABBITMQ_DEFAULT_USER=respool', 'RABBITMQ_DEFAULT_PASS=respool'];
  const envs = user.flatMap((one) => ['--env', one]);
  await call(PULL_TIMEOUT_MS, 'run', '--detach', '--name', name, ...ports, ...envs, IMAGE);
  const end = (): Promise<unknown> => call(PULL_TIMEOUT_MS, 'rm', '--force', '--volumes', name);
  try {
    const portOf = async (port: number): Promise<string> =>
      (await call(ASK_TIMEOUT_MS, 'port', name, `${port}/tcp`)).trim().replace(/^.*:/s, '');
    const url = `amqp://respool:respool@127.0.0.1:${await portOf(5672)}`;
    const management = `http://respool:respool@127.0.0.1:${await portOf(15_672)}`;
    const isReady = (): Promise<boolean> => versionAt(url).then(Boolean, () => false);
    await untilReady(IMAGE, isReady, { logFile: name, timeoutMs: READY_TIMEOUT_MS });
    const version = await versionAt(url);
    const env = { [VARIABLES.rabbitmq]: url, [VARIABLES['rabbitmq-management']]: management };
    return { env, version, end };
  } catch (error) {
    await end();
    throw error;
  }
}

function ofVersion(version: string, whose: string, troubles: string[]): Found | undefined {
  if (Number.parseInt(version, 10) >= WANTED_MAJOR) return { env: {}, version };
  troubles.push(`${whose} is ${version}`);
  return undefined;
}

async function versionAt(url: string): Promise<string> {
  const connection = await connectAmqp(url);
  const { version } = connection.connection?.serverProperties ?? {};
  await connection.close();
  return String(version);
}

function vitest(env: Found['env'], more: readonly string[]): Promise<number> {
  const child = spawn('vitest', ['run', ...TESTS, ...more], {
    stdio: 'inherit',
    env: { ...process.env, ...env },
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => resolve(code ?? 1));
  });
}
