/** refusal — the RespoolError that a call must throw; anything else fails the test. */
import { RespoolError } from 'respool';

/** What the call was refused with. */
export function refusal(call: () => unknown): RespoolError {
  let answer: unknown;
  try {
    answer = call();
  } catch (error) {
    if (error instanceof RespoolError) return error;
    throw error;
  }
  throw new Error(`expected a refusal, got ${String(answer)}`);
}
