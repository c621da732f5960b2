/** `respool dlq` — list, show, export, groups, note, remove, purge and restore. */

import type { CommandSpec } from '../spec.ts';

export const lookCommands: readonly CommandSpec[] = [];
