import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { LongFilesFirst } from './scripts/long-files-first.ts';

// `import … from 'respool'` in a test means the source, not the last build.
// Without `module`: it is for bundlers, and in Node the SDK of AWS does not load with it.
const conditions = ['respool-source', 'node', 'development|production'];

// Hundreds of processes and threads are started from the source: each is stripped of types once.
process.env['NODE_COMPILE_CACHE'] ??= fileURLToPath(new URL('.cache/compiled', import.meta.url));

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions, externalConditions: conditions } },
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks',
    // A worker runs many files; what makes each of them independent is in the setup file.
    isolate: false,
    setupFiles: ['./test/fresh-modules.ts'],
    sequence: { sequencer: LongFilesFirst },
    execArgv: ['--conditions=respool-source'],
    // More than cores: much of a test is waiting for servers, disks and clocks.
    maxWorkers: 4,
    // Only against a test that hangs: no test may depend on the speed of the machine.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 120_000, interval: 20 } },
    // Real servers are started when the first test asks for one.
    globalSetup: ['./test/services/global-setup.ts'],
    reporters: ['default', './scripts/closing-line-reporter.ts'],
  },
});
