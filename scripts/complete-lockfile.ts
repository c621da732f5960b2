/**
 * complete-lockfile — name in package-lock.json the builds for platforms our registry did not offer.
 *
 * Run it after every `npm install <package>`, as `npm run lockfile`.
 * A registry mirror may lack the builds for other platforms. `npm install` then leaves them out
 * of the lockfile, and `npm ci` rejects that lockfile (https://github.com/npm/cli/issues/9846).
 * Promise: each is added with its exact version and its platform; nothing else changes.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

interface LockedPackage {
  readonly version?: string;
  readonly dev?: boolean;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

interface Lockfile {
  packages: Record<string, LockedPackage>;
}

const OPERATING_SYSTEMS =
  /(?:^|[-/])(android|darwin|freebsd|linux|netbsd|openbsd|openharmony|sunos|win32|aix)(?=-|$)/;
const PROCESSORS =
  /-(arm64|arm|ia32|loong64|loongarch64|mips64el|ppc64|riscv64|s390x|wasm32|x64)(?=-|$)/;

const lockfilePath = path.join(import.meta.dirname, '../package-lock.json');
const lockfile = JSON.parse(readFileSync(lockfilePath, 'utf8')) as Lockfile;
const missing = Object.values(lockfile.packages).flatMap(missingBuilds);
// npm sorts by locale as well; any other order would be a large difference at the next install.
lockfile.packages = Object.fromEntries(
  [...Object.entries(lockfile.packages), ...missing].sort(([a], [b]) => a.localeCompare(b, 'en')),
);
writeFileSync(lockfilePath, `${JSON.stringify(lockfile, null, 2)}\n`);
process.stdout.write(`${missing.length} builds for other platforms added to package-lock.json\n`);

function missingBuilds(parent: LockedPackage): [string, LockedPackage][] {
  return Object.entries(parent.optionalDependencies ?? {})
    .filter(([name]) => lockfile.packages[`node_modules/${name}`] === undefined)
    .map(([name, version]) => {
      if (!/^\d+\.\d+\.\d+/.test(version)) {
        throw new Error(`cannot lock "${name}": "${version}" is not one exact version`);
      }
      const dev = parent.dev === true ? { dev: true } : {};
      return [`node_modules/${name}`, { version, ...dev, optional: true, ...platformOf(name) }];
    });
}

function platformOf(name: string): { os?: string[]; cpu?: string[]; libc?: string[] } {
  const os = OPERATING_SYSTEMS.exec(name)?.[1];
  const cpu = PROCESSORS.exec(name)?.[1];
  const libc = /-musl/.test(name) ? 'musl' : /-gnu/.test(name) ? 'glibc' : undefined;
  if (os === undefined && cpu === undefined) {
    throw new Error(`cannot lock "${name}": its name does not tell its platform`);
  }
  return {
    ...(os === undefined ? {} : { os: [os] }),
    ...(cpu === undefined ? {} : { cpu: [cpu] }),
    ...(libc === undefined ? {} : { libc: [libc] }),
  };
}
