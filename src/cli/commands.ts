/**
 * commands — every command, in the order of the help.
 *
 * Help, completions and the reference are made of this table. The files load nothing heavy before
 * their `run`, so that naming them all costs little.
 */

import { pause } from './commands/pause.ts';
import { resume } from './commands/resume.ts';
import type { CommandSpec } from './spec.ts';

/** Every command. */
export const commands: readonly CommandSpec[] = [pause, resume];
