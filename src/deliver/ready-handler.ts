/** ready-handler — what the handlers of this room have besides being handlers. */

import type { Handler } from '../ports/handler.ts';

/** A handler that can say what it does, with secrets left out. */
export interface ReadyHandler extends Handler {
  /** What it does and with which settings, as plain JSON; spans in milliseconds. */
  describe(): Readonly<Record<string, unknown>>;
  /** The same handler with relative paths that start from this folder. */
  from?(folder: string): ReadyHandler;
  /**
   * Throws `config.invalid` when it could not deliver as it was made, for want of a secret: asked
   * before a service starts, and not of tools that only look.
   */
  check?(): void;
  /** Lets go of connections; the next delivery makes new ones. */
  close?(): Promise<void>;
}
