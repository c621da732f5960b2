/** heard-operations — what a store tells of its operations, noted for the cases of the suites. */

import type {
  HearOperation,
  StoreOperation,
  StoreOperationName,
} from '../ports/store-operation.ts';

/** What was told so far, in its order. */
export interface HeardOperations {
  readonly list: readonly StoreOperation[];
  readonly stop: () => void;
}

/** Listens from now on; nothing for a store that does not tell. */
export function heardOperations(store: {
  onOperation?(hear: HearOperation): () => void;
}): HeardOperations | undefined {
  const list: StoreOperation[] = [];
  const stop = store.onOperation?.((operation) => {
    list.push(operation);
  });
  return stop === undefined ? undefined : { list, stop };
}

/** How many items were told under a name, over all operations. */
export function itemsTold(list: readonly StoreOperation[], name: StoreOperationName): number {
  let items = 0;
  for (const operation of list) if (operation.name === name) items += operation.items;
  return items;
}
