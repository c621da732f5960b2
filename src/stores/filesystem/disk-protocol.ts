/**
 * disk-protocol — what is said between the store and the thread that does its file work.
 *
 * One message per batch each way; bodies and contents ride in one transferred buffer, so nothing is
 * copied twice. Types only.
 */

import type { State } from '../../core/state.ts';
import type { Facts } from './catalog.ts';

/** When writes reach the disk itself. */
export type SyncMode = 'full' | 'batch' | 'none';

/** A stretch of the batch's buffer. */
export interface FileRange {
  readonly at: number;
  readonly bytes: number;
}

/** One change to one file. Paths are below the store's path; `bytes` is the length of `from`. */
export type DiskStep =
  | {
      readonly kind: 'create';
      readonly state: State;
      readonly name: string;
      readonly head: string;
      readonly body?: FileRange | undefined;
    }
  | {
      readonly kind: 'claim';
      readonly id: string;
      readonly from: string;
      readonly bytes: number;
      readonly state: State;
      readonly name: string;
    }
  | {
      readonly kind: 'change';
      readonly id: string;
      readonly from: string;
      readonly bytes: number;
      readonly state: State;
      readonly name: string;
      readonly status: string;
      readonly envelope?: string | undefined;
      /** New bytes, none, or those that are there. */
      readonly body: FileRange | 'none' | 'same';
    }
  | { readonly kind: 'remove'; readonly from: string; readonly bytes: number }
  | {
      readonly kind: 'setAside';
      readonly id: string;
      readonly from: string;
      readonly reason: string;
    };

/** What became of a step. */
export type StepDone =
  | {
      readonly kind: 'placed';
      readonly shard: number;
      readonly bytes: number;
      readonly content?: FileRange;
    }
  | { readonly kind: 'removed' }
  | { readonly kind: 'damaged'; readonly found: Damage };

/** Something that cannot be read as an entry, and where it was put. */
export interface Damage {
  readonly id?: string;
  readonly where: string;
  readonly reason: string;
}

/** An error as it crosses the thread's border. */
export interface DiskError {
  readonly code: string;
  readonly text: string;
}

/** Calls that go to the disk together; the steps of one call happen all or none. */
export interface Batch {
  readonly calls: readonly (readonly DiskStep[])[];
  readonly bodies: Uint8Array;
  /** Whether all of it, and everything before, must be on the disk before the answer. */
  readonly isDurable: boolean;
}

/** The answer to a batch. */
export interface BatchDone {
  readonly calls: readonly (readonly StepDone[] | DiskError)[];
  readonly contents: Uint8Array;
}

/** An entry found while opening. */
export interface FoundFile {
  readonly state: State;
  readonly shard: number;
  readonly name: string;
  readonly bytes: number;
  readonly facts: Facts;
}

/** What the store asks of the thread. */
export type DiskRequest =
  | { readonly kind: 'batch'; readonly batch: Batch }
  | { readonly kind: 'scan' }
  | { readonly kind: 'discard'; readonly paths: readonly string[] }
  | { readonly kind: 'close' };

/** What the thread answers; every request has one last answer. */
export type DiskReply =
  | { readonly kind: 'batch'; readonly done: BatchDone }
  | { readonly kind: 'found'; readonly found: readonly FoundFile[] }
  | { readonly kind: 'scanned'; readonly damages: readonly Damage[] }
  | { readonly kind: 'done' }
  | { readonly kind: 'failed'; readonly error: DiskError };
