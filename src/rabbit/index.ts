/** respool/rabbit — the same handler, policy and verdicts on RabbitMQ. */

export type { AmqpConnection, AmqpMessage, Properties } from './amqp.ts';
export type { TlsOptions } from './client.ts';
export type { Codec } from './codecs.ts';
export type { Compat } from './compat/compat.ts';
export { goqueue, type GoqueueOptions } from './compat/goqueue.ts';
export { outbox, type OutboxOptions } from './compat/outbox.ts';
export { spring, type SpringOptions } from './compat/spring.ts';
export {
  type ConnectionOptions,
  createConnection,
  type RabbitConnection,
} from './connection.ts';
export { Consumer, type ConsumerLoad, createConsumer } from './consumer.ts';
export type { RabbitHandler } from './handler.ts';
export type { ConsumerOptions, Declare, QueueDeclareOptions } from './consumer-options.ts';
export type { QueueLettersOptions } from './dead/letters-options.ts';
export { createQueueLetters } from './dead/queue-letters.ts';
export { type DelayFunction, RabbitDelivery } from './delivery.ts';
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
} from './dead/sweep.ts';
export type { FallbackSpool } from './fallback.ts';
export { doctor } from './operate/doctor.ts';
export { drainQueue } from './operate/drain.ts';
export { dumpText, dumpTopology } from './operate/dump.ts';
export { migrateTopology } from './operate/migrate.ts';
export type * from './operate/reports.ts';
export { queueStats } from './operate/stats.ts';
export { createPublisher, Publisher, type PublisherLoad, type PublishResult } from './publisher.ts';
export type {
  Publication,
  Published,
  PublishMessage,
  PublishMiddleware,
} from './publisher-message.ts';
export type { ExchangeType, PublisherOptions } from './publisher-options.ts';
export { type RabbitSink, rabbitSink, type RabbitSinkOptions } from './sink.ts';
export {
  type Applied,
  applyTopology,
  type ApplyOptions,
} from './topology/declare.ts';
export { type Definitions, type ExportOptions, toDefinitions } from './topology/definitions.ts';
export { mergeTopologies } from './topology/merge.ts';
export { describePlan, type Plan, planTopology } from './topology/plan.ts';
export { toTerraform } from './topology/terraform.ts';
export { type Problem, verifyTopology } from './topology/verify.ts';
export { createManagement, type Management } from './management/index.ts';
export type { ManagementOptions } from './management/options.ts';
export type {
  BindingSpec,
  ExchangeSpec,
  PolicySpec,
  QueueOrder,
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
export { perAttempt } from './topology/per-attempt.ts';
export { perDelay, type PerDelayOptions } from './topology/per-delay.ts';
export { shared, type SharedOptions } from './topology/shared.ts';
