/** until — what the broker counts comes late, and no event tells when: so it is asked again. */

import { vi } from 'vitest';

const TIMEOUT_MS = 120_000;

/** Asks until there is an answer. */
export async function until<T>(ask: () => Promise<T | undefined>): Promise<T> {
  const found = await vi.waitUntil(
    async () => {
      const answer = await ask();
      return answer === undefined ? undefined : { answer };
    },
    { timeout: TIMEOUT_MS, interval: 100 },
  );
  return found.answer;
}
