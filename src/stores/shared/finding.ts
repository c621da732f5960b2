/** finding — what a store on a server says about that server when the doctor asks. */

import type { Durability } from '../../ports/entry-store.ts';

/** One thing about a server: right, worth knowing, or a danger. */
export interface StoreFinding {
  /** Stable, such as `version`, `primary`, `sync`. */
  readonly id: string;
  readonly level: 'ok' | 'note' | 'unsafe';
  readonly text: string;
  /** How to fix it; none where nothing needs fixing. */
  readonly todo?: string;
}

/** What a look at a server found; nothing was made or changed there. */
export interface Diagnosis {
  /** What is acknowledged there survives this. */
  readonly durability: Durability;
  /** Whether our tables, stream or bucket are there already. */
  readonly isThere: boolean;
  readonly findings: readonly StoreFinding[];
}

export function fine(id: string, text: string): StoreFinding {
  return { id, level: 'ok', text };
}

export function noteFinding(id: string, text: string, todo?: string): StoreFinding {
  return { id, level: 'note', text, ...(todo === undefined ? {} : { todo }) };
}

export function danger(id: string, text: string, todo: string): StoreFinding {
  return { id, level: 'unsafe', text, todo };
}
