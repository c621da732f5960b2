/** reject — a handler's word that trying again cannot help. */

import { PermanentError } from '../core/failure.ts';

/** Thrown by a handler: the message goes to the dead queue at once, whatever delays are left. */
export class Reject extends PermanentError {
  override readonly name: string = 'Reject';

  constructor(
    reason: string,
    { code = 'rejected', ...options }: { readonly code?: string; readonly cause?: unknown } = {},
  ) {
    super(code, reason, options);
  }
}
