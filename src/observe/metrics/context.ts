/**
 * context — what all metrics share: the families that every source reports (a spool, a consumer
 * `queue:…`, a relay), and labels whose number of values is bounded once for all sources.
 *
 * docs/reference/metrics.md says what each family means; a test compares the two.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Families, HistogramFamily, NumberFamily } from './families.ts';
import type { MetricAlias } from './options.ts';
import type { Clock } from '../../ports/clock.ts';

const OF_TOPIC = ['source', 'topic'] as const;
const OF_SOURCE = ['source'] as const;
const OF_OPERATION = ['source', 'store', 'operation'] as const;

const ATTEMPTS = [1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50];
/** From a message that is handed on at once to one that took a week. */
const AGES_S = [
  0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 86_400, 259_200, 604_800,
];
const HANDLER_S = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
/** The steps of usual ladders: the rate of a bucket is the rate of one step. */
const DELAYS_S = [
  1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 86_400,
];
const OPERATION_S = [
  0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10,
];
const BATCHES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];

/** The families that `watch` fills, and most of them `watchConsumer` and `watchRelay`. */
export type CoreFamilies = Readonly<
  Record<CounterName | GaugeName, NumberFamily> & Record<HistogramName, HistogramFamily>
>;

type CounterName =
  | 'accepted'
  | 'duplicates'
  | 'delivered'
  | 'deferred'
  | 'bounced'
  | 'held'
  | 'released'
  | 'announced'
  | 'archived'
  | 'removed'
  | 'attempts'
  | 'leaseLosses'
  | 'staleSettles'
  | 'trouble'
  | 'clockJumps'
  | 'operatorActions'
  | 'forgotten'
  | 'orphans'
  | 'engineSettled'
  | 'operationFailures'
  | 'alerts'
  | 'scrapeFailures';

type HistogramName =
  | 'attemptsToSuccess'
  | 'timeToDelivery'
  | 'handlerDuration'
  | 'retryDelay'
  | 'operationDuration'
  | 'batchSize';

type GaugeName =
  | 'messages'
  | 'topicMessages'
  | 'oldestAge'
  | 'nextDue'
  | 'forecastDrain'
  | 'forecastFull'
  | 'engineSlots'
  | 'engineSlotsBusy'
  | 'engineWaiting'
  | 'engineSettling'
  | 'engineRunning'
  | 'pausedTopics'
  | 'statesAge'
  | 'alertsFiring'
  | 'info';

/** Registers them; none has a row yet. */
export function makeCoreFamilies(families: Families): CoreFamilies {
  return { ...counters(families), ...histograms(families), ...gauges(families) };
}

function counters(families: Families): Record<CounterName, NumberFamily> {
  const ofTopic = (name: string, help: string): NumberFamily =>
    families.counter({ name, help, labels: OF_TOPIC });
  const ofSource = (name: string, help: string): NumberFamily =>
    families.counter({ name, help, labels: OF_SOURCE });
  return {
    accepted: ofTopic('accepted_total', 'Accepted messages.'),
    duplicates: ofTopic('duplicates_total', 'Messages that were there already.'),
    delivered: ofTopic('delivered_total', 'Messages that were delivered.'),
    deferred: ofTopic('deferred_total', 'Attempts after which a message waits for the next one.'),
    bounced: families.counter({
      name: 'bounced_total',
      help: 'Messages that were given up, by the code of the reason.',
      labels: [...OF_TOPIC, 'code'],
    }),
    held: ofTopic('held_total', 'Messages that were put on hold by a handler or a policy.'),
    released: ofTopic('released_total', 'Attempts that were given back, at no cost.'),
    announced: ofTopic('announced_total', 'Bounces announced to a bounce handler.'),
    archived: ofTopic('archived_total', 'Messages that were kept after their end.'),
    removed: ofTopic('removed_total', 'Messages that were removed for good.'),
    attempts: families.counter({
      name: 'attempts_total',
      help: 'Attempts that came to an end, by what the handler said.',
      labels: [...OF_TOPIC, 'outcome'],
    }),
    leaseLosses: ofSource('lease_losses_total', 'Attempts that lost their lease.'),
    staleSettles: ofSource('stale_settles_total', 'Verdicts that came too late to count.'),
    trouble: ofSource('trouble_total', 'Things that went wrong beside the messages.'),
    clockJumps: ofSource('clock_jumps_total', 'Jumps of the clock.'),
    operatorActions: families.counter({
      name: 'operator_actions_total',
      help: 'What operators did, by action.',
      labels: ['source', 'action'],
    }),
    forgotten: ofSource('caretaker_forgotten_total', 'Archived messages past their retention.'),
    orphans: ofSource('caretaker_orphans_total', 'Bodies without a message that were removed.'),
    engineSettled: ofSource('engine_settled_total', 'Claims that came to their end.'),
    operationFailures: families.counter({
      name: 'store_operation_failures_total',
      help: 'Operations of a store that failed.',
      labels: OF_OPERATION,
    }),
    alerts: families.counter({
      name: 'alerts_total',
      help: 'Alerts that fired and that were resolved, by rule.',
      labels: ['rule', 'phase'],
    }),
    scrapeFailures: ofSource('scrape_failures_total', 'Questions for a scrape that failed.'),
  };
}

