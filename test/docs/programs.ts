/**
 * programs — runs the blocks of a page that are marked `run`, in order, in one empty folder.
 *
 * Called by snippets.test.ts, which compares the output, and by run.ts, which pastes it.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir, userInfo } from 'node:os';
import path from 'node:path';
import { type Block, type Page, ROOT } from './pages.ts';

/** A block that was run, and the block that says what it prints, if there is one. */
export interface Ran {
  readonly block: Block;
  readonly output: Block | undefined;
  /** Stdout and stderr, with the folder's name replaced by one that reads well. */
  readonly printed: string;
}

/** A machine that does other things as well takes its time. */
const PROGRAM_MAX_MS = 240_000;
/** How folders are called in pasted output. */
const SHOWN_FOLDER = '/srv/app';
/** Who acts in pasted output, whoever it was. */
const SHOWN_OPERATOR = 'ann@cli';
/** Where a folder has its commands, as npm puts them. */
const COMMANDS = 'node_modules/.bin';
/** What a program of the docs may import. */
const PACKAGES = [
  'zod',
  'better-sqlite3',
  'amqplib',
  'pg',
  'drizzle-orm',
  'kysely',
  '@opentelemetry',
  '@prometheus-io',
  '@types',
];

/** Servers that programs may find, each by its mark and the variable that names it. */
export const SERVERS = { broker: 'RABBITMQ_URL', database: 'DATABASE_URL' } as const;

/** A server, by its mark. */
export type ServerMark = keyof typeof SERVERS;

/** URLs of the servers there are. */
export type ServerUrls = Readonly<Partial<Record<ServerMark, string>>>;

const SERVER_MARKS = Object.keys(SERVERS) as readonly ServerMark[];

/** Whether a block needs this server. */
export function needs({ marks }: Block, server: ServerMark): boolean {
  return marks.includes(server);
}

/** Whether a block is run; `needs:sqlite3` leaves it out where that command is not installed. */
export function isRun({ marks }: Block): boolean {
  const needs = marks.find((mark) => mark.startsWith('needs:'))?.slice('needs:'.length);
  return marks[0] === 'run' && (needs === undefined || isInstalled(needs));
}

/** The name of the file a program is written to. */
export function fileNameOf(block: Block): string {
  return block.marks.find((mark) => mark.endsWith('.ts')) ?? `line-${block.line}.ts`;
}

