/** `respool dlq` — replay, replays and rules. */

import type { CommandSpec } from '../spec.ts';

export const replayCommands: readonly CommandSpec[] = [];
