/** respool/operator — what an operator may ask and do, in one operator's name. */

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
} from './operator.ts';
export { type ControlOptions, createControl } from './spool-operator.ts';
export { FlowMeter } from './throughput.ts';
export type { Forecast } from '../core/forecast.ts';
