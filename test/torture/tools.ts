/**
 * tools — the programs of the system that the fault tests need: present, installed, or said to be
 * missing in one sentence.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

export const run = promisify(execFile);

/** A program, and the Debian package it comes in. */
const PACKAGES = { strace: 'strace', 'mkfs.ext4': 'e2fsprogs', mount: 'mount' } as const;

export type Tool = keyof typeof PACKAGES;

/** Whether we may mount, and trace what others started. */
const isRoot: boolean = process.getuid?.() === 0;

/**
 * Makes sure that the tool can be used; otherwise why a test that needs it is skipped. Throws when
 * it is missing and nobody allowed that: a fault test must not go away silently.
 */
export async function lacking(tool: Tool): Promise<string | undefined> {
  if (await isThere(tool)) return undefined;
  if (skipped().includes(tool)) return `RESPOOL_TEST_SKIP names ${tool}`;
  if (isRoot) await install(PACKAGES[tool]);
  if (await isThere(tool)) return undefined;
  throw new Error(
    `this test needs the program "${tool}"; run: apt-get install ${PACKAGES[tool]} ` +
      `(or leave such tests out with RESPOOL_TEST_SKIP=${tool})`,
  );
}

/** Why a test that mounts is skipped, if it is. */
export async function cannotMount(): Promise<string | undefined> {
  if (!isRoot) return 'only root may mount a file system';
  return (await lacking('mount')) ?? (await lacking('mkfs.ext4'));
}

function skipped(): readonly string[] {
  return (process.env['RESPOOL_TEST_SKIP'] ?? '').split(',').map((name) => name.trim());
}

async function isThere(tool: Tool): Promise<boolean> {
  try {
    await run('sh', ['-c', 'command -v "$1"', 'sh', tool], { env: withSbin() });
    return true;
  } catch {
    // `command -v` answers by its exit code.
    return false;
  }
}

async function install(name: string): Promise<void> {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  try {
    await run('apt-get', ['install', '-y', name], { env });
  } catch {
    // The lists of a fresh image are empty; with them it may work. If not, the caller says what to do.
    await run('apt-get', ['update'], { env }).catch(() => undefined);
    await run('apt-get', ['install', '-y', name], { env }).catch(() => undefined);
  }
}

/** Some tools of root are not on everybody's path. */
export function withSbin(): NodeJS.ProcessEnv {
  return { ...process.env, PATH: `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin` };
}
