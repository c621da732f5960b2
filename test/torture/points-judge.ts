/**
 * points-judge — where every message of the script may be, by what its program said before it died.
 *
 * Pure. A step that was acknowledged has happened; one that was begun may have; one that was not
 * begun has not.
 */
import type { Seen } from './inspect.ts';
import { bodyOf, sha256 } from './plans.ts';
import { NEIGHBOURS, sizeOf, type Step, STEPS, type Whereabouts } from './points-order.ts';

/** What the messages outlived. A power cut may forget claims and verdicts, never more. */
export type Survived = 'process' | 'power cut';

/** What is not as it has to be, in words. */
export function judgeScript(
  lines: readonly string[],
  entries: readonly Seen[],
  { survived = 'process' }: { readonly survived?: Survived } = {},
): string[] {
  const complaints: string[] = [];
  const byKey = new Map(entries.map((entry) => [entry.key, entry]));
  const expect = (key: string, allowed: readonly Whereabouts[]): void => {
    const entry = byKey.get(key);
    const place = entry?.state ?? 'absent';
    if (!allowed.includes(place))
      complaints.push(`${key} is ${place}, not ${allowed.join(' or ')}`);
    if (entry !== undefined) complaints.push(...bodyComplaints(entry));
  };
  for (const key of NEIGHBOURS) expect(key, ['incoming']);
  for (const step of STEPS) {
    for (const key of step.keys) {
      expect(key, allowedAfter(lines, step, key, survived));
      const attempts = attemptComplaints(lines, step, byKey.get(key));
      if (survived === 'process') complaints.push(...attempts);
    }
  }
  const known = new Set([...NEIGHBOURS, ...STEPS.flatMap(({ keys }) => keys)]);
  for (const { key } of entries) if (!known.has(key)) complaints.push(`nobody enqueued ${key}`);
  if (byKey.size !== entries.length) complaints.push('a message has two entries');
  return complaints;
}

function allowedAfter(
  lines: readonly string[],
  { name, from, to, settling }: Step,
  key: string,
  survived: Survived,
): readonly Whereabouts[] {
  if (!lines.includes(`doing ${name}`)) return [from];
  const isAcked = lines.includes(`acked ${name}`);
  if (settling === undefined) return isAcked ? [to] : [from, to];
  if (survived === 'power cut') return [from, 'active', to];
  if (isAcked) return [to];
  // Once the handler runs the claim is durable, and only the verdict is open.
  return lines.includes(`claimed ${key}`) ? ['active', to] : [from, 'active', to];
}

function attemptComplaints(
  lines: readonly string[],
  { settling }: Step,
  entry: Seen | undefined,
): string[] {
  if (settling === undefined || entry === undefined) return [];
  const isCounted = lines.includes(`claimed ${entry.key}`);
  if (!isCounted || entry.attempts === 1) return [];
  return [`${entry.key} has ${entry.attempts} attempts, its handler has run once`];
}

function bodyComplaints({ key, state, sha256: hash }: Seen): string[] {
  // A delivered message with an id of its own is remembered without its body.
  if (hash === undefined && state === 'archived' && key.startsWith('own')) return [];
  if (hash === sha256(bodyOf(key, sizeOf(key)))) return [];
  return [`the body of ${key} is ${hash === undefined ? 'gone' : 'another one'}`];
}
