/**
 * dead-letter-metrics — metrics of sweeps and replays.
 *
 * A sweep is counted by its caller (`count`), or by its events; a replay by its events, which
 * tell its counts as a whole.
 */

import { SECOND_MS } from '../../core/duration.ts';
import type { EventOf } from '../../core/event.ts';
import type { ReplayState } from '../../spool/operator/replays.ts';
import type { SweepCount, Watchable } from './types.ts';
import { type Families, observe } from './families.ts';
import type { MetricsContext, LabelOf } from './context.ts';

/** From a look at empty queues to an hour of moving. */
const RUNS_S = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600];
const RESULTS = ['succeeded', 'failed'] as const;
const COUNTS = ['sent', 'failed', 'again'] as const;
/** Every state of a replay: spool/operator/replays.ts. */
const REPLAY_STATES = [
  'planned',
  'running',
  'paused',
  'stopped',
  'cancelled',
  'done',
] as const satisfies readonly ReplayState[];
/** Maximum number of replays whose counts are remembered: the most recent ones. */
const REPLAYS_MAX = 1_000;
const OVER: ReadonlySet<string> = new Set(['stopped', 'cancelled', 'done']);

/** Counts sweeps. */
export class SweepRows {
  readonly #all: ReturnType<typeof sweepFamilies>;
  readonly #queueOf: LabelOf;

  constructor(families: Families, queueOf: LabelOf) {
    this.#all = sweepFamilies(families);
    this.#queueOf = queueOf;
  }

  /** All are there from now on: a rate over a series that appears late misses its start. */
  begin(): void {
    this.beginRuns();
    this.#all.lastSuccess.row();
    this.#all.duration.row();
  }

  /** Zeros for a service before its first sweep. */
  beginRuns(): void {
    for (const result of RESULTS) this.#all.runs.row(result);
  }

  /** A run over many queues. */
  count({ isWell, endedAt, tookMs, reports, error }: SweepCount): void {
    this.begin();
    observe(this.#all.duration.row(), tookMs / SECOND_MS);
    this.#ended(isWell, endedAt);
    // A queue that is gone leaves nothing; a run that could not begin knows of none.
    if (error === undefined) this.#all.left.clear();
    for (const { queue, moved, left, seen, error: why } of reports) {
      const label = this.#queueOf(queue);
      this.#all.messages.row(label).value += moved;
      // Added, not set: several queues share the label `other`. One that was not seen adds nothing.
      if (why === undefined || seen > 0) this.#all.left.row(label).value += left;
    }
  }

  /** One queue of a run whose report is not passed to us. */
  hear({ queue, moved, left, error, at }: EventOf<'sweep'>): void {
    const label = this.#queueOf(queue);
    this.#ended(error === undefined, at);
    this.#all.messages.row(label).value += moved;
    this.#all.left.row(label).value = left;
  }

  #ended(isWell: boolean, at: number): void {
    this.#all.runs.row(isWell ? 'succeeded' : 'failed').value += 1;
    if (isWell) this.#all.lastSuccess.row().value = at / SECOND_MS;
  }
}

function sweepFamilies(families: Families) {
  const labels = ['queue'];
  return {
    runs: families.counter({
      name: 'sweep_runs_total',
      help: 'Runs of the sweep, by how they ended.',
      labels: ['result'],
    }),
    messages: families.counter({
      name: 'sweep_messages_total',
      help: 'Messages that were moved to the target.',
      labels,
    }),
    left: families.gauge({
      name: 'sweep_left',
      help: 'Messages that the last run saw and left where they are.',
      labels,
    }),
    lastSuccess: families.gauge({
      name: 'sweep_last_success_timestamp_seconds',
      help: 'When a run last ended without any failure, in seconds since the epoch; 0: never.',
    }),
    duration: families.histogram({
      name: 'sweep_duration_seconds',
      help: 'How long a run took.',
      bounds: RUNS_S,
    }),
  };
}

type Counts = Pick<EventOf<'replay'>, (typeof COUNTS)[number]>;

/** Counts the events of sweeps and replays. */
export class DeadLetterMetrics {
  readonly sweeps: SweepRows;
  readonly #replays: ReturnType<typeof replayFamilies>;
  /** The counts of each replay at its last event. */
  readonly #known = new Map<string, Counts>();

  constructor({ families, queueOf }: MetricsContext) {
    this.sweeps = new SweepRows(families, queueOf);
    this.#replays = replayFamilies(families);
  }

  /** Hears of passes from now on; returns the end. */
  watch(source: Watchable): () => void {
    this.sweeps.beginRuns();
    for (const state of REPLAY_STATES) this.#replays.states.row(state);
    for (const result of COUNTS) this.#replays.letters.row(result);
    const stops = [
      source.on('sweep', (event) => this.sweeps.hear(event)),
      source.on('replay', (event) => this.#hear(event)),
    ];
    return () => {
      for (const stop of stops) stop();
    };
  }

  #hear(event: EventOf<'replay'>): void {
    const { replay, state, sent, failed, again } = event;
    const { states, letters } = this.#replays;
    states.row(state).value += 1;
    // What it had counted before its first event here was counted by another process or earlier.
    const before = this.#known.get(replay) ?? event;
    for (const result of COUNTS) {
      letters.row(result).value += Math.max(0, event[result] - before[result]);
    }
    this.#known.delete(replay);
    if (!OVER.has(state)) this.#known.set(replay, { sent, failed, again });
    const [oldest] = this.#known.keys();
    if (this.#known.size > REPLAYS_MAX && oldest !== undefined) this.#known.delete(oldest);
  }
}

function replayFamilies(families: Families) {
  return {
    states: families.counter({
      name: 'replays_total',
      help: 'Replays that came to a state.',
      labels: ['state'],
    }),
    letters: families.counter({
      name: 'replay_letters_total',
      help: 'Dead letters that replays went over, by what came of them.',
      labels: ['result'],
    }),
  };
}