function histograms(families: Families): Record<HistogramName, HistogramFamily> {
  const ofTopic = (name: string, help: string, bounds: readonly number[]): HistogramFamily =>
    families.histogram({ name, help, labels: OF_TOPIC, bounds });
  const ofOperation = (name: string, help: string, bounds: readonly number[]): HistogramFamily =>
    families.histogram({ name, help, labels: OF_OPERATION, bounds });
  return {
    attemptsToSuccess: ofTopic(
      'attempts_to_success',
      'The number of the attempt that delivered.',
      ATTEMPTS,
    ),
    timeToDelivery: ofTopic(
      'time_to_delivery_seconds',
      'From the enqueue to the delivery.',
      AGES_S,
    ),
    handlerDuration: ofTopic('handler_duration_seconds', 'Time in the handler.', HANDLER_S),
    retryDelay: ofTopic('retry_delay_seconds', 'How long a deferred message waits.', DELAYS_S),
    operationDuration: ofOperation(
      'store_operation_duration_seconds',
      'How long an operation of a store took.',
      OPERATION_S,
    ),
    batchSize: ofOperation('store_batch_size', 'Entries or bodies in one operation.', BATCHES),
  };
}

function gauges(families: Families): Record<GaugeName, NumberFamily> {
  const ofSource = (name: string, help: string): NumberFamily =>
    families.gauge({ name, help, labels: OF_SOURCE });
  return {
    messages: families.gauge({
      name: 'messages',
      help: 'Messages in each state.',
      labels: ['source', 'state'],
    }),
    topicMessages: families.gauge({
      name: 'topic_messages',
      help: 'Messages in each state, by topic.',
      labels: ['source', 'state', 'topic'],
    }),
    oldestAge: families.gauge({
      name: 'oldest_age_seconds',
      help: 'Since the enqueue of the oldest message, where the store can tell cheaply.',
      labels: ['source', 'state', 'topic'],
    }),
    nextDue: ofSource(
      'next_due_timestamp_seconds',
      'When the next waiting message is due, past or future; absent when none waits.',
    ),
    forecastDrain: ofSource(
      'forecast_drain_seconds',
      'Until nothing waits, at the present rates; absent while the backlog does not get smaller.',
    ),
    forecastFull: ofSource(
      'forecast_full_seconds',
      'Until the disk of the store is full; absent while it does not get fuller.',
    ),
    engineSlots: ofSource('engine_slots', 'Handlers that may run at once.'),
    engineSlotsBusy: ofSource('engine_slots_busy', 'Handlers that run now.'),
    engineWaiting: ofSource('engine_waiting', 'Claimed messages that wait for a slot.'),
    engineSettling: ofSource('engine_settling', 'Verdicts on their way to the store.'),
    engineRunning: ofSource('engine_running', '1 while the engine runs, otherwise 0.'),
    pausedTopics: ofSource('paused_topics', 'Pauses in force.'),
    statesAge: ofSource('states_age_seconds', 'Seconds since the store last returned its counts.'),
    alertsFiring: families.gauge({
      name: 'alerts_firing',
      help: '1 from when a rule fires until it is resolved, otherwise 0.',
      labels: ['rule'],
    }),
    info: families.gauge({
      name: 'info',
      help: 'Always 1; the label tells the version.',
      labels: ['version'],
    }),
  };
}

/** The label of a name: itself, or `other`. */
export type LabelOf = (name: string) => string;

/** Made by `createMetrics`, given to all that watch. */
export interface MetricsContext {
  readonly families: Families;
  readonly core: CoreFamilies;
  /** At most `topicsMax`. */
  readonly topicOf: LabelOf;
  /** At most `queuesMax`. */
  readonly queueOf: LabelOf;
  /** Codes of bounces, at most 50. */
  readonly codeOf: LabelOf;
  /** Words that others choose: actions of operators, rules of alerts; at most 200. */
  readonly wordOf: LabelOf;
  readonly aliases: readonly MetricAlias[];
  /** By which the course of a backlog is seen. */
  readonly clock: Pick<Clock, 'monotonic'>;
  /** Reserves a source name, and refuses one in use; returns the function that releases it. */
  readonly takeSource: (what: 'spool' | 'relay', name: string) => () => void;
}

/** Two of one name would overwrite each other's gauges. */
export function createSources(): MetricsContext['takeSource'] {
  const taken = new Set<string>();
  return (what, name) => {
    if (taken.has(name)) {
      throw new RespoolError(
        'config.invalid',
        `cannot watch a ${what} as "${name}": another is watched by that name; ` +
          'give it a "source" of its own, or stop watching the other',
      );
    }
    taken.add(name);
    return () => void taken.delete(name);
  };
}

// The values that a label may take: names chosen by others must not create series
// without end.

/** Stands for every name beyond the first ones. */
const OTHER = 'other';

/** The label of each name: itself for the first `max` names, then `other`. */
export function createLabels(max: number): (name: string) => string {
  const known = new Set<string>();
  return (name) => {
    if (known.has(name)) return name;
    if (known.size >= max) return OTHER;
    known.add(name);
    return name;
  };
}
