/**
 * prompt — a yes-or-no question at the terminal. A file of its own, because few commands ever need
 * its library.
 */

import * as prompts from '@clack/prompts';
import { endedBy } from '../exit-codes.ts';
import type { Io } from './output.ts';

/** Asks; no unless the answer is yes. Ctrl-C is no answer. */
export async function confirm(io: Io, question: string): Promise<boolean> {
  const answer = await prompts.confirm({
    message: question,
    initialValue: false,
    input: io.stdin,
    // Results go to stdout, which may be a file.
    output: io.stderr,
  });
  if (prompts.isCancel(answer)) throw endedBy('SIGINT', '; nothing was done');
  return answer;
}
