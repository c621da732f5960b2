/**
 * circuitBreaker — middleware that lets no delivery begin while the other side keeps failing.
 *
 *   closed ─this many transient failures in a row─▶ open ─after a while─▶ half-open
 *   half-open ─one delivery is answered─▶ closed     half-open ─it is not─▶ open
 *
 * Answered: delivered, failed for good or held. Not answered: a transient failure, a postponement,
 * or an attempt that was called off.
 *
 * Nothing waits inside a slot: while the circuit is open, deliveries are postponed.
 */

import { type Duration, SECOND_MS } from '../core/duration.ts';
import { isRespoolError, unreachable } from '../core/errors.ts';
import type { Option } from '../core/option-table.ts';
import type { Outcome } from '../core/verdict.ts';
import type { Clock } from '../ports/clock.ts';
import type { Delivery, Middleware } from '../ports/handler.ts';
import { Breaker, type BreakerState } from '../system/breaker.ts';
import { systemClock } from '../system/clock.ts';
import { keyFunctionOf, type KeyBy, PerKey } from './per-key.ts';
import { checkFunction, checkMiddlewareOptions, CLOCK } from './options.ts';
import { returnOrRethrow, withoutThrowing, postponedOutcome, resultOf } from './run.ts';

/** The state that a circuit has entered. */
export type CircuitChange = BreakerState;

const CIRCUIT_BREAKER = {
  failures: {
    kind: 'number',
    min: 1,
    max: 10_000,
    default: 5,
    about: 'this many transient failures in a row open it',
  },
  halfOpenAfter: {
    kind: 'duration',
    min: '1ms',
    max: '1d',
    default: '30s',
    about: 'an open circuit lets one delivery try after this',
  },
  by: {
    kind: 'code',
    ts: 'KeyBy',
    defaultText: "`'topic'`",
    about: 'what has a circuit of its own',
  },
  onChange: {
    kind: 'code',
    ts: '(change: CircuitChange, key: string) => void',
    about: 'is called with every change and the key of the circuit',
  },
  clock: CLOCK,
} as const;

/** Every option of `circuitBreaker()`. */
export const CIRCUIT_BREAKER_OPTIONS: Readonly<Record<keyof CircuitBreakerOptions, Option>> =
  CIRCUIT_BREAKER;

/** What `circuitBreaker()` takes. */
export interface CircuitBreakerOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** This many transient failures in a row open it. 1 to 10,000; default 5. */
  readonly failures?: number;
  /** An open circuit lets one delivery try after this. 1ms to 1d; default 30s. */
  readonly halfOpenAfter?: Duration;
  /** What has a circuit of its own. Default `'topic'`. */
  readonly by?: KeyBy;
  /** Is called with every change and the key of the circuit. */
  readonly onChange?: (change: CircuitChange, key: string) => void;
  /** Time; the machine's unless given, a test gives its virtual one. */
  readonly clock?: Clock;
}

/** While one delivery tries a half-open circuit, the others look again after at most this. */
const TRIAL_WAIT_MS: number = 5 * SECOND_MS;

interface Settings {
  readonly failures: number;
  readonly halfOpenAfterMs: number;
  readonly onChange: CircuitBreakerOptions['onChange'];
  readonly clock: Clock;
}

/**
 * Opens after `failures` transient failures in a row; while it is open, deliveries are postponed
 * without costing an attempt. Permanent failures, held and postponed messages do not count, except
 * when they are the one delivery that tries: then a postponed one opens it again, the others close
 * it.
 */
export function circuitBreaker(options: CircuitBreakerOptions = {}): Middleware {
  const values = checkMiddlewareOptions('circuitBreaker', options, CIRCUIT_BREAKER);
  const { by = 'topic', onChange } = options;
  if (onChange !== undefined) checkFunction('onChange', onChange);
  const settings: Settings = {
    ...values,
    onChange,
    clock: options.clock ?? systemClock,
  };
  const circuits = new PerKey(keyFunctionOf('by', by), (key) => new Circuit(key, settings));
  return async (delivery, next) => {
    const circuit = circuits.of(delivery);
    const waitMs = circuit.waitMs();
    if (waitMs === 0) return circuit.run(delivery, next);
    const reason = `the circuit is open after ${settings.failures} failures in a row`;
    return postponedOutcome(waitMs, 'circuit.open', reason);
  };
}

/** What the end of an attempt says about the other side. */
type AttemptSignal = 'good' | 'bad' | 'answered' | 'nothing';

class Circuit {
  readonly #settings: Settings;
  readonly #breaker: Breaker;

  constructor(key: string, settings: Settings) {
    const { clock, failures, halfOpenAfterMs, onChange } = settings;
    this.#settings = settings;
    this.#breaker = new Breaker({
      clock,
      failures,
      pause: { firstMs: halfOpenAfterMs, maxMs: halfOpenAfterMs },
      onChange: (state) => {
        if (onChange !== undefined) withoutThrowing(() => onChange(state, key));
      },
    });
  }

  /** How long a delivery has to stay away; 0: it may go on. */
  waitMs(): number {
    // While one delivery tries, the others must not wait for its answer inside their slots.
    if (this.#breaker.state !== 'half-open') return this.#breaker.waitMs();
    return Math.min(TRIAL_WAIT_MS, this.#settings.halfOpenAfterMs);
  }

  async run({ signal }: Delivery, next: () => Promise<Outcome>): Promise<Outcome> {
    const isTrial = this.#breaker.state === 'open';
    if (isTrial) this.#breaker.halfOpen();
    let isCounted = false;
    const count = (sign: AttemptSignal): void => {
      if (!isCounted) this.#count(sign, isTrial);
      isCounted = true;
    };
    // A handler that never ends is given up by the engine. It must not keep a circuit half-open.
    const onAbort = (): void => count(signalOfAbort(signal.reason));
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    const result = await resultOf(next);
    signal.removeEventListener('abort', onAbort);
    count(signalOf(result.outcome));
    return returnOrRethrow(result);
  }

  #count(sign: AttemptSignal, isTrial: boolean): void {
    const isBad = sign === 'bad' || (isTrial && sign === 'nothing');
    if (isBad) this.#breaker.fail();
    else if (isTrial && this.#breaker.state === 'half-open') this.#breaker.succeed();
    // One that began before the circuit opened does not close it.
    else if (isTrial || sign === 'good') this.#breaker.reset();
  }
}

function signalOf(outcome: Outcome): AttemptSignal {
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
function signalOfAbort(reason: unknown): AttemptSignal {
  return isRespoolError(reason, 'limit.exceeded') ? 'bad' : 'nothing';
}
