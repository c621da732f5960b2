/**
 * judge — compares what the ledger heard with what lies in the queues afterwards.
 *
 *   lost        confirmed, without its effect, and in no queue
 *   unexpected  an effect or a message that nobody published, or in a queue it does not belong to
 *   corrupt     other bytes than were published
 *   duplicated  ends beyond the first of a message: its lineage was forked
 *
 * Pure.
 */
import type { Facts, Written } from '../../torture/ledger.ts';

/** A message that was found in a queue where messages end. */
export interface Found {
  readonly key: string;
  readonly where: 'dead' | 'parked' | 'unrouted';
  readonly sha256: string;
}

export interface FlowEvidence {
  readonly facts: Pick<Facts, 'messages' | 'effects'>;
  readonly found: readonly Found[];
  /** Messages that still lie in the main and wait queues. */
  readonly lying: number;
  /** As many duplicates may be. */
  readonly bound: number;
}

export interface FlowVerdict {
  readonly messages: number;
  readonly lost: number;
  readonly unexpected: number;
  readonly corrupt: number;
  readonly duplicated: number;
  readonly bound: number;
  readonly complaints: readonly string[];
}

const KEYS_SHOWN = 5;
const HOME: Readonly<Record<string, Found['where']>> = {
  permanent: 'dead',
  hold: 'parked',
  crash: 'parked',
};

/** Confirmed messages that have not come to their end. */
export function unfinished({ facts, found }: Omit<FlowEvidence, 'lying' | 'bound'>): string[] {
  const ended = new Set([...endsOf(facts), ...found.map(({ key }) => key)]);
  const accepted = [...facts.messages.values()].filter(({ outcome }) => outcome === 'ok');
  return accepted.filter(({ key }) => !ended.has(key)).map(({ key }) => key);
}

/** Judges a run that has come to rest. */
export function judgeFlow(evidence: FlowEvidence): FlowVerdict {
  const { facts, found, lying, bound } = evidence;
  const complaints: string[] = [];
  const complain = (keys: readonly string[], what: string): number => {
    const shown = keys.slice(0, KEYS_SHOWN).join(' ');
    if (keys.length > 0) complaints.push(`${keys.length} ${what}: ${shown}`);
    return keys.length;
  };
  const missing = unfinished(evidence);
  const all = [...facts.effects, ...found];
  const isKnown = (key: string): boolean => facts.messages.has(key);
  const isAstray = ({ key, where }: Found): boolean => !belongs(facts.messages.get(key), where);
  const isDamaged = ({ key, sha256 }: { key: string; sha256?: string }): boolean =>
    isKnown(key) && sha256 !== undefined && sha256 !== facts.messages.get(key)?.sha256;
  const strange = all.filter(({ key }) => !isKnown(key));
  const ends = [...endsOf(facts), ...found.map(({ key }) => key)];
  const duplicated = ends.length - new Set(ends).size;
  if (duplicated > bound) complaints.push(`${duplicated} duplicates, the bound is ${bound}`);
  return {
    messages: facts.messages.size,
    lost: complain(missing.slice(lying), `confirmed and lost (${lying} lie in queues)`),
    unexpected: complain(
      [...strange, ...found.filter(isAstray)].map(({ key }) => key),
      'that nobody published, or in a queue where they do not belong',
    ),
    corrupt: complain(
      all.filter(isDamaged).map(({ key }) => key),
      'with other bytes',
    ),
    duplicated,
    bound,
    complaints,
  };
}

/** Messages that were delivered, as often as they were. */
function endsOf({ effects }: Pick<Facts, 'effects'>): string[] {
  return effects.filter(({ kind }) => kind === 'delivered').map(({ key }) => key);
}

function belongs(message: Written | undefined, where: Found['where']): boolean {
  return message === undefined || HOME[message.plan] === where;
}
