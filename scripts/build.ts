/**
 * build — make the published form of src/: JavaScript, declarations, and the SQL files beside them.
 *
 * `npm run build` calls it for dist/; a test calls it with another folder as its argument.
 * Promise: the folder holds this build only, nothing of an earlier one.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, rmSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

const root = path.join(import.meta.dirname, '..');
const outDir = path.resolve(process.argv[2] ?? path.join(root, 'dist'));

rmSync(outDir, { recursive: true, force: true });
runTsc(['-p', path.join(root, 'tsconfig.build.json'), '--outDir', outDir]);
// tsc carries over what it compiles; a schema.sql is read at run time.
cpSync(path.join(root, 'src'), outDir, {
  recursive: true,
  filter: (source) => statSync(source).isDirectory() || source.endsWith('.sql'),
});

function runTsc(args: readonly string[]): void {
  const manifestPath = createRequire(import.meta.url).resolve('@typescript/native/package.json');
  const tsc = path.join(path.dirname(manifestPath), 'bin/tsc');
  const { status } = spawnSync(process.execPath, [tsc, ...args], { stdio: 'inherit', cwd: root });
  if (status !== 0) process.exit(status ?? 1);
}
