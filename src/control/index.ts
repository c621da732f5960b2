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
  NamedPolicy,
  Shape,
  ShapeOptions,
  ShapeRow,
  Spread,
  StateStats,
  Stats,
  ToldEvent,
} from './control.ts';
export { type ControlOptions, createControl } from './desk.ts';
export { FlowMeter } from './flow.ts';
