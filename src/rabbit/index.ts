/** respool/rabbit — the same handler, policy and verdicts on RabbitMQ. */

export type { AmqpConnection, AmqpMessage, Properties } from './connection/amqp.ts';
export type { TlsOptions } from './connection/connection.ts';
export type { ContentCodec } from './publish/codecs.ts';
export type { Compat } from './compat/shared.ts';
export { goqueue, type GoqueueOptions } from './compat/goqueue.ts';
export { outbox, type OutboxCompatOptions } from './compat/outbox.ts';
export { spring, type SpringOptions } from './compat/spring.ts';
export {
  type AnyConnection,
  type ConnectionOptions,
  createConnection,
  type RabbitConnection,
} from './connection/connection.ts';
export { type Consumer, type ConsumerLoad, createConsumer } from './consume/consumer.ts';
export { type DelayFunction, RabbitDelivery, type RabbitHandler } from './consume/delivery.ts';
export type { ConsumerOptions, Declare, QueueDeclareOptions } from './consume/options.ts';
export { createQueueLetters } from './queues/queue-letters.ts';
export type { QueueLettersOptions } from './queues/options.ts';
export {
  type QueueSweep,
  type SweepDetails,
  type SweepEnd,
  type SweepJournal,
  sweepJournal,
  type SweepJournalOptions,
  type SweepOptions,
  type SweepPair,
  type SweepProblem,
  type SweepProgress,
  sweepQueue,
  type SweepQueueOptions,
  sweepQueues,
  type SweepSettings,
  type SweepTotal,
} from './queues/sweep.ts';
export type { FallbackSpool } from './publish/fallback.ts';
export { doctor } from './admin/doctor.ts';
export { drainQueue } from './queues/drain.ts';
export { dumpText, dumpTopology } from './admin/dump.ts';
export { migrateTopology } from './migrate/migrate.ts';
export type {
  DoctorOptions,
  DrainEnd,
  DrainOptions,
  DrainReport,
  DumpedBinding,
  DumpedExchange,
  DumpedQueue,
  BrokerFinding,
  BrokerLookOptions,
  MigrateOptions,
  MigrateReport,
  MigrateStep,
  MoveProgress,
  OldQueue,
  QueueStats,
  SharedWith,
  StatsHint,
  StatsHintKind,
  StatsOptions,
  StatsReport,
  TopologyDump,
} from './admin/reports.ts';
export { queueStats } from './admin/stats.ts';
export {
  createPublisher,
  type Publisher,
  type PublisherLoad,
  type PublishResult,
} from './publish/publisher.ts';
export type {
  Publication,
  PublishedMessage,
  PublishMessage,
  PublishMiddleware,
} from './publish/message.ts';
export type { ExchangeType, PublisherOptions } from './publish/options.ts';
export { type RabbitSink, rabbitSink, type RabbitSinkOptions } from './publish/sink.ts';
export {
  type ApplyResult,
  applyTopology,
  type ApplyOptions,
} from './topology/declare.ts';
export { type Definitions, type ExportOptions, toDefinitions } from './topology/definitions.ts';
export { mergeTopologies } from './topology/model.ts';
export { describePlan, type Plan, planTopology } from './topology/apply-plan.ts';
export { toTerraform } from './topology/terraform.ts';
export { type Problem, verifyTopology } from './topology/verify.ts';
export { createManagement, type Management } from './management/management.ts';
export type { ManagementOptions } from './management/http.ts';
export type {
  BindingSpec,
  ExchangeSpec,
  PolicySpec,
  QueuePlanRequest,
  QueuePlan,
  QueueRole,
  QueueSpec,
  QueueType,
  Route,
  Topology,
  TopologyStyle,
  UserBinding,
  WaitRequest,
  WaitRoute,
} from './topology/model.ts';
export { perAttempt } from './topology/styles.ts';
export { perDelay, type PerDelayOptions } from './topology/styles.ts';
export { shared, type SharedOptions } from './topology/styles.ts';
