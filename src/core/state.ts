/**
 * state — the six states, who may move a message between them, and their diagram.
 *
 *  enqueue ─▶ incoming ─claim()─▶ active ─settle(ack)─▶ archived | (removed)
 *               ▲                 │ ▲ └─settle(bounce)─▶ bounce ─claim(), lane notice─▶ active
 *               │   settle(defer) ▼ │ claim(), when due
 *            operator           deferred          hold ◀─ settle(hold), operator
 *
 * The table is data: operator.ts asks it before every move of an operator, the simulator checks
 * every move against it (testkit/simulator/checks/writes.ts). Stores take any of the 36 pairs.
 */

/** Where a message is. */
export type State = 'incoming' | 'active' | 'deferred' | 'hold' | 'bounce' | 'archived';

/** Which handler a claim is for: the delivery handler, or the bounce handler. */
export type Lane = 'delivery' | 'notice';

/**
 * All states; the index is the number other systems know them by (0–5). Tables store it
 * (stores/shared/sql-row.ts), so the order must not change.
 */
export const STATES: readonly State[] = [
  'incoming',
  'active',
  'deferred',
  'hold',
  'bounce',
  'archived',
];

/** The states a claim can take an entry from; `active` only when its lease is over. */
export type ClaimableState = 'incoming' | 'deferred' | 'bounce' | 'active';

/** Who performs a move: a claim, the settling of a claim, or an operator. */
export type Mover = 'claim' | 'settle' | 'operator';

/** `TRANSITIONS[from][to]`: who may make this move. A pair that is missing is never legal. */
export const TRANSITIONS: Readonly<
  Record<State, Readonly<Partial<Record<State, readonly Mover[]>>>>
> = {
  incoming: {
    active: ['claim'],
    hold: ['operator'],
    bounce: ['operator'],
    archived: ['operator'],
  },
  active: {
    // A lost lease: the same entry is claimed again; or its holder extends or returns it.
    active: ['claim', 'settle'],
    // An operator may take over what a lost holder left, once its lease is over.
    incoming: ['settle', 'operator'],
    deferred: ['settle'],
    hold: ['settle', 'operator'],
    bounce: ['settle', 'operator'],
    archived: ['settle', 'operator'],
  },
  deferred: {
    active: ['claim'],
    incoming: ['operator'],
    hold: ['operator'],
    bounce: ['operator'],
    archived: ['operator'],
  },
  hold: {
    incoming: ['operator'],
    bounce: ['operator'],
    archived: ['operator'],
  },
  bounce: {
    active: ['claim'],
    incoming: ['operator'],
    hold: ['operator'],
    archived: ['operator'],
  },
  archived: {
    incoming: ['operator'],
    hold: ['operator'],
  },
};

/** Whether this mover may take a message from one state to the other. */
export function mayMove(from: State, to: State, mover: Mover): boolean {
  return TRANSITIONS[from][to]?.includes(mover) ?? false;
}

/**
 * The number of a state, 0–5.
 *
 * @example
 * import { STATES, stateNumber, stateOfNumber } from 'respool';
 * const numbers = STATES.map((state) => stateNumber(state));
 * const deferred = numbers.find((number) => stateOfNumber(number) === 'deferred');
 */
export function stateNumber(state: State): number {
  return STATES.indexOf(state);
}

/** The state of a number, or undefined when there is none. */
export function stateOfNumber(number: number): State | undefined {
  return STATES[number];
}
