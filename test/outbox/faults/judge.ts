/**
 * judge — compares what writers did with what came out at the other side.
 *
 *   lost        committed, and never published
 *   unexpected  published, and rolled back or never written
 *   duplicated  publications beyond the first of a message
 *   disordered  first publications of a key that are not in the order of its writers
 *   extra       effects beyond the first of a message, or effects of what was never committed
 *
 * What was committed is what the table of the writers says, which is written in the same
 * transaction. A commit without an answer is judged by it, too. Pure.
 */

/** What a writer was told about a message. `unknown`: its commit was never answered. */
export type WriteOutcome = 'committed' | 'rolled back' | 'unknown';

/** One message that came out of the exchange, in the order of the queue that collects them. */
export interface Sight {
  readonly id: string;
  /** What the broker gives a second time is no second publication. */
  readonly redelivered: boolean;
  /** The key of messages that have one, and the place that its writer gave it. */
  readonly key: string;
  readonly place: number;
}

export interface Evidence {
  readonly written: ReadonlyMap<string, WriteOutcome>;
  /** The ids that the table of the writers holds in the end. */
  readonly kept: ReadonlySet<string>;
  readonly sights: readonly Sight[];
  /** How often each message had its effect. */
  readonly effects: ReadonlyMap<string, number>;
  /** Rows that are left in the outbox. */
  readonly left: number;
  /** As many duplicates may be. */
  readonly bound: number;
}

export interface OutboxVerdict {
  readonly messages: number;
  readonly rolledBack: number;
  /** First publications of messages with a key. */
  readonly keyed: number;
  readonly lost: number;
  readonly unexpected: number;
  readonly duplicated: number;
  readonly bound: number;
  readonly complaints: readonly string[];
}

const IDS_SHOWN = 5;

/** Judges a run that has come to rest. */
export function judgeOutbox(evidence: Evidence): OutboxVerdict {
  const { written, kept, sights, effects, left, bound } = evidence;
  const complaints: string[] = [];
  const complain = (ids: readonly string[], what: string): number => {
    const shown = ids.slice(0, IDS_SHOWN).join(' ');
    if (ids.length > 0) complaints.push(`${ids.length} ${what}: ${shown}`);
    return ids.length;
  };
  const of = (outcome: WriteOutcome): string[] =>
    [...written].filter(([, one]) => one === outcome).map(([id]) => id);
  const seen = new Set(sights.map(({ id }) => id));
  const isGone = (id: string): boolean => !kept.has(id);
  complain(of('committed').filter(isGone), 'committed and forgotten by the database');
  const lost = complain(
    [...kept].filter((id) => !seen.has(id)),
    'committed and never published',
  );
  const unexpected = complain([...seen].filter(isGone), 'published and not committed');
  complain(
    [...kept].filter((id) => (effects.get(id) ?? 0) === 0),
    'committed without their effect',
  );
  complain(
    [...effects].filter(([id, count]) => count > 1 || isGone(id)).map(([id]) => id),
    'with an effect too many',
  );
  complain(disordered(sights), 'out of their order');
  if (left > 0) complaints.push(`${left} rows are left in the outbox`);
  const duplicated = duplicates(sights);
  if (duplicated > bound) complaints.push(`${duplicated} duplicates, the bound is ${bound}`);
  const keyed = new Set(sights.filter(({ key }) => key !== '').map(({ id }) => id)).size;
  const rolledBack = of('rolled back').length;
  return {
    messages: kept.size,
    rolledBack,
    keyed,
    lost,
    unexpected,
    duplicated,
    bound,
    complaints,
  };
}

/** Publications beyond the first of each message. */
function duplicates(sights: readonly Sight[]): number {
  const published = new Map<string, number>();
  for (const { id, redelivered } of sights) {
    published.set(id, (published.get(id) ?? 0) + (redelivered ? 0 : 1));
  }
  // One that was seen only as redelivered has been published all the same.
  return [...published.values()].reduce((sum, count) => sum + Math.max(0, count - 1), 0);
}

/** Messages that came for the first time after a later one of their key. */
function disordered(sights: readonly Sight[]): string[] {
  const seen = new Set<string>();
  const last = new Map<string, number>();
  const late: string[] = [];
  for (const { id, key, place } of sights) {
    if (key === '' || seen.has(id)) continue;
    seen.add(id);
    if (place <= (last.get(key) ?? 0)) late.push(`${id} (${key} ${place})`);
    last.set(key, Math.max(place, last.get(key) ?? 0));
  }
  return late;
}
