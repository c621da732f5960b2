/** respool/rabbit — the same handler, policy and verdicts on RabbitMQ. */

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
