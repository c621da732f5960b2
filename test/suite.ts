/** suite — turns the cases of a conformance suite into tests. */
import { describe, test } from 'vitest';
import type { SuiteCase } from 'respool/testkit';

/** One test per case, under the name of what has to keep the promises. */
export function runSuite(what: string, cases: readonly SuiteCase[]): void {
  describe(what, () => {
    for (const { name, run } of cases) test(name, run);
  });
}
