/**
 * suite — the vocabulary of the conformance suites: a case, a store under test, the abilities of a
 * store.
 *
 * Free of any test framework: a case is a name and a function that rejects when the promise is
 * broken. The list holds only what the store can be asked, by its abilities.
 */

import type { BodyStore } from '../ports/body-store.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type {
  HearOperation,
  StoreOperation,
  StoreOperationName,
} from '../ports/store-operation.ts';

/** One promise of a port, and the way to check it. */
export interface SuiteCase {
  /** A sentence about behaviour. */
  readonly name: string;
  /** Rejects when the promise is broken. */
  readonly run: () => Promise<void>;
}

/** A fresh, empty, opened entry store and what the suite may do with it. */
export interface StoreUnderTest {
  readonly store: EntryStore;
  /** Closes the store and opens the same data again; needed for `canReopen`. */
  readonly reopen?: () => Promise<EntryStore>;
  /** Another opened instance over the same data, as another process has; needed for `canShare`. */
  readonly second?: () => Promise<EntryStore>;
  /** Makes the stored entry undecodable; needed for `canDamage`. */
  readonly damage?: (id: string) => Promise<void>;
  /** Closes everything that was opened and removes the data. */
  readonly dispose: () => Promise<void>;
}

/** Makes a store for one case. */
export type EntryStoreMaker = () => Promise<StoreUnderTest>;

/** Which of the optional parts of the suite fit this store. */
export interface EntryStoreAbilities {
  /** The data outlives the store object. */
  readonly canReopen: boolean;
  /** Several opened stores can use the same data at once. */
  readonly canShare: boolean;
  /** The maker knows how to damage an entry. */
  readonly canDamage: boolean;
  /** The store has `expireLost`; checked with `reopen`, and with `second` where there is one. */
  readonly canExpireLost?: boolean;
  /** Lists and counts by header or text are refused, as by a store that is sealed. */
  readonly refusesSearch?: boolean;
  /** The store keeps messages of one order key in order: `traits.ordered`. */
  readonly canOrder?: boolean;
  /** How many entries stand in the way in the load cases; default 20,000. */
  readonly crowd?: number;
}

/** A fresh, empty, opened body store and what the suite may do with it. */
export interface BodiesUnderTest {
  readonly bodies: BodyStore;
  /** Closes the store and opens the same data again; needed for `canReopen`. */
  readonly reopen?: () => Promise<BodyStore>;
  /** Closes everything that was opened and removes the data. */
  readonly dispose: () => Promise<void>;
}

/** Makes a body store for one case. */
export type BodyStoreMaker = () => Promise<BodiesUnderTest>;

/** Which of the optional parts of the suite fit this body store. */
export interface BodyStoreAbilities {
  /** The data outlives the store object. */
  readonly canReopen: boolean;
}

/** The operations reported so far, in order. */
interface HeardOperations {
  readonly list: readonly StoreOperation[];
  readonly stop: () => void;
}

/** Listens from now on; empty for a store that does not report operations. */
export function heardOperations(store: {
  onOperation?(hear: HearOperation): () => void;
}): HeardOperations | undefined {
  const list: StoreOperation[] = [];
  const stop = store.onOperation?.((operation) => {
    list.push(operation);
  });
  return stop === undefined ? undefined : { list, stop };
}

/** The number of items reported under a name, over all operations. */
export function itemsTold(list: readonly StoreOperation[], name: StoreOperationName): number {
  let items = 0;
  for (const operation of list) if (operation.name === name) items += operation.items;
  return items;
}
