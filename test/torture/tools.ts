/**
 * tools — the programs of the system that the fault tests need: present, installed, or said to be
 * missing in one sentence.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { SKIP_VARIABLE, skippedNames, type ToolName } from '../../scripts/services/words.ts';

export const run = promisify(execFile);

/** The Debian package that a program comes in. */
const PACKAGES: Readonly<Record<ToolName, string>> = {
  strace: 'strace',
  'mkfs.ext4': 'e2fsprogs',
  mount: 'mount',
};

/** Whether we may mount, and trace what others started. */
const isRoot: boolean = process.getuid?.() === 0;

/**
 * Makes sure that the tool can be used; otherwise why a test that needs it is skipped. Throws when
 * it is missing and nobody allowed that: a fault test must not go away silently.
 */
export async function lacking(tool: ToolName): Promise<string | undefined> {
  if (await isThere(tool)) return undefined;
  if (skippedNames(process.env).has(tool)) return `${SKIP_VARIABLE} names ${tool}`;
  if (isRoot) await install(PACKAGES[tool]);
  if (await isThere(tool)) return undefined;
  throw new Error(
    `this test needs the program "${tool}"; run: apt-get install ${PACKAGES[tool]} ` +
      `(or leave such tests out with ${SKIP_VARIABLE}=${tool})`,
  );
}

/** Why a test that mounts is skipped, if it is. */
export async function cannotMount(): Promise<string | undefined> {
  if (!isRoot) return 'only root may mount a file system';
  return (await lacking('mount')) ?? (await lacking('mkfs.ext4'));
}

async function isThere(tool: ToolName): Promise<boolean> {
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
