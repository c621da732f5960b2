/**
 * obtain — how to come by a server: what is installed, else apt-get as root, else docker, else a
 * sentence that says what to do. A URL in the environment comes before all of it (words.ts).
 */

import { installPackages } from './apt.ts';
import { startContainer } from './docker.ts';
import type { Machine } from './machine.ts';
import type { Programs, Recipe } from './recipe.ts';
import type { Server, Site } from './server.ts';
import { VARIABLES } from './words.ts';

/** What the caller is told while it takes long. */
export type Tell = (news: string) => void;

/** The ways to a server; tests put others in their place. */
export interface Ways {
  readonly install: (machine: Machine, packages: readonly string[]) => Promise<void>;
  readonly contain: typeof startContainer;
}

const WAYS: Ways = { install: installPackages, contain: startContainer };
/** Somebody else may be quicker at a port that was free; on new ports it gets another chance. */
const STARTS_MAX = 2;

/** Starts a server in the first way that works. */
export async function obtain(
  recipe: Recipe,
  makeSite: () => Promise<Site>,
  { machine, tell, ways = WAYS }: { machine: Machine; tell: Tell; ways?: Ways },
): Promise<Server> {
  const troubles: string[] = [];
  const programs = await programsOf(recipe, { machine, tell, ways, troubles });
  if (programs !== undefined) return startSoon(recipe, programs, makeSite, machine);
  if (recipe.docker === undefined) troubles.push('there is no image for docker that fits');
  else {
    const server = await ways.contain(recipe.docker, await makeSite(), { machine, tell });
    if (typeof server !== 'string') return server;
    troubles.push(server);
  }
  throw new Error(
    `cannot start ${recipe.name} for the tests: ${troubles.join('; ')}. ` +
      `Install ${recipe.packages.join(' ')}, or set ${VARIABLES[recipe.name]}, ` +
      `or set RESPOOL_TEST_SKIP=${recipe.name} to go without`,
  );
}

async function programsOf(
  recipe: Recipe,
  {
    machine,
    tell,
    ways,
    troubles,
  }: { machine: Machine; tell: Tell; ways: Ways; troubles: string[] },
): Promise<Programs | undefined> {
  const found = recipe.find(machine);
  if (recipe.fetch !== undefined) {
    try {
      return await recipe.fetch(machine);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      const rest = typeof found === 'string' ? '' : '; using the installed one instead';
      tell(`cannot get a newer ${recipe.name}: ${reason}${rest}`);
    }
  }
  if (typeof found !== 'string') return found;
  troubles.push(`"${found}" is not installed`);
  if (!machine.hasApt) return undefined;
  if (!machine.isRoot) {
    troubles.push('only root can install it with apt-get');
    return undefined;
  }
  try {
    tell(`installing ${recipe.packages.join(' ')} with apt-get`);
    await ways.install(machine, recipe.packages);
  } catch (error) {
    troubles.push(error instanceof Error ? error.message : String(error));
    return undefined;
  }
  const installed = recipe.find(machine);
  if (typeof installed !== 'string') return installed;
  troubles.push(`apt-get did not bring "${installed}"`);
  return undefined;
}

async function startSoon(
  recipe: Recipe,
  programs: Programs,
  makeSite: () => Promise<Site>,
  machine: Machine,
): Promise<Server> {
  for (let left = STARTS_MAX - 1; ; left -= 1) {
    try {
      return await recipe.start(programs, await makeSite(), machine);
    } catch (error) {
      if (left === 0) throw error;
    }
  }
}
