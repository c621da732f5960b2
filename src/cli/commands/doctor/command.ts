/** command — whether the program that a route runs is there and may be run. Runs nothing. */

import { access, constants, stat } from 'node:fs/promises';
import path from 'node:path';
import process from 'node:process';
import { describeHandler, type EffectiveRoute } from '../../../config/load/routes.ts';
import { type DoctorFinding, note, unsafe } from './finding.ts';

/** Programs that run the file they are given as their first word. */
const INTERPRETER = /^(?:sh|bash|dash|zsh|ksh|node|bun|deno|python[\d.]*|ruby|perl|php)$/;

/** The command of a route with `exec`; nothing for other routes. */
export async function examineCommand(
  { topic, deliver }: Pick<EffectiveRoute, 'topic' | 'deliver'>,
  key: string,
): Promise<DoctorFinding[]> {
  const { kind, command, cwd, env } = describeHandler(deliver);
  if (kind !== 'exec' || !Array.isArray(command)) return [];
  const [program = '', ...words] = command.map(String);
  const folder = typeof cwd === 'string' ? cwd : process.cwd();
  const id = `${key}.exec`;
  const who = `${key} "${topic}" runs ${JSON.stringify(program)}`;
  if ((await stat(folder).catch(() => undefined))?.isDirectory() !== true) {
    const text = `${who} in the folder "${folder}", which is not there`;
    return [unsafe(id, text, 'make the folder, or change "cwd"')];
  }
  // With a search path of its own the command may find what is not found here.
  const hasOwnPath = typeof env === 'object' && env !== null && 'PATH' in env;
  const wrong = await whyNotRunnable(program, folder);
  if (wrong !== undefined && !(hasOwnPath && !program.includes('/'))) {
    return [
      unsafe(
        id,
        `${who}, which ${wrong}`,
        'every delivery fails; create the file, or correct the command',
      ),
    ];
  }
  return examineScript(words[0], { id, who, program, folder });
}

/** The file that an interpreter is given. */
async function examineScript(
  script: string | undefined,
  at: { readonly id: string; readonly who: string; program: string; readonly folder: string },
): Promise<DoctorFinding[]> {
  const { id, who, program, folder } = at;
  if (script === undefined || !INTERPRETER.test(path.basename(program))) return [];
  if (script.startsWith('-') || !/[/.]/.test(script)) return [];
  const file = path.resolve(folder, script);
  if ((await stat(file).catch(() => undefined)) !== undefined) return [];
  const text = `${who} with "${script}", and there is no file "${file}"`;
  return [note(id, text, 'create the file, or correct the command')];
}

/** What is wrong with a program, as spawn() looks for it; undefined when nothing is. */
async function whyNotRunnable(program: string, folder: string): Promise<string | undefined> {
  if (program.includes('/')) return whyNotFile(path.resolve(folder, program));
  for (const one of (process.env['PATH'] ?? '').split(path.delimiter)) {
    if (one !== '' && (await whyNotFile(path.resolve(folder, one, program))) === undefined) {
      return undefined;
    }
  }
  return process.platform === 'win32' ? undefined : 'is not found in PATH';
}

async function whyNotFile(file: string): Promise<string | undefined> {
  const found = await stat(file).catch(() => undefined);
  if (found === undefined) return `is not there: no file "${file}"`;
  if (!found.isFile()) return `is no file: "${file}"`;
  try {
    await access(file, constants.X_OK);
    return undefined;
  } catch {
    return `may not be run by this account: chmod +x "${file}"`;
  }
}
