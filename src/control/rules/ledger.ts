/**
 * ledger — the state of one rule on record, and the right to run it: one process at a time.
 *
 *   take ─▶ ours ─beat─▶ ours, for longer
 *             ├─note─▶ ours, with what is known so far
 *             └─give─▶ nobody's, with what came of it
 *
 * Promise: every write is a compare-and-swap. Whoever took too long without a sign of life finds
 * the record changed, and is told so: somebody else may run the rule by then.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import type { RuleState } from './types.ts';

/** The kind of record that the state of rules is. */
export const RULES_KIND = 'dlq.rules';

/** How long a runner is believed in without a sign of life. */
export const RULE_LEASE_MS: number = 60 * SECOND_MS;
const BEAT_MS: number = 10 * SECOND_MS;

/** The state of a rule; nothing is known of one that never ran. */
export async function stateOf(records: RecordStore, rule: string): Promise<RuleState> {
  const found = await records.get(RULES_KIND, rule);
  return found?.value ?? {};
}

/** Who runs it now; undefined: nobody. */
export function runnerOf({ runner }: RuleState, now: number): RuleState['runner'] {
  return runner !== undefined && runner.until > now ? runner : undefined;
}

/** The right to run a rule, until it is given back. */
export interface Turn {
  /** As it was when the turn was taken. */
  readonly before: RuleState;
  /** Aborted when the turn is lost. */
  readonly lost: AbortSignal;
  /** Puts down what is known so far. */
  note(known: Partial<RuleState>): Promise<void>;
  /** Puts down what came of it, and lets go. */
  give(known: Partial<RuleState>): Promise<void>;
}

export interface TurnParts {
  readonly records: RecordStore;
  readonly rule: string;
  readonly runner: string;
  readonly clock: Clock;
}

/** Takes the turn of a rule; `taken`: somebody else runs it, or was quicker. */
export async function takeTurn(parts: TurnParts): Promise<Turn | 'taken'> {
  const { records, rule, runner, clock } = parts;
  const found = await records.get(RULES_KIND, rule);
  const before = (found?.value ?? {}) as RuleState;
  const other = runnerOf(before, clock.now());
  if (other !== undefined && other.name !== runner) return 'taken';
  const turn = new HeldTurn(parts, before, found?.revision ?? 0);
  return (await turn.begin()) ? turn : 'taken';
}

class HeldTurn implements Turn {
  readonly before: RuleState;
  readonly #parts: TurnParts;
  readonly #lost = new AbortController();
  #state: RuleState;
  #revision: number;
  /** By our own clock: until then nobody else takes the turn. */
  #heldUntilMs = 0;
  #callOff: () => void = () => undefined;
  /** Writes go one after the other: each needs the revision of the one before. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(parts: TurnParts, before: RuleState, revision: number) {
    this.#parts = parts;
    this.before = before;
    this.#state = before;
    this.#revision = revision;
  }

  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  async begin(): Promise<boolean> {
    const isOurs = await this.#put(this.#held({}));
    if (isOurs) this.#beatLater();
    return isOurs;
  }

  async note(known: Partial<RuleState>): Promise<void> {
    await this.#write(() => this.#held(known));
  }

  async give(known: Partial<RuleState>): Promise<void> {
    this.#callOff();
    await this.#write(() => {
      const { runner: _runner, ...rest } = { ...this.#state, ...known };
      return rest;
    });
    this.#callOff();
  }

  #held(known: Partial<RuleState>): RuleState {
    const { runner: name, clock } = this.#parts;
    return {
      ...this.#state,
      ...known,
      runner: { name, until: clock.now() + RULE_LEASE_MS },
    };
  }

  #beatLater(): void {
    this.#callOff = this.#parts.clock.after(BEAT_MS, () => {
      this.note({}).then(
        () => this.#beatLater(),
        (error: unknown) => this.#missBeat(error),
      );
    });
  }

  /** A store that is away for a moment is asked again, for as long as nobody can take the turn. */
  #missBeat(error: unknown): void {
    if (this.#lost.signal.aborted) return;
    if (this.#parts.clock.monotonic() + BEAT_MS < this.#heldUntilMs) this.#beatLater();
    // The round ends by this signal, and says why.
    else this.#lost.abort(error);
  }

  async #write(make: () => RuleState): Promise<void> {
    const written = this.#last.then(async () => {
      if (this.#lost.signal.aborted) throw this.#lost.signal.reason;
      if (!(await this.#put(make()))) throw this.#gone();
    });
    this.#last = written.catch(() => undefined);
    await written;
  }

  async #put(state: RuleState): Promise<boolean> {
    const { records, rule, clock } = this.#parts;
    const untilMs = clock.monotonic() + RULE_LEASE_MS;
    if ((await records.put(RULES_KIND, rule, state, this.#revision)) === 'stale') {
      if (!(await this.#catchUp())) return false;
      return this.#put(state);
    }
    this.#revision += 1;
    this.#state = state;
    this.#heldUntilMs = untilMs;
    return true;
  }

  /** A write without an answer may have been done: then the record is ours, and further on. */
  async #catchUp(): Promise<boolean> {
    const { records, rule, runner } = this.#parts;
    const found = await records.get(RULES_KIND, rule);
    const isOurs = found !== undefined && (found.value as RuleState).runner?.name === runner;
    if (!isOurs || found.revision <= this.#revision) return false;
    this.#revision = found.revision;
    return true;
  }

  #gone(): RespoolError {
    this.#callOff();
    const error = new RespoolError(
      'move.refused',
      `cannot go on with the rule "${this.#parts.rule}": there was no sign of life for too long, ` +
        'and another process has taken it over; nothing is to be done',
    );
    this.#lost.abort(error);
    return error;
  }
}
