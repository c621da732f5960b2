/**
 * machine — what the decision how to get a server needs to know of the machine it runs on.
 *
 * The real one asks the system; tests give one of their own.
 */

import { accessSync, constants, existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import type { Account } from './processes.ts';
import { run } from './processes.ts';

/** What is asked of a machine. */
export interface Machine {
  readonly env: NodeJS.ProcessEnv;
  /** The path of a program, looked for in PATH and in the places where servers are installed. */
  find(program: string): string | undefined;
  /** Folders that match `before/<anything>/after`, the highest version first. */
  versions(before: string, after: string): readonly string[];
  readonly isRoot: boolean;
  /** Whether packages can be installed with apt-get. */
  readonly hasApt: boolean;
  /** Runs a command to its end. */
  run(
    command: string,
    args: readonly string[],
    options?: { readonly env?: NodeJS.ProcessEnv; readonly timeoutMs?: number },
  ): Promise<string>;
}

/** Daemons lie here, also where PATH is that of an ordinary user. */
const MORE_FOLDERS = ['/usr/local/sbin', '/usr/sbin', '/sbin', '/usr/local/bin', '/usr/bin'];

/** This machine. */
export function thisMachine(env: NodeJS.ProcessEnv = process.env): Machine {
  return {
    env,
    find: (program) => findProgram(program, env),
    versions: versionsOf,
    isRoot: process.getuid?.() === 0,
    hasApt: existsSync('/usr/bin/apt-get') && existsSync('/etc/debian_version'),
    run,
  };
}

/** Looks for a program that can be run. */
function findProgram(program: string, env: NodeJS.ProcessEnv): string | undefined {
  const folders = [...(env['PATH'] ?? '').split(path.delimiter), ...MORE_FOLDERS];
  return folders
    .filter((folder) => folder !== '')
    .map((folder) => path.join(folder, program))
    .find(isProgram);
}

/** Whether there is a program at this path that we may run. */
export function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function versionsOf(before: string, after: string): readonly string[] {
  try {
    return readdirSync(before)
      .sort((a, b) => b.localeCompare(a, 'en', { numeric: true }))
      .map((version) => path.join(before, version, after))
      .filter((folder) => existsSync(folder));
  } catch {
    return [];
  }
}

/** The account of this name, or of the first of these names that there is. */
export async function accountOf(machine: Machine, names: readonly string[]): Promise<Account> {
  for (const name of names) {
    try {
      const uid = Number((await machine.run('id', ['-u', name])).trim());
      const gid = Number((await machine.run('id', ['-g', name])).trim());
      return { uid, gid };
    } catch {
      // No such account; the next one will do.
    }
  }
  throw new Error(`cannot leave the account root: there is none of ${names.join(', ')}`);
}
