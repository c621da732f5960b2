/** respool/rabbit — the same handler, policy and verdicts on RabbitMQ. */

export type { AmqpConnection, AmqpMessage, Properties } from './amqp.ts';
export type { TlsOptions } from './client.ts';
export type { Codec } from './codecs.ts';
export type { Compat } from './compat/compat.ts';
export { goqueue } from './compat/goqueue.ts';
export { outbox } from './compat/outbox.ts';
export { spring } from './compat/spring.ts';
export {
  type ConnectionOptions,
  createConnection,
  type RabbitConnection,
} from './connection.ts';
export {
  Consumer,
  type ConsumerLoad,
  createConsumer,
  type RabbitHandler,
} from './consumer.ts';
export type { ConsumerOptions, Declare, QueueDeclareOptions } from './consumer-options.ts';
export { type DelayFunction, RabbitDelivery } from './delivery.ts';
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
