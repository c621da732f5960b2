/**
 * relay-suspects — which messages had no answer, and whether that is their own fault.
 *
 * One message without an answer tells nothing: the target may be gone. It is the message when
 * others were answered since it had none, one of them right before it, and it alone has none again.
 * So a target that is gone is nobody's fault, and one that comes and goes charges one message each
 * time. Pure.
 */

/** What became of one message in a send. */
export interface Said {
  readonly id: string;
  /** `away`: no answer, and the target itself is said to be away. */
  readonly answer: 'heard' | 'silent' | 'away';
}

/** A target that is away is seldom the fault of a message; after so many times it is suspected. */
const AWAYS_MAX = 3;

/** Messages that are remembered, at the most. */
const REMEMBERED_MAX = 20_000;

/** Remembers what had no answer. */
export class Suspects {
  /** Sends that had an answer, and whether the last one had. */
  #heard = 0;
  #wasHeard = false;
  /** Messages without an answer, and how many sends had been answered by then. */
  readonly #silentAt = new Map<string, number>();
  readonly #aways = new Map<string, number>();

  get size(): number {
    return this.#silentAt.size;
  }

  has(id: string): boolean {
    return this.#silentAt.has(id);
  }

  /** Takes in what was said to one send. True: the one message of it is at fault. */
  hear(said: readonly Said[]): boolean {
    const wasHeard = this.#wasHeard;
    const isHeard = said.some(({ answer }) => answer === 'heard');
    this.#wasHeard = isHeard;
    if (isHeard) this.#heard += 1;
    const faults = said.map((one) => this.#isFault(one, isHeard));
    return said.length === 1 && wasHeard && faults[0] === true;
  }

  #isFault({ id, answer }: Said, isHeard: boolean): boolean {
    if (answer === 'heard') {
      this.#silentAt.delete(id);
      this.#aways.delete(id);
      return false;
    }
    const before = this.#silentAt.get(id);
    // Where others of the same send were answered, the target is not away.
    const isAway = answer === 'away' && !isHeard && before === undefined;
    if (isAway && this.#countAway(id) < AWAYS_MAX) return false;
    if (this.#silentAt.size >= REMEMBERED_MAX) this.#silentAt.clear();
    this.#silentAt.set(id, this.#heard);
    return before !== undefined && this.#heard > before;
  }

  #countAway(id: string): number {
    if (this.#aways.size >= REMEMBERED_MAX) this.#aways.clear();
    const aways = (this.#aways.get(id) ?? 0) + 1;
    this.#aways.set(id, aways);
    return aways;
  }
}
