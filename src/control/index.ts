/** respool/control — what an operator may ask and do, in one operator's name. */

export type {
  Bulk,
  BulkAction,
  BulkProgress,
  BulkStep,
  Control,
  Desk,
  EventOptions,
  Flow,
  MessagePage,
  MessageView,
  NamedPolicy,
  Shape,
  ShapeOptions,
  ShapeRow,
  Spread,
  StateStats,
  Stats,
  SweptQueue,
  ToldEvent,
} from './control.ts';
export { type ControlOptions, createControl } from './desk.ts';
export { FlowMeter } from './flow.ts';
export type { Forecast } from '../core/forecast.ts';
export {
  type GroupOptions,
  groupsOf,
  type LetterGroup,
  type LetterGroups,
} from './letters/groups.ts';
export { forgetNote, type GroupNote, noteGroup, notesOf } from './letters/notes.ts';
export { createSpoolLetters, type SpoolLettersOptions } from './letters/spool-letters.ts';
export {
  cancelReplay,
  getReplay,
  listReplays,
  pauseReplay,
  removeReplay,
} from './replay/operations.ts';
export { REPLAY_DEFAULTS } from './replay/options.ts';
export { drawPlan, planReplay, type PlanTools, routeText } from './replay/plan.ts';
export { reportReplay } from './replay/report.ts';
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
  ReplayDesk,
  ReplayLine,
  ReplayOptions,
  ReplayPlan,
  ReplaySource,
  ReplayState,
} from './replay/types.ts';
export type * from '../ports/dead-letters.ts';
