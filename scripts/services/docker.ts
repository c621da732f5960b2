/**
 * docker — a server as a container, where an engine answers. Its ports are on loopback only.
 */

import { randomBytes } from 'node:crypto';
import type { Machine } from './machine.ts';
import { untilReady } from './processes.ts';
import type { DockerPlan } from './recipe.ts';
import type { Server, Site } from './server.ts';

const ASK_TIMEOUT_MS = 5_000;
const PULL_TIMEOUT_MS = 10 * 60_000;
const READY_TIMEOUT_MS = 60_000;

/** Starts a container; a sentence, where no engine answers. */
export async function startContainer(
  plan: DockerPlan,
  site: Site,
  { machine, tell }: { readonly machine: Machine; readonly tell: (news: string) => void },
): Promise<Server | string> {
  const docker = machine.find('docker');
  if (docker === undefined) return 'docker is not installed';
  const call = (timeoutMs: number, ...args: readonly string[]): Promise<string> =>
    machine.run(docker, args, { timeoutMs });
  try {
    await call(ASK_TIMEOUT_MS, 'version', '--format', '{{.Server.Version}}');
  } catch {
    return 'no docker engine answers';
  }
  tell(`starting ${plan.image} with docker`);
  const name = `respool-test-${randomBytes(6).toString('hex')}`;
  site.ledger.addContainer(name);
  await call(PULL_TIMEOUT_MS, 'run', '--detach', '--name', name, ...runArgs(plan));
  const remove = async (): Promise<void> => {
    await call(PULL_TIMEOUT_MS, 'rm', '--force', '--volumes', name);
  };
  try {
    const ports = await portsOf(plan, (port) => call(ASK_TIMEOUT_MS, 'port', name, `${port}/tcp`));
    const ready = (): Promise<void> =>
      untilReady(plan.image, () => plan.isReady(ports), {
        logFile: site.dir,
        timeoutMs: READY_TIMEOUT_MS,
      });
    await ready();
    return {
      urls: plan.urls(ports),
      kill: async () => void (await call(ASK_TIMEOUT_MS, 'kill', name)),
      freeze: async () => void (await call(ASK_TIMEOUT_MS, 'pause', name)),
      thaw: async () => void (await call(ASK_TIMEOUT_MS, 'unpause', name)),
      async restart() {
        await call(READY_TIMEOUT_MS, 'restart', '--time', '1', name);
        await ready();
      },
      stop: remove,
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** The environment of the container is not a secret: its ports are on loopback. */
function runArgs({ image, env = {}, ports, args = [] }: DockerPlan): readonly string[] {
  return [
    ...Object.entries(env).flatMap(([name, value]) => ['--env', `${name}=${value}`]),
    ...ports.flatMap((port) => ['--publish', `127.0.0.1::${port}`]),
    image,
    ...args,
  ];
}

async function portsOf(
  { ports }: DockerPlan,
  ask: (port: number) => Promise<string>,
): Promise<readonly number[]> {
  const found: number[] = [];
  for (const port of ports) found.push(Number((await ask(port)).trim().split(':').at(-1)));
  return found;
}
