/** `respool dlq` — sweep and watch. */

import type { CommandSpec } from '../spec.ts';

export const sweepCommands: readonly CommandSpec[] = [];
