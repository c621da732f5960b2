/** Every program in examples/ runs as it is written, in an empty folder. */

import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const examples = join(import.meta.dirname, '..', 'examples');

/** What each example must show. */
const SHOWS: Readonly<Record<string, readonly RegExp[]>> = {
  'spool.ts': [/enqueued \{ duplicate: false \}/, /state deferred/, /count \{/],
  'your-own-tests.ts': [/three attempts in 1h of virtual time/],
};

/** These are more than one file: a configuration, and what is around it. */
const FOLDERS = ['quickstart', 'without-code'];

test('every example has its expectation here', async () => {
  const files = await readdir(examples);
  expect(files.toSorted()).toEqual([...Object.keys(SHOWS), ...FOLDERS].toSorted());
});

for (const [file, patterns] of Object.entries(SHOWS)) {
  test(`examples/${file} runs as written`, async () => {
    const folder = await mkdtemp(join(tmpdir(), 'respool-example-'));
    try {
      const { stdout } = await run(
        process.execPath,
        ['--conditions=respool-source', join(examples, file)],
        { cwd: folder, timeout: 30_000, env: { ...process.env, NO_COLOR: '1' } },
      );
      for (const pattern of patterns) expect(stdout).toMatch(pattern);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
}
