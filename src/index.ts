/** The entry point: re-exports, and does nothing. */

export {
  type Config,
  type ConsumerConfig,
  defineConfig,
  type LogConfig,
  type PolicyConfig,
  type PolicyData,
  type RabbitConfig,
  type Role,
  type RouteConfig,
  type ServeConfig,
  type TokenConfig,
} from './config/schema/define-config.ts';
export type { Duration, Millis } from './core/duration.ts';
export { formatDuration } from './core/duration.ts';
export type {
  AttemptRecord,
  Because,
  BodyInfo,
  Ending,
  Entry,
  Envelope,
  Headers,
  Status,
} from './core/entry.ts';
export { ERROR_CODES, type ErrorCode, isRespoolError, RespoolError } from './core/errors.ts';
export type {
  EventKind,
  EventOf,
  MissedEvents,
  SpoolEvent,
  StreamedEvent,
  StreamOptions,
} from './core/event.ts';
export {
  classify,
  type Failure,
  failure,
  isPermanent,
  isRetryable,
  PermanentError,
  type Permanence,
  RetryableError,
} from './core/failure.ts';
export { fingerprint } from './core/fingerprint.ts';
export { delivered, failed, held, type Outcome, postponed } from './core/verdict.ts';
export {
  type PolicyBackoff,
  type BackoffFunction,
  custom,
  describePolicy,
  exponential,
  type ExponentialOptions,
  fixed,
  ladder,
  linear,
  type LinearOptions,
  noRetry,
  type PolicyOptions,
  postfix,
  type RetryPolicy,
  rungs,
} from './core/policy.ts';
export {
  type Lane,
  type State,
  STATES,
  stateNumber,
  stateOfNumber,
} from './core/state.ts';
export { topicMatches, type TopicRule } from './core/topic.ts';
export { judge, type Judgement, type Verdict } from './core/verdict.ts';
export { forward, type ForwardOptions } from './engine/forward.ts';
export type { EngineLoad } from './engine/parts.ts';
export type { DestinationLimits } from './engine/handler-slots.ts';
export type { BodyStore, StoredBody } from './ports/body-store.ts';
export type { Clock, Dice } from './ports/clock.ts';
export type {
  Change,
  ClaimFilter,
  ClaimRequest,
  CorruptEntry,
  Duplicate,
  Durability,
  EntryQuery,
  EntryStore,
  EntryStoreTraits,
  KeyHead,
  ListOrder,
  ListPage,
  ListQuery,
  TallyBy,
  TallyRow,
} from './ports/entry-store.ts';
export type { Delivery, Handler, Middleware } from './ports/handler.ts';
export type { Logger } from './ports/logger.ts';
export type { KeyedRecord, LogRecord, RecordStore } from './ports/record-store.ts';
export type { SchemaIssue, SchemaResult, StandardSchema } from './ports/schema.ts';
export type { OutgoingMessage, Sink } from './ports/sink.ts';
export type { Claim, Demand, Settlement, Source, Want } from './ports/source.ts';
export type {
  HearOperation,
  StoreOperation,
  StoreOperationName,
} from './ports/store-operation.ts';
export type {
  AttemptSpan,
  SendSpan,
  Sending,
  SettleSpan,
  TracedPlace,
  Tracer,
} from './ports/tracer.ts';
export type { EnqueueResult } from './spool/enqueue.ts';
export type { ActionResult, AuditRecord } from './spool/actions.ts';
export type { BodyInput } from './spool/body.ts';
export type { CleanupResult } from './spool/caretaker.ts';
export type { CheckOptions, CheckProgress, CheckReport, Finding } from './spool/check.ts';
export type { EnqueueTx } from './spool/enqueue.ts';
export type { BounceOptions, HandleOptions } from './spool/handle.ts';
export type { KeptCopy } from './ports/dead-letters.ts';
export type { ListFilter, ListOptions, PageOptions } from './spool/list.ts';
export type { Message, MessageOptions } from './spool/message.ts';
export type { SpoolOptions } from './spool/options.ts';
export type {
  MoveOptions,
  ReasonOptions,
  RemoveOptions,
  SetHeadersOptions,
} from './spool/operator/operator.ts';
export type { RekeyOptions, RekeyProgress, RekeyTrouble } from './spool/rekey.ts';
export type { ReplayOrder } from './spool/replay.ts';
export { createSpool, type Spool } from './spool/spool.ts';
