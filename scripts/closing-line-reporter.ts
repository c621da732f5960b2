/**
 * closing-line-reporter — end the output of a test run with `N passed, N failed`.
 *
 * Vitest loads it beside its default reporter (see vitest.config.ts).
 * Promise: the line stands alone and is the last thing printed, whatever happened before.
 * It counts test cases. What broke outside a test case (a file that does not load, a failed
 * hook, an unhandled rejection) counts as one failure each, so that `0 failed` means success.
 */
import type { Reporter, TestModule } from 'vitest/node';

interface Tally {
  passed: number;
  failed: number;
  skipped: number;
}

// Vitest takes a reporter that is named by its path from the default export.
export default class ClosingLineReporter implements Reporter {
  // A run that never reaches its end has failed.
  #tally: Tally = { passed: 0, failed: 1, skipped: 0 };

  onInit(): void {
    // Written at exit and not at the end of the run: vitest and its other reporters still
    // print a summary then.
    process.once('exit', () => process.stdout.write(`${closingLine(this.#tally)}\n`));
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    // No test file matched: vitest calls that a failure too.
    if (modules.length === 0) return;
    this.#tally = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const module of modules) addModule(this.#tally, module);
  }
}

function closingLine({ passed, failed, skipped }: Tally): string {
  const line = `${passed} passed, ${failed} failed`;
  // On a line of its own: anyone who reads the last one wants to know two things.
  return skipped === 0 ? line : `${skipped} skipped, each with its reason in its title\n${line}`;
}

function addModule(tally: Tally, module: TestModule): void {
  if (module.errors().length > 0) tally.failed += 1;
  for (const suite of module.children.allSuites()) {
    if (suite.errors().length > 0) tally.failed += 1;
  }
  for (const test of module.children.allTests()) {
    const { state } = test.result();
    // 'pending' at the end means that it was never finished.
    if (state === 'pending') tally.failed += 1;
    else tally[state] += 1;
  }
}
