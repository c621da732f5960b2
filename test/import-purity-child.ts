/**
 * import-purity-child — import one module in a fresh process and say what that did.
 *
 * import-purity.test.ts runs it as `node … import-purity-child.ts <specifier>`.
 * Promise: it never ends itself, so a handle left open by the import keeps it alive.
 */
import { registerHooks } from 'node:module';

export interface Inspection {
  /** Every npm package that was asked for, installed or not. */
  readonly packages: readonly string[];
  /** How many files were loaded. */
  readonly files: number;
  readonly resources: readonly string[];
  readonly globals: readonly string[];
  readonly listeners: readonly string[];
}

const [specifier] = process.argv.slice(2);
if (specifier === undefined) throw new Error('usage: import-purity-child.ts <specifier>');
process.stdout.write(JSON.stringify(await inspect(specifier)));

async function inspect(target: string): Promise<Inspection> {
  const packages = new Set<string>();
  let files = 0;
  registerHooks({
    load(url, context, nextLoad) {
      if (url.startsWith('file:')) files += 1;
      return nextLoad(url, context);
    },
    resolve(request, context, nextResolve) {
      if (request !== target && /^(?:@[\w.-]+\/)?\w[\w.-]*(?:\/|$)/.test(request))
        packages.add(request);
      return nextResolve(request, context);
    },
  });
  // Node's own assert opens the pipe of stderr to see whether it has colours; that is not ours.
  await import('node:assert');
  const before = observe();
  await import(target);
  const after = observe();
  return {
    packages: [...packages],
    files,
    resources: added(before.resources, after.resources),
    globals: added(before.globals, after.globals),
    listeners: added(before.listeners, after.listeners),
  };
}

function observe(): Omit<Inspection, 'packages' | 'files'> {
  return {
    resources: process.getActiveResourcesInfo(),
    globals: Reflect.ownKeys(globalThis).map(String),
    listeners: process.eventNames().map((name) => `${String(name)} ${process.listenerCount(name)}`),
  };
}

function added(before: readonly string[], after: readonly string[]): string[] {
  const rest = [...before];
  return after.filter((item) => {
    const index = rest.indexOf(item);
    if (index !== -1) rest.splice(index, 1);
    return index === -1;
  });
}
