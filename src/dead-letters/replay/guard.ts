/**
 * guard — stops a replay that does more harm than good: too many of its letters cannot be sent, or
 * fail again.
 *
 * Counts one run only: what was wrong before a resume is no reason to stop again.
 */

/** Below this nobody can speak of a share. */
const JUDGED_MIN = 10;
/** So many in a row that cannot be sent stop it before there is a share. */
const ROW_MAX = 10;

/** What became of the letters of one run, and whether that is too bad. */
export class FailureGuard {
  readonly #stopAbove: number;
  #sent = 0;
  #failed = 0;
  #again = 0;
  #delivered = 0;
  #inRow = 0;
  #last = '';

  /** Above this many percent it stops; 100: never. */
  constructor(stopAbove: number) {
    this.#stopAbove = stopAbove;
  }

  /** Whether anything could make it stop. */
  get isOn(): boolean {
    return this.#stopAbove < 100;
  }

  /** How many were sent in this run, or could not be. */
  get tried(): number {
    return this.#sent + this.#failed;
  }

  countSent(): void {
    this.#sent += 1;
    this.#inRow = 0;
  }

  countFailed(code: string, reason: string): void {
    this.#failed += 1;
    this.#inRow += 1;
    this.#last = reason === '' ? code : `${code}, ${reason}`;
  }

  /** News of letters that were sent: each of them once. */
  countNews(again: number, delivered: number): void {
    this.#again += again;
    this.#delivered += delivered;
  }

  /** Why it has to stop; undefined: go on. `isWhole`: there are not going to be more to judge. */
  verdict(isWhole = false): string | undefined {
    if (!this.isOn) return undefined;
    if (this.#inRow >= ROW_MAX) {
      return `${this.#inRow} letters in a row could not be sent${this.#because()}`;
    }
    const bad = this.#failed + this.#again;
    // Where deliveries are told, what is still on its way must not thin the share out.
    const known = bad + this.#delivered;
    const tried = this.#failed + this.#sent;
    const judged = this.#delivered > 0 && known >= JUDGED_MIN ? known : tried;
    if (bad === 0 || (judged < JUDGED_MIN && !isWhole)) return undefined;
    const percent = (100 * bad) / judged;
    if (percent <= this.#stopAbove) return undefined;
    return (
      `${bad} of ${judged} letters failed (${Math.round(percent)} %; ${this.#failed} could not ` +
      `be sent, ${this.#again} failed again), allowed are ${this.#stopAbove} %${this.#because()}`
    );
  }

  #because(): string {
    return this.#last === '' ? '' : `; the last one: ${this.#last}`;
  }
}
