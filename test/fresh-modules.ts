/**
 * fresh-modules — what every test file begins and ends with: vitest runs it before each.
 *
 * A worker runs many files, because to start one costs a fifth of a second of CPU. Promise: a file
 * finds no state of the one before, as if its process were its own. Modules are loaded anew;
 * environment, globals and servers are as they were. What packages in node_modules/ keep stays.
 */
import { afterAll, vi } from 'vitest';

vi.resetModules();
// Not above: it has to be the module that the tests of this file get.
const { leaveServers } = await import('./services/index.ts');
const before = { ...process.env };

afterAll(async () => {
  await leaveServers();
  vi.unstubAllGlobals();
  vi.unstubAllEnvs();
  for (const name of Object.keys(process.env)) {
    if (before[name] === undefined) delete process.env[name];
  }
  Object.assign(process.env, before);
});
