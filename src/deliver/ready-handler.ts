/** ready-handler — what the handlers of this room have besides being handlers. */

import type { Handler } from '../ports/handler.ts';

/** A handler that can say what it does, with secrets left out. */
export interface ReadyHandler extends Handler {
  /** What it does and with which settings, as plain JSON; spans in milliseconds. */
  describe(): Readonly<Record<string, unknown>>;
  /** Lets go of connections; the next delivery makes new ones. */
  close?(): Promise<void>;
}
