/** The public types of every subpath in package.json are those of the snapshots in api/. */
import { spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import manifest from '../../package.json' with { type: 'json' };
import { printDeclarations } from './declarations.ts';

const root = path.join(import.meta.dirname, '../..');
const require = createRequire(import.meta.url);

const subpaths = Object.entries(manifest.exports).map(([subpath, { types }]) => ({
  /** What users import: `respool/rabbit`. */
  entry: path.posix.join(manifest.name, subpath),
  /** The snapshot: `stores-nats.txt`. */
  file: `${subpath === '.' ? 'index' : subpath.slice(2).replaceAll('/', '-')}.txt`,
  types,
}));

let folder = '';
const texts = new Map<string, string>();

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'respool-api-'));
  const dist = path.join(folder, 'dist');
  run('@typescript/native', 'bin/tsc', [
    '-p',
    path.join(root, 'tsconfig.build.json'),
    '--emitDeclarationOnly',
    '--noCheck',
    '--outDir',
    dist,
  ]);
  const { byEntry, unexported } = printDeclarations(
    new Map(subpaths.map(({ entry, types }) => [entry, path.join(folder, types)])),
  );
  for (const { entry, file } of subpaths) texts.set(file, byEntry.get(entry) ?? '');
  texts.set('unexported.txt', unexported);
  const pretty = path.join(folder, 'pretty');
  await mkdir(pretty);
  for (const [file, text] of texts) await writeFile(path.join(pretty, `${file}.d.ts`), text);
  run('@biomejs/biome', 'bin/biome', [
    'format',
    '--write',
    `--config-path=${root}`,
    '--vcs-enabled=false',
    pretty,
  ]);
  for (const file of texts.keys()) {
    texts.set(file, await readFile(path.join(pretty, `${file}.d.ts`), 'utf8'));
  }
});

afterAll(() => rm(folder, { recursive: true, force: true }));

describe('the public types', () => {
  test.each(subpaths)('of $entry are as they were', async ({ file }) => {
    await expect(texts.get(file)).toMatchFileSnapshot(`api/${file}`);
  });

  test('that are named by public ones without being exported are as they were', async () => {
    await expect(texts.get('unexported.txt')).toMatchFileSnapshot('api/unexported.txt');
  });

  test('have no snapshot of a subpath that is gone', async () => {
    const snapshots = await readdir(path.join(import.meta.dirname, 'api'));
    expect(snapshots.filter((file) => !texts.has(file))).toEqual([]);
  });
});

function run(name: string, bin: string, args: readonly string[]): void {
  const home = path.dirname(require.resolve(`${name}/package.json`));
  const { status, stdout, stderr } = spawnSync(process.execPath, [path.join(home, bin), ...args], {
    cwd: root,
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`${bin} failed:\n${stdout}${stderr}`);
}
