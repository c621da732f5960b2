/** operator-options — how to act on messages and how to check a store. */

import type { State } from '../core/state.ts';
import type { CheckProgress } from './check.ts';

/** Why something is done to messages. */
export interface ReasonOptions {
  /** Shown with the message and in the audit record. */
  readonly reason?: string | undefined;
}

/** How to remove. */
export interface RemoveOptions extends ReasonOptions {
  /** Removes it for good, body and all; default false. */
  readonly hard?: boolean | undefined;
}

/** From where to where. */
export interface MoveOptions extends ReasonOptions {
  /** The state it must be in. */
  readonly from: State;
  readonly to: State;
}

/** How to change headers. */
export interface SetHeadersOptions {
  /** Only if the message is still at this revision. */
  readonly revision?: number | undefined;
}

/** How a store is checked. */
export interface CheckOptions {
  /** Also repairs what can be repaired; default false. */
  readonly repair?: boolean;
  /** Called with the progress after each message and each body. */
  readonly onProgress?: (progress: CheckProgress) => void;
}
