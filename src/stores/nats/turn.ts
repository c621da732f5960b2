/** turn — all at once, but for what concerns the same thing: there the first of a call is first. */

/** Acts on all items; one that shares a name with an earlier one waits until that is through. */
export function inTurn<Item, Result>(
  items: readonly Item[],
  namesOf: (item: Item) => readonly string[],
  act: (item: Item) => Promise<Result>,
): Promise<Result>[] {
  const lastOf = new Map<string, Promise<unknown>>();
  return items.map((item) => {
    const names = namesOf(item);
    const before = names.flatMap((name) => lastOf.get(name) ?? []);
    const done = before.length === 0 ? act(item) : Promise.allSettled(before).then(() => act(item));
    for (const name of names) lastOf.set(name, done);
    return done;
  });
}
