/**
 * import-purity — importing any subpath of the package loads no client library and does nothing.
 *
 * Each import happens in a fresh process, in an empty working directory.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';
import type { Inspection } from './import-purity-child.ts';

const LIVES_AT_MOST_MS = 240_000;
/**
 * Files that an import of the built package loads; 100 when this was written. How long that takes
 * is measured by `npm run bench -- import`.
 */
const FILES_MAX = 120;

/** Loaded when a store or a feature is opened, never by an import. */
const LAZY_PACKAGES = [
  /^better-sqlite3(?:\/|$)/,
  /^pg(?:\/|$)/,
  /^amqplib(?:\/|$)/,
  /^@nats-io\//,
  /^@aws-sdk\//,
  /^snappy(?:\/|$)/,
  /^lz4-napi(?:\/|$)/,
  /^@opentelemetry\//,
];

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '..');
const child = path.join(import.meta.dirname, 'import-purity-child.ts');
const manifest = JSON.parse(await readFile(path.join(root, 'package.json'), 'utf8')) as {
  exports: Record<string, Record<string, string>>;
};
const specifiers = Object.keys(manifest.exports).map((subpath) => subpath.replace('.', 'respool'));
const garbage: string[] = [];

afterAll(async () => {
  await Promise.all(garbage.map((dir) => rm(dir, { recursive: true, force: true })));
});

describe.each(specifiers)('importing %s', (specifier) => {
  // One process serves the three tests.
  let once: ReturnType<typeof importOnce<Inspection>> | undefined;
  const inspection = () => (once ??= importOnce<Inspection>(specifier));

  test('loads no client library', async () => {
    const { packages } = (await inspection()).report;
    expect(packages.filter((name) => LAZY_PACKAGES.some((lazy) => lazy.test(name)))).toEqual([]);
  });

  test('leaves nothing running, and the process ends by itself', async () => {
    expect((await inspection()).report.resources).toEqual([]);
  });

  test('prints nothing, writes no file, adds no global and no process listener', async () => {
    const { report, files, stderr } = await inspection();
    expect({ files, stderr, globals: report.globals, listeners: report.listeners }).toEqual({
      files: [],
      stderr: '',
      globals: [],
      listeners: [],
    });
  });
});

test('with no optional package installed all of it loads, and an opening names what it misses', async () => {
  const peers = path.join(import.meta.dirname, 'missing-peers-child.ts');
  const args = ['--disable-warning=ExperimentalWarning', '--conditions=respool-source', peers];
  const { stdout } = await run(process.execPath, [...args, ...specifiers], { cwd: root });
  const { loaded, opened } = JSON.parse(stdout) as { loaded: string[]; opened: object };
  expect(loaded).toEqual(specifiers);
  const missing = (what: string, name: string): string =>
    `peer.missing: cannot use ${what}: the package "${name}" is not installed; run: npm install ${name}`;
  expect(opened).toEqual({
    postgres: missing('the PostgreSQL store', 'pg'),
    postgresBodies: missing('the PostgreSQL store', 'pg'),
    nats: missing('the NATS store', '@nats-io/transport-node'),
    natsBodies: missing('the NATS store', '@nats-io/transport-node'),
    s3: missing('the S3 store', '@aws-sdk/client-s3'),
    rabbit: missing('RabbitMQ', 'amqplib'),
    traces: missing('traces', '@opentelemetry/api'),
  });
});

test('importing the built package loads few files, and one small dependency', async () => {
  // Inside the repository, so that the build finds its dependencies.
  const cache = path.join(root, '.cache');
  await mkdir(cache, { recursive: true });
  const outDir = await mkdtemp(path.join(cache, 'import-purity-'));
  garbage.push(outDir);
  await run(process.execPath, [path.join(root, 'scripts/build.ts'), outDir]);

  const url = pathToFileURL(path.join(outDir, 'index.js')).href;
  const { files, packages } = (await importOnce<Inspection>(url)).report;
  expect(packages.filter((name) => !name.startsWith('node:'))).toEqual(['uuidv7']);
  expect(files).toBeLessThanOrEqual(FILES_MAX);
});

async function importOnce<Report>(specifier: string) {
  const cwd = await mkdtemp(path.join(os.tmpdir(), 'respool-import-'));
  garbage.push(cwd);
  const env = { ...process.env, NODE_DISABLE_COMPILE_CACHE: '1' };
  const { stdout, stderr } = await run(
    process.execPath,
    // Node 22 warns about type stripping and hooks; later versions do not.
    ['--disable-warning=ExperimentalWarning', '--conditions=respool-source', child, specifier],
    { cwd, env, timeout: LIVES_AT_MOST_MS, killSignal: 'SIGKILL' },
  );
  // Anything the import printed would make this unreadable as JSON.
  return { report: JSON.parse(stdout) as Report, stderr, files: await readdir(cwd) };
}
