/**
 * points-order — what points.ts and the program that dies at a point agree on: the steps, in order,
 * and what each of them makes of its message.
 *
 *   prepared before the first point ─▶ enqueue ─▶ claim, settle ×4 ─▶ remove ─▶ caretaker ─▶ stop
 */
import { fixed, type SpoolOptions, type State } from 'respool';
import type { Place } from './places.ts';

/** What the parent passes. */
export interface PointsOrder {
  readonly place: Place;
  readonly path: string;
  /** `steps`: carry out the script. `open`: open what another process left, and close it. */
  readonly phase: 'steps' | 'open';
}

/** Where a message is, or that there is none. */
export type Whereabouts = State | 'absent';

/** What a handler makes of its message. */
export type Settling = 'ack' | 'defer' | 'bounce' | 'hold';

/** One step of the script. The keys are the messages it touches. */
export interface Step {
  readonly name: string;
  readonly keys: readonly string[];
  readonly from: Whereabouts;
  readonly to: Whereabouts;
  /** Whether it claims first: then the message may be found active, with its attempt counted. */
  readonly settling?: Settling;
}

const SMALL_BYTES = 700;
const STORED_BYTES = 40 * 1_024;

/** Bytes of a message's body: those with an `s` in front of the digit are kept in the body store. */
export function sizeOf(key: string): number {
  return /^[a-z]+s\d/.test(key) ? STORED_BYTES : SMALL_BYTES;
}

/** Messages that nothing happens to: they must be there in the end, whatever happens beside them. */
export const NEIGHBOURS: readonly string[] = ['idle1', 'idles1'];

/** Messages that are there before the first step. `old` ones wait for the caretaker. */
export const PREPARED: readonly string[] =
  'ack1 acks1 own1 owns1 defer1 defers1 bounce1 hold1 remove1 removes1 old1 olds1'.split(' ');

export const STEPS: readonly Step[] = [
  { name: 'enqueue', keys: ['new1'], from: 'absent', to: 'incoming' },
  { name: 'enqueue stored', keys: ['news1'], from: 'absent', to: 'incoming' },
  { name: 'enqueue many', keys: ['new2', 'news2', 'new3', 'new4'], from: 'absent', to: 'incoming' },
  { name: 'ack', keys: ['ack1'], from: 'incoming', to: 'absent', settling: 'ack' },
  { name: 'ack stored', keys: ['acks1'], from: 'incoming', to: 'absent', settling: 'ack' },
  { name: 'ack own id', keys: ['own1'], from: 'incoming', to: 'archived', settling: 'ack' },
  { name: 'ack own id stored', keys: ['owns1'], from: 'incoming', to: 'archived', settling: 'ack' },
  { name: 'defer', keys: ['defer1'], from: 'incoming', to: 'deferred', settling: 'defer' },
  { name: 'defer stored', keys: ['defers1'], from: 'incoming', to: 'deferred', settling: 'defer' },
  { name: 'bounce', keys: ['bounce1'], from: 'incoming', to: 'bounce', settling: 'bounce' },
  { name: 'hold', keys: ['hold1'], from: 'incoming', to: 'hold', settling: 'hold' },
  { name: 'remove', keys: ['remove1'], from: 'incoming', to: 'absent' },
  { name: 'remove stored', keys: ['removes1'], from: 'incoming', to: 'absent' },
  { name: 'caretaker', keys: ['old1', 'olds1'], from: 'archived', to: 'absent' },
  { name: 'stop', keys: [], from: 'absent', to: 'absent' },
];

/** Messages of one run. */
export const MESSAGES: number = NEIGHBOURS.length + STEPS.flatMap(({ keys }) => keys).length;

/** A deferred message stays so for an hour; what was removed softly is forgotten at once. */
export const SPOOL_OPTIONS: SpoolOptions = {
  policies: { default: fixed('1h') },
  retention: { removed: '1ms' },
  // There are no handlers here but those of the script.
  unhandled: 'leave',
};
