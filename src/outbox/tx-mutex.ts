/**
 * tx-mutex — calls on one transaction, one after the other.
 *
 * A call may take several statements. Another that came in between would overtake it, or be undone
 * with it; and in which transaction they are is found out once.
 */

/** Calls on one object that stands for a transaction. */
export interface TxMutex {
  /** The id of the transaction, as far as it is known. */
  xid: string | undefined;
}

interface OwnLane extends TxMutex {
  waiting: number;
  last: Promise<unknown>;
}

/** Lanes by their objects. */
export class TxMutexes {
  readonly #lanes = new WeakMap<object, OwnLane>();

  /**
   * Runs `work` when those before it on the same object are through: at once if there are none, and
   * nothing is awaited then. `isKept`: the object lives no longer than its transaction, so the id
   * is kept.
   */
  run<T>(tx: object, isKept: boolean, work: (lane: TxMutex) => Promise<T>): Promise<T> {
    const lane = this.#laneOf(tx);
    const run = lane.waiting === 0 ? work(lane) : lane.last.then(() => work(lane));
    lane.waiting += 1;
    const leave = (): void => {
      lane.waiting -= 1;
      if (lane.waiting === 0 && !isKept) lane.xid = undefined;
    };
    lane.last = run.then(leave, leave);
    return run;
  }

  #laneOf(tx: object): OwnLane {
    const known = this.#lanes.get(tx);
    if (known !== undefined) return known;
    const lane: OwnLane = { xid: undefined, waiting: 0, last: Promise.resolve() };
    this.#lanes.set(tx, lane);
    return lane;
  }
}