/** Runs the run blocks of a page; those that need a server if `urls` names it. */
export async function runPage(page: Page, urls: ServerUrls = {}): Promise<readonly Ran[]> {
  const folder = await makeFolder();
  try {
    const ran: Ran[] = [];
    for (const [at, block] of page.blocks.entries()) {
      const isMissed = SERVER_MARKS.some((one) => needs(block, one) && urls[one] === undefined);
      if (!isRun(block) || isMissed) continue;
      const next = page.blocks[at + 1];
      const output = next?.marks[0] === 'output' ? next : undefined;
      ran.push({ block, output, printed: await runBlock(page, block, { folder, urls }) });
    }
    return ran;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** An empty folder in which `import 'respool'` and `respool` mean the source of this project. */
export async function makeFolder(): Promise<string> {
  const folder = await realpath(await mkdtemp(path.join(tmpdir(), 'respool-docs-')));
  const modules = path.join(folder, 'node_modules');
  await mkdir(modules);
  await symlink(ROOT, path.join(modules, 'respool'));
  for (const name of PACKAGES) {
    await symlink(path.join(ROOT, 'node_modules', name), path.join(modules, name));
  }
  await writeFile(path.join(folder, 'package.json'), '{ "type": "module" }\n');
  await mkdir(path.join(folder, COMMANDS));
  const main = path.join(ROOT, 'src/cli/main.ts');
  await writeFile(path.join(folder, COMMANDS, 'respool'), `#!/bin/sh\nexec node '${main}' "$@"\n`, {
    mode: 0o755,
  });
  return folder;
}

/** What commands say every five seconds while they work, which they do on a busy machine. */
const PROGRESS = /^(?:[\d,]+(?: of [\d,]+)? done|\{"progress":.*\})\n?/gm;

/** Output without what differs from run to run: ids, times, names of processes. */
export function alike(text: string): string {
  return text
    .replaceAll(PROGRESS, '')
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/g, '<id>')
    .replaceAll(/…[0-9a-f]{6,12}\b/g, '…<id>')
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, '<time>')
    .replaceAll(/\d{8}T\d{9}Z/g, '<time>')
    .replaceAll(/\b1\d{12}\b/g, '<ms>')
    .replaceAll(/bodies\/[0-9a-f]{2}\//g, 'bodies/<shard>/')
    .replaceAll(/-[0-9a-z]{12}\b/g, '-<random>')
    .replaceAll(/\b[0-9a-z]{12}(?=\/[0-9a-z]+|%2F)(?:\/|%2F)[0-9a-z]+/g, '<holder>')
    .replaceAll(/\binstance [0-9a-z]{12}\b/g, 'instance <instance>')
    .replaceAll(/crc32=[0-9a-f]{8}/g, 'crc32=<sum>')
    .replaceAll(/process \d+/g, 'process <pid>')
    .replaceAll(/(tookMs|ageMs)("?:) ?[\d.]+/g, '$1$2 <n>')
    .replaceAll(/[ \t]+$/gm, '')
    .trim();
}

/** The same without ages and the room that columns give them, holders, ports, counts of writes. */
export function withoutAges(text: string): string {
  return alike(text)
    .replaceAll(/\bnow\b|\b(?:\d+(?:\.\d+)?(?:ms|[smhd]))+\b(?: ago)?/g, '<span>')
    .replaceAll(/(?<=<span> {2})[0-9a-z]{12}\b/g, '<holder>')
    .replaceAll(/\b\d\d:\d\d:\d\d\.\d{3}Z/g, '<time>')
    .replaceAll(/127\.0\.0\.1:\d+/g, '127.0.0.1:<port>')
    .replaceAll(/^revision {2}.*$/gm, 'revision  <n>')
    .replaceAll(/ {2,}/g, '  ');
}

function isInstalled(command: string): boolean {
  return (process.env['PATH'] ?? '')
    .split(path.delimiter)
    .some((folder) => existsSync(path.join(folder, command)));
}

/** What a block started in the background ends with it, also when it is called off. */
const END_WITH_ME = "trap 'kill -9 $(jobs -p) 2> /dev/null || :' EXIT; trap 'exit 143' TERM";

/** Where a block is run. */
interface Place {
  readonly folder: string;
  readonly urls: ServerUrls;
}

async function runBlock(page: Page, block: Block, place: Place): Promise<string> {
  const { folder } = place;
  const isShell = block.language === 'sh';
  const file = path.join(folder, fileNameOf(block));
  if (!isShell) await writeFile(file, block.text);
  const script = `${END_WITH_ME}\n${block.text}`;
  const [command, args] = isShell ? ['sh', ['-euc', script]] : [process.execPath, [file]];
  const isEndless = block.marks.includes('until-output');
  const { code, printed } = await execute(command, args, { ...place, isEndless });
  const mayFail = block.marks.includes('fails');
  if ((code !== 0) !== mayFail) {
    throw new Error(`${page.file}:${block.line} ended with ${code}:\n${printed}`);
  }
  const operator = `${userInfo().username}@cli`;
  return (
    withShownServers(printed, place.urls)
      .replaceAll(folder, SHOWN_FOLDER)
      // In a column as wide as it was.
      .replaceAll(`${operator}  `, `${SHOWN_OPERATOR.padEnd(operator.length)}  `)
      .replaceAll(operator, SHOWN_OPERATOR)
      .trimEnd()
  );
}

/** Servers under names that read well, wherever they are. */
function withShownServers(text: string, { broker, database }: ServerUrls): string {
  const whereOf = (url: string): string => `${new URL(url).host}${new URL(url).pathname}`;
  let shown = text;
  if (database !== undefined) shown = shown.replaceAll(whereOf(database), 'localhost/shop');
  return broker === undefined ? shown : shown.replaceAll(whereOf(broker), 'localhost');
}

function execute(
  command: string,
  args: readonly string[],
  { folder: cwd, urls, isEndless }: Place & { readonly isEndless: boolean },
): Promise<{ code: number | string; printed: string }> {
  const env = {
    ...process.env,
    // As on a user's machine, where `node` is new enough and `respool` is installed.
    PATH: [path.join(cwd, COMMANDS), path.dirname(process.execPath), process.env['PATH']].join(
      path.delimiter,
    ),
    NODE_OPTIONS: '--conditions=respool-source',
    // Halves the time a program takes to start; keyed by content, so never out of date.
    NODE_COMPILE_CACHE: path.join(ROOT, 'node_modules/.cache/respool-docs'),
    NO_COLOR: '1',
    TZ: 'UTC',
    LC_ALL: 'C',
    ...Object.fromEntries(SERVER_MARKS.map((one) => [SERVERS[one], urls[one]])),
  };
  return new Promise((resolve) => {
    const options = { cwd, env, timeout: PROGRAM_MAX_MS };
    const child = execFile(command, args, options, (error, stdout, stderr) => {
      const isInterrupted = isEndless && error?.signal === 'SIGINT';
      const code = error === null || isInterrupted ? 0 : (error.code ?? error.signal ?? 'nothing');
      resolve({ code, printed: `${stdout}${stderr}` });
    });
    // As a user ends such a program: by Ctrl-C, once it has shown what it does.
    if (isEndless) child.stdout?.once('data', () => child.kill('SIGINT'));
  });
}
