/** docs/project/benchmarks.md names benches that exist. */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ROOT, readPage } from './pages.ts';

test('the bench command knows the benches that docs/project/benchmarks.md names', async () => {
  const { text } = readPage('docs/project/benchmarks.md');
  const named = new Set(
    [...text.matchAll(/npm run bench -- (\w+)/g)].map(([, name]) => name ?? ''),
  );
  const { code, stderr } = await bench('nonsense');
  expect(code).toBe(2);
  const known = /known are (.+)/.exec(stderr)?.[1]?.split(', ');
  expect([...named].toSorted()).toEqual(known?.toSorted());
});

function bench(name: string): Promise<{ code: unknown; stderr: string }> {
  const args = ['--conditions=respool-source', path.join(ROOT, 'bench/run.ts'), name];
  return new Promise((resolve) => {
    execFile(process.execPath, args, (error, _, stderr) => resolve({ code: error?.code, stderr }));
  });
}
