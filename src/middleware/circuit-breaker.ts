/**
 * circuitBreaker — stops knocking at a door that stays shut.
 *
 *   closed ─this many transient failures in a row─▶ open ─after a while─▶ half-open
 *   half-open ─one delivery goes well─▶ closed     half-open ─it does not─▶ open
 *
 * The states are cockatiel's. Ours is what counts as a failure, that nobody waits inside a slot,
 * and the clock.
 */

import {
  type CircuitBreakerPolicy,
  circuitBreaker as makePolicy,
  CircuitState,
  ConsecutiveBreaker,
  handleWhenResult,
  type IBackoff,
} from 'cockatiel';
import { DAY_MS, type Duration, durationMs, SECOND_MS } from '../core/duration.ts';
import { isRespoolError, unreachable } from '../core/errors.ts';
import { checkNumber } from '../core/limits.ts';
import type { Outcome } from '../core/verdict.ts';
import type { Clock } from '../ports/clock.ts';
import type { Delivery, Middleware } from '../ports/handler.ts';
import { systemClock } from '../system/clock.ts';
import { countedBy, type CountedBy, Keyed } from './keyed.ts';
import { checkFunction, checkOptions } from './options.ts';
import { asItWas, harmlessly, notNow, resultOf } from './run.ts';

/** What state a circuit went into. */
export type CircuitChange = 'closed' | 'open' | 'half-open';

/** What `circuitBreaker()` takes. */
export interface CircuitBreakerOptions {
  /** This many transient failures in a row open it, 1 to 10,000; 5 unless given. */
  readonly failures?: number;
  /** An open circuit lets one delivery try after this, `'30s'` unless given. */
  readonly halfOpenAfter?: Duration;
  /** What has a circuit of its own: each `'topic'` unless given. */
  readonly by?: CountedBy;
  /** Told of every change, with the key of the circuit. */
  readonly onChange?: (change: CircuitChange, key: string) => void;
  /** The machine's unless given; a test gives its virtual one. */
  readonly clock?: Clock;
}

const FAILURES_MAX = 10_000;
/** While one delivery tries a half-open circuit, the others look again after at most this. */
const TRIAL_WAIT_MS: number = 5 * SECOND_MS;

interface Settings {
  readonly failures: number;
  readonly halfOpenAfterMs: number;
  readonly onChange: CircuitBreakerOptions['onChange'];
  readonly clock: Clock;
}

/**
 * Opens after so many transient failures in a row; while it is open, deliveries are postponed at no
 * cost of an attempt. Permanent failures, held and postponed messages do not count.
 */
export function circuitBreaker(options: CircuitBreakerOptions = {}): Middleware {
  checkOptions('circuitBreaker', options, ['failures', 'halfOpenAfter', 'by', 'onChange', 'clock']);
  const { failures = 5, halfOpenAfter = '30s', by = 'topic', onChange } = options;
  if (onChange !== undefined) checkFunction('onChange', onChange);
  const settings: Settings = {
    failures: checkNumber('failures', failures, { min: 1, max: FAILURES_MAX }),
    halfOpenAfterMs: durationMs(halfOpenAfter, 'halfOpenAfter', { minMs: 1, maxMs: DAY_MS }),
    onChange,
    clock: options.clock ?? systemClock,
  };
  const circuits = new Keyed(countedBy('by', by), (key) => new Circuit(key, settings));
  return async (delivery, next) => {
    const circuit = circuits.of(delivery);
    const waitMs = circuit.waitMs();
    if (waitMs === 0) return circuit.run(delivery, next);
    const reason = `the circuit is open after ${settings.failures} failures in a row`;
    return notNow(waitMs, 'circuit.open', reason);
  };
}

/** What an attempt says about the other side. */
type Sign = 'good' | 'bad' | 'answered' | 'nothing';

class Circuit {
  readonly #settings: Settings;
  readonly #policy: CircuitBreakerPolicy;
  #halfOpenAt = 0;

  constructor(key: string, settings: Settings) {
    this.#settings = settings;
    this.#policy = makePolicy(handleWhenResult(isBad), {
      breaker: new ConsecutiveBreaker(settings.failures),
      halfOpenAfter: { next: () => this.#openSpan() },
    });
    const { onChange } = settings;
    if (onChange === undefined) return;
    this.#policy.onStateChange((state) => {
      harmlessly(() => onChange(changeOf(state), key));
    });
  }

  /** How long a delivery has to stay away; 0: it may go on. */
  waitMs(): number {
    const { clock, halfOpenAfterMs } = this.#settings;
    switch (this.#policy.state) {
      case CircuitState.Open:
        return Math.max(0, Math.ceil(this.#halfOpenAt - clock.monotonic()));
      case CircuitState.HalfOpen:
        // n.b. cockatiel would let it wait for the answer of the one that tries, inside its slot.
        return Math.min(TRIAL_WAIT_MS, halfOpenAfterMs);
      default:
        return 0;
    }
  }

  async run({ signal }: Delivery, next: () => Promise<Outcome>): Promise<Outcome> {
    const isTrial = this.#policy.state !== CircuitState.Closed;
    const sign = Promise.withResolvers<Sign>();
    const counted = this.#policy.execute(async () => {
      const seen = await sign.promise;
      if (isTrial) return seen === 'bad' || seen === 'nothing' ? 'bad' : 'good';
      // What is thrown here cockatiel counts neither as a failure nor as a success.
      if (seen === 'answered' || seen === 'nothing') throw new Uncounted();
      return seen;
    });
    // A handler that never ends is given up by the engine. It must not keep a circuit half-open.
    const onAbort = (): void => sign.resolve(signOfAbort(signal.reason));
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    const result = await resultOf(next);
    signal.removeEventListener('abort', onAbort);
    sign.resolve(signOf(result.outcome));
    // Counted before the slot is free, or the next delivery could still slip through.
    await counted.catch(() => undefined);
    return asItWas(result);
  }

  /**
   * The span for which it stays open. Cockatiel compares it with the wall clock: endless until our
   * own clock says it is over, it takes no notice of a wall clock that jumps.
   */
  #openSpan(): IBackoff<unknown> {
    const { clock, halfOpenAfterMs } = this.#settings;
    const endsAt = clock.monotonic() + halfOpenAfterMs;
    this.#halfOpenAt = endsAt;
    return {
      get duration() {
        return clock.monotonic() < endsAt ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
      },
      next: () => this.#openSpan(),
    };
  }
}

class Uncounted extends Error {
  override readonly name = 'Uncounted';
}

function isBad(sign: unknown): boolean {
  return sign === 'bad';
}

function signOf(outcome: Outcome): Sign {
  switch (outcome.kind) {
    case 'delivered':
      return 'good';
    case 'failed':
      return outcome.failure.permanence === 'transient' ? 'bad' : 'answered';
    case 'held':
      return 'answered';
    case 'postponed':
      return 'nothing';
    default:
      return unreachable(outcome);
  }
}

/** A handler that was too slow is a failure; a lost lease or our own stop says nothing. */
function signOfAbort(reason: unknown): Sign {
  return isRespoolError(reason, 'limit.exceeded') ? 'bad' : 'nothing';
}

function changeOf(state: CircuitState): CircuitChange {
  if (state === CircuitState.Closed) return 'closed';
  return state === CircuitState.HalfOpen ? 'half-open' : 'open';
}
