/** respool/operator — what an operator may ask and do, in one operator's name. */

export type {
  Bulk,
  BulkAction,
  BulkProgress,
  Operator,
  EventOptions,
  Throughput,
  MessagePage,
  MessageView,
  NamedPolicy,
  Shape,
  ShapeOptions,
  ShapeRow,
  Spread,
  StateStats,
  Stats,
  SpoolOperator,
  SweptQueue,
  SerializedEvent,
} from './operator.ts';
export type { Forecast } from '../../core/forecast.ts';
