/**
 * debian-suite — a program of a newer Debian than the one that runs here, without installing it.
 *
 * apt-get downloads the package with lists of its own and checks its signature as always; dpkg-deb
 * unpacks it into a cache of the user. Nothing of the system changes, root is not needed. One run
 * at a time: the others wait for its lock and find the program there.
 */

import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { isProgram, type Machine } from './machine.ts';

/** Which package, and what is wanted of it. */
export interface SuitePackage {
  /** Such as `trixie`. */
  readonly suite: string;
  readonly name: string;
  /** The path of the program in the package. */
  readonly program: string;
}

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';
const MIRROR = 'http://deb.debian.org/debian';
/** Where the mirror of this machine is written down. */
const SOURCES = ['/etc/apt/sources.list.d/debian.sources', '/etc/apt/sources.list'] as const;
const DOWNLOAD_TIMEOUT_MS = 10 * 60_000;

/** The folder appears whole, by a rename, or not at all. */
const SCRIPT = `set -eu
[ ! -x "$TARGET/$PROGRAM" ] || exit 0
part="$TARGET.part"
rm -rf "$part" "$TARGET"
trap 'rm -rf "$part"' EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$part/apt/lists/partial" "$part/apt/cache/archives/partial" "$part/apt/sources"
printf 'Types: deb\\nURIs: %s\\nSuites: %s\\nComponents: main\\nSigned-By: %s\\n' \\
  "$MIRROR" "$SUITE" "$KEYRING" >"$part/apt/sources/debian.sources"
cd "$part"
ask() {
  apt-get -q -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$part/apt/sources" \\
    -o "Dir::State::lists=$part/apt/lists" -o "Dir::Cache=$part/apt/cache" \\
    -o "APT::Sandbox::User=$(id -un)" -o Acquire::Languages=none -o Acquire::Retries=3 \\
    -o Acquire::http::Timeout=20 "$@" >&2
}
ask -o APT::Update::Error-Mode=any update
ask download "$PACKAGE"
dpkg-deb -x ./*.deb "$part/root"
[ -x "$part/root/$PROGRAM" ] || { echo "the package has no $PROGRAM" >&2; exit 1; }
mv "$part/root" "$TARGET"
`;

/** What could not be downloaded is not tried again by this process: each try may take minutes. */
const failures = new Map<string, Error>();

/** Where the program lies, once it was downloaded. */
function suiteProgram(machine: Machine, wanted: SuitePackage): string | undefined {
  const file = path.join(targetOf(machine, wanted), wanted.program);
  return isProgram(file) ? file : undefined;
}

/** Downloads the program unless it is there; rejects with what was in the way. */
export async function fetchSuiteProgram(machine: Machine, wanted: SuitePackage): Promise<string> {
  const there = suiteProgram(machine, wanted);
  if (there !== undefined) return there;
  const target = targetOf(machine, wanted);
  const failure = failures.get(target);
  if (failure !== undefined) throw failure;
  try {
    await download(machine, wanted, target);
  } catch (error) {
    failures.set(target, error as Error);
    throw error;
  }
  return path.join(target, wanted.program);
}

async function download(
  machine: Machine,
  { suite, name, program }: SuitePackage,
  target: string,
): Promise<void> {
  if (!machine.hasApt) throw new Error('there is no apt-get');
  if (!existsSync(KEYRING)) throw new Error(`there is no ${KEYRING}`);
  mkdirSync(path.dirname(target), { recursive: true, mode: 0o700 });
  const names = { TARGET: target, SUITE: suite, PACKAGE: name, PROGRAM: program };
  await machine.run('flock', [`${target}.lock`, 'sh', '-c', SCRIPT], {
    env: { ...machine.env, ...names, MIRROR: mirror(), KEYRING },
    timeoutMs: DOWNLOAD_TIMEOUT_MS,
  });
}

function targetOf({ env }: Machine, { suite, name }: SuitePackage): string {
  const cache = env['XDG_CACHE_HOME'] || path.join(env['HOME'] || homedir(), '.cache');
  return path.join(cache, 'respool-test-servers', `${name}-${suite}`);
}

/** The mirror that this machine uses, which may be the only one it reaches. */
function mirror(): string {
  for (const file of SOURCES) {
    if (!existsSync(file)) continue;
    const text = readFileSync(file, 'utf8');
    const found = /^(?:URIs:|deb)\s(?:.*\s)?(https?:\/\/\S+\/debian)\/?(?:\s|$)/m.exec(text)?.[1];
    if (found !== undefined) return found;
  }
  return MIRROR;
}
