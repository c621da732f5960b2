/**
 * init — from an empty folder to a working service: writes a configuration in the format that
 * fits the folder, a receiver, and the next commands to type.
 *
 * Promise: existing files are never lost: they are refused, or with --force renamed.
 */

import { PORT_MAX } from '../../../core/limits.ts';
import { appendFile, lstat, readFile, rename, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { type Format, FORMATS } from './init-templates.ts';
import { CommandError } from '../../exit-codes.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';
import { textOf } from '../../../core/errors.ts';

const RECEIVER = 'receiver.mjs';
/** Also in docs/start.md. */
const RECEIVER_PORT = 7_668;
const BODY_COLUMNS = 21;
const MESSAGES = 'localhost:7667/v1/topics/order.new/messages';

/** `respool init` */
export const initCommand: CommandSpec = {
  name: 'init',
  summary: 'write a configuration and a receiver to try it with',
  group: 'Start',
  description:
    'Writes a configuration with one route, and a small receiver in plain Node, into this ' +
    'folder. Then prints the next steps. Existing files are replaced only with --force.',
  options: [
    {
      flags: '--format <format>',
      description: 'the file format; default: ts if respool can be imported here, otherwise yaml',
      choices: FORMATS,
    },
    { flags: '--config-only', description: 'write no receiver' },
    {
      flags: '--receiver-port <port>',
      description: `where the receiver listens, 1 to ${PORT_MAX}; default ${RECEIVER_PORT}`,
    },
    { flags: '--force', description: 'replace existing files; the old ones are kept as .bak' },
  ],
  examples: [
    { line: 'respool init', does: 'in an empty folder: all that a first service needs' },
    { line: 'respool init --format yaml --config-only', does: 'the configuration alone' },
  ],
  run: async (context) => {
    const { options, io, out } = context;
    const format = options.text('format') as Format | undefined;
    const port = options.number('receiverPort', { min: 1, max: PORT_MAX }) ?? RECEIVER_PORT;
    const hasReceiver = !options.flag('configOnly');
    const files = await filesOf(io.cwd, { format, port, hasReceiver });
    const written = await writeFiles(io.cwd, files, { force: options.flag('force') });
    const isIgnored = await ignoreStore(io.cwd);
    if (out.json) {
      for (const { name, kept } of written) await out.object({ id: name, kept });
      if (isIgnored) await out.object({ id: '.gitignore' });
      return undefined;
    }
    for (const { name, kept } of written) {
      const isNew = files.some((file) => file.name === name);
      const line = isNew ? `wrote ${name}` : `put ${name} aside`;
      await out.line(kept === undefined ? line : `${line}; what was there is ${kept}`);
    }
    if (isIgnored) await out.line('added /respool/ to .gitignore');
    await printNext(context, hasReceiver);
    const isProgram = files.some(({ name }) => name.endsWith('ts'));
    if (isProgram && !canImport(io.cwd)) {
      out.note(
        '\nThe configuration imports respool, which is not installed here: npm install respool',
      );
    }
    return undefined;
  },
};

async function filesOf(
  folder: string,
  target: {
    readonly format: Format | undefined;
    readonly port: number;
    readonly hasReceiver: boolean;
  },
): Promise<readonly NewFile[]> {
  const { configText } = await import('./init-templates.ts');
  const { receiverText } = await import('./init-templates.ts');
  const { EXTENSIONS } = await import('../../../config/load/load-config.ts');
  const { port, hasReceiver, format = chooseFormat(folder) } = target;
  const config = {
    name: await fileNameOf(format, folder),
    text: configText(format, port),
    // Two configurations in one folder are refused by all that read them.
    rivals: EXTENSIONS.map((extension) => `respool.config.${extension}`),
  };
  return hasReceiver ? [config, { name: RECEIVER, text: receiverText(port) }] : [config];
}

async function printNext({ out }: CommandContext, hasReceiver: boolean): Promise<void> {
  const post = (customer: string, what: string): string => {
    const body = `'{"customer":"${customer}"}'`;
    return `  curl -d ${body.padEnd(BODY_COLUMNS)} ${MESSAGES}   # ${what}`;
  };
  const lines = [
    '',
    hasReceiver ? 'Next, each in its own terminal:' : 'Next:',
    '',
    ...(hasReceiver ? [`  node ${RECEIVER}`] : []),
    '  npx respool serve',
    '',
    'Then post some messages and see what happens to them:',
    '',
    post('ann', 'delivered'),
    ...(hasReceiver
      ? [post('busy', 'deferred twice, then delivered'), post('gone', 'bounced')]
      : []),
    '',
    '  npx respool list',
    '  npx respool shape',
  ];
  for (const line of lines) await out.line(line);
}

/** A file to be. */
interface NewFile {
  readonly name: string;
  readonly text: string;
  /** Other names of the same thing, that must not be there beside it. */
  readonly rivals?: readonly string[];
}

/** What became of a file. */
interface WrittenFile {
  readonly name: string;
  /** The name under which what was there is kept. */
  readonly kept?: string;
}

const BACKUPS_MAX = 100;
/** Anchored: a folder of this name further down is not ours. */
const IGNORED = '/respool/';

/** Writes all; where one is there already, it refuses before the first, unless `force`. */
async function writeFiles(
  folder: string,
  files: readonly NewFile[],
  { force }: { readonly force: boolean },
): Promise<readonly WrittenFile[]> {
  const present: string[] = [];
  for (const { name, rivals = [] } of files) {
    for (const one of new Set([name, ...rivals])) {
      if (await isThere(path.join(folder, one))) present.push(one);
    }
  }
  if (present.length > 0 && !force) {
    throw new CommandError(
      'usage.invalid',
      `cannot begin in "${folder}": already there: ${present.join(', ')}; nothing was ` +
        'changed; take another folder, or --force to replace it and keep a .bak',
    );
  }
  try {
    return await replaceAll(folder, files, present);
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw new CommandError(
      'usage.invalid',
      `cannot begin in "${folder}": ${textOf(error)}; take a folder you may write to`,
    );
  }
}

async function replaceAll(
  folder: string,
  files: readonly NewFile[],
  present: readonly string[],
): Promise<readonly WrittenFile[]> {
  const written: WrittenFile[] = [];
  for (const name of present) written.push({ name, kept: await putAside(folder, name) });
  for (const { name, text } of files) {
    await writeFile(path.join(folder, name), text, { flag: 'wx' });
    if (!present.includes(name)) written.push({ name });
  }
  return written;
}

/** Adds the store's folder to a `.gitignore` that is there; true if it was missing. */
async function ignoreStore(folder: string): Promise<boolean> {
  const file = path.join(folder, '.gitignore');
  try {
    const text = await readFile(file, 'utf8');
    if (/^\/?respool\/?\s*$/m.test(text)) return false;
    await appendFile(file, `${text === '' || text.endsWith('\n') ? '' : '\n'}${IGNORED}\n`);
    return true;
  } catch {
    // None, or one that cannot be read or changed: then it is left alone.
    return false;
  }
}

async function putAside(folder: string, name: string): Promise<string> {
  for (let number = 1; number <= BACKUPS_MAX; number += 1) {
    const kept = `${name}.bak${number === 1 ? '' : number}`;
    if (await isThere(path.join(folder, kept))) continue;
    await rename(path.join(folder, name), path.join(folder, kept));
    return kept;
  }
  throw new CommandError(
    'usage.invalid',
    `cannot keep "${name}": there are ${BACKUPS_MAX} copies of it already; remove some`,
  );
}

async function isThere(file: string): Promise<boolean> {
  return lstat(file).then(
    () => true,
    () => false,
  );
}

/** TypeScript where the package can be imported, otherwise data that needs nothing. */
function chooseFormat(folder: string): Format {
  return canImport(folder) ? 'ts' : 'yaml';
}

/** The file's name; a program is named so that Node takes it for a module in this folder. */
async function fileNameOf(format: Format, folder: string): Promise<string> {
  const isPlainTs = format === 'ts' && (await isModuleFolder(folder));
  return `respool.config.${format === 'ts' && !isPlainTs ? 'mts' : format}`;
}

/** Whether the folder's programs can import the package. */
function canImport(folder: string): boolean {
  try {
    createRequire(path.join(folder, 'respool.config.js')).resolve('respool');
    return true;
  } catch {
    return false;
  }
}

/** What the nearest manifest upwards says about `.ts` and `.js` files. */
async function isModuleFolder(folder: string): Promise<boolean> {
  for (let at = folder; ; at = path.dirname(at)) {
    const text = await readFile(path.join(at, 'package.json'), 'utf8').catch(() => undefined);
    if (text !== undefined) return isModuleManifest(text);
    if (at === path.dirname(at)) return false;
  }
}

function isModuleManifest(text: string): boolean {
  try {
    return (JSON.parse(text) as { type?: unknown }).type === 'module';
  } catch {
    // A manifest that cannot be read says nothing; the safe name works with and without it.
    return false;
  }
}
