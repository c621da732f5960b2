/** respool/dead-letters — letters of any source: groups, notes, export, replays and rules. */

export {
  type GroupOptions,
  groupsOf,
  type LetterGroup,
  type LetterGroups,
} from './groups.ts';
export { forgetNote, type GroupNote, noteGroup, notesOf } from './groups.ts';
export { createSpoolLetters, type SpoolLettersOptions } from './spool-letters.ts';
export {
  cancelReplay,
  getReplay,
  listReplays,
  pauseReplay,
  removeReplay,
  reportReplay,
} from './replay/operations.ts';
export { drawPlan, planReplay, type PlanTools } from './replay/plan.ts';
export { resumeReplay, runReplay, type RunTools } from './replay/run.ts';
export {
  type LetterTransform,
  loadTransform,
  rehearse,
  type Rehearsal,
  type Repair,
  type RepairBody,
  type RepairChange,
} from './replay/transform.ts';
export type {
  CannotKind,
  Replay,
  ReplayCanaries,
  ReplayCounts,
  ReplayOperator,
  ReplayLine,
  ReplayOptions,
  ReplayPlan,
  ReplaySource,
  ReplayState,
} from '../spool/operator/replays.ts';
export type * from '../ports/dead-letters.ts';
