/**
 * slots — state and lane in one small number: the first column of the indexes.
 */

import { type Lane, type State, STATES } from '../../core/state.ts';

/** `2 × state + lane`, lane 1 for notices. */
export type Slot = number;

export const SLOT_COUNT = 12;

/** Slots from here on are archived; below, `entries_due` holds every entry. */
export const ARCHIVED_SLOT = 10;

/** The slots that `entries_flow` holds: those in which entries wait for a claim in numbers. */
export const WAITING_SLOTS: readonly Slot[] = [0, 4, 9];

/**
 * How `entries_flow` sees a slot. n.b. As an expression on purpose: before its first ANALYZE the
 * server takes every index for equally good, and would walk a whole backlog through `entries_due`.
 */
export const FLOW_SLOT_SQL = '(slot + 0)';

/** The condition of `entries_flow`. */
export const WAITING_SQL: string = `${FLOW_SLOT_SQL} IN (${WAITING_SLOTS.join(', ')})`;

export function slotOf(state: State, lane: Lane): Slot {
  return 2 * STATES.indexOf(state) + (lane === 'notice' ? 1 : 0);
}

export function isActiveSlot(slot: Slot): boolean {
  return slot === 2 || slot === 3;
}

export function stateOfSlot(slot: Slot): State | undefined {
  return STATES[slot >> 1];
}

export function laneOfSlot(slot: Slot): Lane {
  return slot % 2 === 0 ? 'delivery' : 'notice';
}
