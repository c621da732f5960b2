/**
 * judge — compares what was laid into a dead queue with what lies in it and elsewhere afterwards.
 *
 *   lost        nowhere
 *   duplicated  found beyond the first time
 *   unexpected  nobody laid it down, or it is where it does not belong, or out of its order
 *   corrupt     another body, or other properties or headers of its own
 *
 * Pure.
 */
import type { Laid, Seen } from './stock.ts';

/** What was found where, each in order. */
export interface Evidence {
  readonly laid: readonly Laid[];
  /** In the dead queue. */
  readonly left: readonly Seen[];
  /** Where it was to go. */
  readonly moved: readonly Seen[];
  /** Whether a letter may lie in the dead queue, or at its destination. */
  readonly mayLie: (one: Laid, where: 'left' | 'moved') => boolean;
  /** As many duplicates may be. */
  readonly bound: number;
  /** Whether what is left has to lie in the order it was laid down; default true. */
  readonly keepsOrder?: boolean;
}

export interface Verdict {
  readonly messages: number;
  readonly lost: number;
  readonly duplicated: number;
  readonly bound: number;
  readonly unexpected: number;
  readonly corrupt: number;
  readonly complaints: readonly string[];
}

type HasId = Pick<Laid, 'id'>;

const IDS_SHOWN = 5;

/** Judges a queue that has come to rest. */
export function judgeLetters(evidence: Evidence): Verdict {
  const { laid, left, moved, mayLie, bound, keepsOrder = true } = evidence;
  const complaints: string[] = [];
  const complain = (ids: readonly string[], what: string): number => {
    const shown = ids.slice(0, IDS_SHOWN).join(' ');
    if (ids.length > 0) complaints.push(`${ids.length} ${what}: ${shown}`);
    return ids.length;
  };
  const known = new Map(laid.map((one) => [one.id, one]));
  const all = [...left, ...moved];
  const ids = all.map(({ id }) => id);
  const found = new Set(ids);
  const missing = laid.filter(({ id }) => !found.has(id)).map(({ id }) => id);
  const strange = ids.filter((id) => !known.has(id));
  const astray = (seen: readonly Seen[], where: 'left' | 'moved'): string[] =>
    seen
      .filter(({ id }) => {
        const one = known.get(id);
        return one !== undefined && !mayLie(one, where);
      })
      .map(({ id }) => id);
  const damaged = all.filter(({ id, sha256, look }) => {
    const one = known.get(id);
    return one !== undefined && (one.sha256 !== sha256 || one.look !== look);
  });
  const duplicated = ids.length - found.size;
  if (duplicated > bound) complain(twice(ids), `found twice, the bound is ${bound}`);
  return {
    messages: laid.length,
    lost: complain(missing, 'lost'),
    duplicated,
    bound,
    unexpected:
      complain(strange, 'that nobody laid down') +
      complain(astray(left, 'left'), 'left that should have gone') +
      complain(astray(moved, 'moved'), 'moved that should have stayed') +
      complain(keepsOrder ? outOfOrder(laid, left) : [], 'out of their order'),
    corrupt: complain(
      damaged.map(({ id }) => id),
      'with another body, other properties or other headers',
    ),
    complaints,
  };
}

/** Ids that are there once more. */
function twice(ids: readonly string[]): string[] {
  const seen = new Set<string>();
  return ids.filter((id) => seen.size === seen.add(id).size);
}

/** What lies behind something that was laid down after it. */
export function outOfOrder(laid: readonly HasId[], left: readonly HasId[]): string[] {
  const places = new Map(laid.map(({ id }, at) => [id, at]));
  const wrong: string[] = [];
  let last = -1;
  for (const { id } of left) {
    const place = places.get(id) ?? last;
    if (place < last) wrong.push(id);
    else last = place;
  }
  return wrong;
}
