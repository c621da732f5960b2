/** operator-options — how to remove, move, pause and check. */

import type { State } from '../core/state.ts';
import type { CheckProgress } from './check.ts';

/** How to remove. */
export interface RemoveOptions {
  /** Forget it for good, body and all; default false. */
  readonly hard?: boolean;
  readonly reason?: string;
  readonly by?: string;
}

/** From where to where. */
export interface MoveOptions {
  /** The state it must be in. */
  readonly from: State;
  readonly to: State;
  readonly reason?: string;
  readonly by?: string;
}

/** What to pause or resume. */
export interface PauseOptions {
  /** A topic or pattern; default everything. */
  readonly topic?: string;
  readonly by?: string;
}

/** How a store is looked through. */
export interface CheckOptions {
  /** Also repairs what can be repaired; default false. */
  readonly repair?: boolean;
  readonly by?: string;
  /** Hears how far it is, after each message and each body. */
  readonly onProgress?: (progress: CheckProgress) => void;
}
