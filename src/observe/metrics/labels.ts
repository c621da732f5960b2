/**
 * labels — the values that a label may take: a name that somebody else chooses must not make series
 * without end.
 */

/** Stands for every name beyond the first ones. */
const OTHER = 'other';

/** The label of each name: itself for the first `max` names, then `other`. */
export function createLabels(max: number): (name: string) => string {
  const known = new Set<string>();
  return (name) => {
    if (known.has(name)) return name;
    if (known.size >= max) return OTHER;
    known.add(name);
    return name;
  };
}
